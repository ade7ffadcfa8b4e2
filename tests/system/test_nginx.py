"""Behind real nginx: the shipped configuration holds streams; others are detected and explained by doctor."""

import http.client
import json
import shutil
import socket
import subprocess
import threading
import time

import pytest

from conftest import FULL, need
from mcp_http import McpClient
from stage import BINARIES, ROOT, wait_until

SHIPPED = ROOT / "deploy" / "nginx" / "callboard.conf"
# A user's nginx.conf, and nothing that the distribution would add.
MAIN = """daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  include {folder}/site.conf;
}}
"""
DEFAULTS = "server {{ listen 8080; location / {{ proxy_pass http://127.0.0.1:9765; {more} }} }}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def nginx(stage):
    """Starts nginx with a site; the port it listens on."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if not program:
        need("nginx is not installed: tools/install_packages --nginx")

    def start(site):
        port = free_port()
        folder = stage.folder / f"nginx{port}"
        folder.mkdir()
        site = site.replace("listen 8080", f"listen 127.0.0.1:{port}")
        (folder / "site.conf").write_text(site.replace("127.0.0.1:9765", f"127.0.0.1:{stage.port}"))
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
        stage.start([program, "-p", folder, "-c", folder / "nginx.conf"], folder.name)

        def answers():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(answers, 10, "nginx listens")
        return port

    return start


def doctor(port, silence, *more):
    ended = subprocess.run([BINARIES / "callboard", "doctor", "--url", f"http://127.0.0.1:{port}/mcp",
                            "--silence", silence, *more], capture_output=True, text=True, timeout=60,
                           check=False)
    return ended.returncode, ended.stdout


def listen(port, session, seconds):
    """Holds a GET stream; (headers, largest gap between bytes in seconds, whether it is still open)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds + 10)
    connection.request("GET", "/mcp", headers={"Accept": "text/event-stream", "Mcp-Session-Id": session,
                                               "Accept-Encoding": "gzip, br"})
    response = connection.getresponse()
    end = time.monotonic() + seconds
    last, gap, open_still = time.monotonic(), 0.0, True
    while time.monotonic() < end and open_still:
        open_still = response.readline() != b""
        gap = max(gap, time.monotonic() - last)
        last = time.monotonic()
    connection.close()
    return response.headers, gap, open_still


def silent_pieces(port, pieces, seconds):
    """A call that is silent for `seconds` between two words, while a listening stream is silent too."""
    client = McpClient(port, "/mcp/counting")
    client.initialize()
    facade = McpClient(port)
    facade.initialize()
    seen = {}

    def hold():
        seen["listen"] = listen(port, facade.session, pieces * seconds)

    holder = threading.Thread(target=hold)
    holder.start()
    answer = client.call("progress", {"steps": pieces, "ms": int(seconds * 1000)},
                         timeout=pieces * seconds + 30, progress=True)
    holder.join()
    assert answer.progress == list(range(1, pieces + 1))
    assert answer.resumes == 0, "the stream was cut"
    late = [arrival - float(note["params"]["message"])
            for arrival, note in zip(answer.arrivals, answer.notifications)]
    headers, gap, open_still = seen["listen"]
    assert open_still, "the listening stream was cut"
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["Content-Encoding"] is None
    return max(late), gap


def test_the_shipped_configuration_holds_silent_streams(stage, nginx):
    """144 times 25 s of silence are an hour, against time-outs of an hour. Here heartbeats are 1 s, nginx
    waits for 2 s, and a silence is 2.5 s: 144 times in the full tier, else 8 times."""
    pieces = 144 if FULL else 8
    stage.start_control_plane(bridge__heartbeat="1s", budgets__heavy_call="10m")
    stage.start_agent()
    shipped = SHIPPED.read_text()
    assert shipped.count("1h;") == 3
    late, gap = silent_pieces(nginx(shipped.replace("1h;", "2s;")), pieces, 2.5)
    print(f"shipped configuration, {pieces} silent pieces: latest event {late * 1000:.0f} ms, "
          f"largest gap {gap:.1f} s")
    assert late < 1.0
    assert gap < 2.5


def test_fc_40_default_nginx_passes_events_and_heartbeats_outlive_its_read_timeout(stage, nginx):
    """Buffering on, HTTP/1.0 to the bridge, a read time-out shorter than the silence."""
    stage.start_control_plane(bridge__heartbeat="1s")
    stage.start_agent()
    port = nginx(DEFAULTS.format(more="proxy_read_timeout 2s;"))
    late, gap = silent_pieces(port, 3, 3.0)
    assert late < 1.0 and gap < 2.5
    client = McpClient(port, "/mcp/counting")
    client.initialize()
    answer = client.call("progress", {"steps": 6, "ms": 500}, progress=True)
    assert all(arrival - float(note["params"]["message"]) < 1.0
               for arrival, note in zip(answer.arrivals, answer.notifications))


def test_doctor_finds_nothing_wrong_with_the_shipped_configuration(stage, nginx):
    stage.start_control_plane()
    code, text = doctor(nginx(SHIPPED.read_text()), "7s")
    assert code == 0, text
    assert "ok    buffering" in text
    assert "none within 7.0 s of silence; the bridge's heartbeat is 15.0 s" in text


def test_doctor_explains_buffering(stage, nginx):
    stage.start_control_plane()
    port = nginx(DEFAULTS.format(more="proxy_ignore_headers X-Accel-Buffering;"))
    code, text = doctor(port, "7s")
    assert code == 16, text
    assert "FAIL  buffering" in text and "first byte not within 6.0 s" in text
    assert "proxy_buffering off" in text and "deploy/nginx/callboard.conf" in text


def test_doctor_explains_an_idle_timeout_that_is_too_short(stage, nginx):
    """60 s against 15 s is fine; shortened: 3 s against 15 s is not."""
    stage.start_control_plane()
    port = nginx(SHIPPED.read_text().replace("1h;", "3s;"))
    code, text = doctor(port, "10s", "-o", "json")
    assert code == 16, text
    idle = {check["check"]: check for check in json.loads(text)}["idle time-out"]
    assert not idle["ok"]
    assert idle["found"].startswith("the path cuts a stream after 3.0 s of silence")
    assert "bridge.path_idle_timeouts=3s" in idle["helps"] and "proxy_read_timeout" in idle["helps"]
    # What it says helps, helps.
    stage.control_plane.terminate()
    stage.start_control_plane(bridge__path_idle_timeouts="3s")
    code, text = doctor(port, "10s")
    assert code == 0, text
    assert "the bridge's heartbeat is 1.2 s, which holds streams open" in text
