"""Backends as they are, behind the real agent: every mode of Streamable HTTP, HTTP+SSE, stdio with bad manners."""

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import sys
import time
import uuid
from pathlib import Path

import pytest

from stage import BINARIES, SHARED, descendants, wait_until

HTTP_FIXTURE = SHARED / "conformance" / "backend" / "http.mjs"
OLD_SERVER = Path(__file__).with_name("old_server.py")
MODES = {
    "auto": [],
    "always-sse": ["--reply", "sse"],
    "json-only": ["--reply", "json"],
    "stateless": ["--stateless"],
    "stateless-sse": ["--stateless", "--reply", "sse"],
    "stateless-json": ["--stateless", "--reply", "json"],
    "legacy-only": ["--legacy-only"],
}


def start_fixture(stage, name, options, port=0):
    program = stage.start(["node", HTTP_FIXTURE, "--port", port, *options], name)
    program.wait_for("/mcp")
    return program, re.search(r"http://\S+", program.output())[0]


def start_old(stage, name, *options):
    """(program, port, path)"""
    program = stage.start([sys.executable, OLD_SERVER, "--file", stage.runs, *options], name)
    program.wait_for("port ")
    port, path = re.search(r"port (\d+) path (\S+)", program.output()).groups()
    return program, int(port), path


@pytest.fixture
def plane(stage):
    stage.start_control_plane()
    return stage


# -- Streamable HTTP -----------------------------------------------------------------------------------


@pytest.mark.skipif(not HTTP_FIXTURE.exists(), reason="there is no ../shared/conformance")
@pytest.mark.parametrize("mode", MODES)
def test_http_fixture_in_each_mode(plane, mode):
    _, url = start_fixture(plane, "fixture", MODES[mode])
    plane.start_agent(url, name="fixture")
    client = plane.client("/mcp/fixture")
    names = [tool["name"] for tool in client.tools()]
    assert "test_simple_text" in names and len(names) == len(set(names))

    answer = client.call("test_simple_text")
    assert answer.text == "This is a simple text response for testing."
    assert client.call("test_error_handling").result["isError"] is True
    unknown = client.call("no_such_tool")
    assert unknown.failed

    answer = client.call("test_tool_with_progress", progress=True)
    assert not answer.failed
    assert answer.progress == ([] if "json" in mode else [0, 50, 100])

    # The server closes the stream of this one in mid-call, to be asked for the rest.
    started = time.monotonic()
    answer = client.call("test_reconnection")
    assert answer.text == "Reconnection test completed"
    assert time.monotonic() - started < 5


@pytest.mark.skipif(not HTTP_FIXTURE.exists(), reason="there is no ../shared/conformance")
def test_http_fixture_that_restarts_is_initialized_again(plane):
    first, url = start_fixture(plane, "fixture", [])
    plane.start_agent(url, name="fixture")
    client = plane.client("/mcp/fixture")
    assert not client.call("test_simple_text").failed
    first.end()
    # The same address, no memory of our session: nothing but 404 for it.
    start_fixture(plane, "fixture-again", [], port=url.rsplit(":", 1)[1].split("/")[0])

    def works():
        with contextlib.suppress(Exception):
            return not client.call("test_simple_text", timeout=5).failed

    wait_until(works, 15, "the restarted server answers", step=0.1)


# -- HTTP+SSE ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["auto", "sse"])
def test_http_with_sse_backend(plane, transport):
    _, port, path = start_old(plane, "old")
    plane.start_agent(f"http://127.0.0.1:{port}{path}", backend__transport=transport)
    client = plane.client()
    assert client.call("echo", {"text": "long ago"}).text == "long ago"
    answer = client.call("progress", {"steps": 3, "ms": 20}, progress=True)
    assert answer.progress == [1, 2, 3]


def test_http_with_sse_backend_whose_stream_ends_loses_the_call_and_comes_back(plane):
    _, port, path = start_old(plane, "old", "--cut", 3)
    plane.start_agent(f"http://127.0.0.1:{port}{path}")
    client = plane.client()
    answer = client.call("count", {"id": "cut", "ms": 20_000}, timeout=15)
    assert answer.failed and answer.seconds < 10

    def works():
        with contextlib.suppress(Exception):
            return client.call("echo", {"text": "again"}, timeout=2).text == "again"

    wait_until(works, 15, "the stream is there again", step=0.1)
    assert plane.begun("cut") == 1


# -- addresses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_fc_32_localhost_is_either_family_and_never_behind_a_proxy(plane, host):
    if host == "::1":
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::1", 0))
            except OSError:
                pytest.skip("this machine has no ::1")
    _, port, path = start_old(plane, "plain", "--host", host, "--transport", "http")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{closed.getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "grpc_proxy")
        env = {key: value for key, value in os.environ.items() if key.lower() != "no_proxy"}
        env |= {name: proxy for name in names} | {name.lower(): proxy for name in names}
        plane.start([BINARIES / "callboard-agent", "--control-plane", f"127.0.0.1:{plane.grpc_port}",
                     "--state-dir", plane.folder / "agent", "--name", "counting",
                     "--url", f"http://localhost:{port}{path}"], "agent", env=env)
        plane.wait_for_seats(1)
        assert plane.client().call("echo", {"text": host}).text == host


# -- stdio ---------------------------------------------------------------------------------------------

RUDE = r"""
import os, subprocess, sys
sys.path.insert(0, {folder!r})
from counting_server import Server, serve_stdio
print("BANNER: rude server 1.0", flush=True)
for i in range(1 << 14):
    sys.stderr.write("%063d\n" % i)
class Rude(Server):
    def echo(self, arguments, notify):
        sys.stdout.write("warning: echo\n" + "x" * 200_000 + "\n[]\n17\n" + '{{"no": "rpc"}}\n')
        sys.stdout.flush()
        sys.stderr.write("e" * 65_536 + "\n")
        return arguments["text"]
serve_stdio(Rude({runs!r}))
"""


def rude(stage):
    script = stage.folder / "rude.py"
    script.write_text(RUDE.format(folder=str(OLD_SERVER.parent), runs=str(stage.runs)))
    return script


def test_fc_13_fc_14_junk_on_stdout_and_a_flood_of_stderr(plane):
    plane.start_agent(sys.executable, rude(plane))
    client = plane.client()
    slowest = 0
    for number in range(20):
        answer = client.call("echo", {"text": f"call {number}"})
        assert answer.text == f"call {number}"
        slowest = max(slowest, answer.seconds)
    assert slowest < 1
    assert plane.agent.output().count("BANNER: rude server") == 1


def group_of(stage):
    """Pids of the shell wrapper, the server and its grandchild, all deaf to SIGTERM."""
    stage.start_agent("/bin/sh", "-c", f"trap '' TERM; sleep 600 & {sys.executable} {rude(stage)}; wait")
    found = wait_until(lambda: len(p := descendants(stage.agent.pid)) >= 3 and p, 5, "three processes")
    return found


def gone(pids):
    """Whether none of them lives; a zombie does not."""
    def lives(pid):
        with contextlib.suppress(OSError):
            return ") Z" not in Path("/proc", str(pid), "stat").read_text()
        return False

    return not any(map(lives, pids))


def test_fc_33_no_orphans_after_sigterm(plane):
    pids = group_of(plane)
    assert plane.agent.terminate() == 0
    wait_until(lambda: gone(pids), 5, "the wrapper, the server and the grandchild are gone")


def test_fc_33_no_orphans_after_sigkill(plane):
    pids = group_of(plane)
    plane.agent.signal(signal.SIGKILL)
    wait_until(lambda: gone(pids), 5, "the wrapper, the server and the grandchild are gone")


# -- one process after another ----------------------------------------------------------------------------


def test_fc_37_a_running_call_never_reaches_the_process_that_takes_the_port(plane):
    plane.start_registry_agent(["dcc"])
    first = next(program for program in plane._programs if program.log.name == "dcc.log")
    client = plane.client("/mcp/dcc")
    call = client.start_call("count", {"id": "doomed", "ms": 60_000})
    log = plane.folder / "dcc.txt"
    wait_until(lambda: any(entry[1] == "doomed" for entry in plane.events(log)), 10, "the tool runs")

    registry = plane.folder / "registry" / "services.json"
    row = json.loads(registry.read_text())[0]
    first.kill()
    second_log = plane.folder / "second.txt"
    second = plane.start([sys.executable, OLD_SERVER.with_name("counting_server.py"), "--file",
                          second_log, "--http", row["port"]], "second")
    second.wait_for("/mcp")
    sentinel = plane.folder / "registry" / "locks" / "second.lock"
    held = open(sentinel, "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    plane.on_close(held.close)
    # The row of the dead one stays, as nobody has removed it.
    registry.write_text(json.dumps([row, row | {"instance_id": str(uuid.uuid4()), "pid": second.pid,
                                                "sentinel_path": str(sentinel)}]))
    answer = call.result(10)
    assert answer.failed and "SIGKILL" in answer.text

    def works():
        with contextlib.suppress(Exception):
            return not plane.client("/mcp/dcc").call("count", {"id": "next"}, timeout=5).failed

    wait_until(works, 15, "the second process serves the seat", step=0.1)
    assert {call for _, call, _ in plane.events(second_log)} == {"next"}
