"""Field cases that need real binaries; a test's name begins with the id of its case."""

import json
import socket
import subprocess
import sys
import threading
import time

import pytest

from conftest import FULL
from mcp_http import connection_closed
from stage import BINARIES, SHARED, wait_until

HTTP_CHECK = SHARED / "field-cases" / "http_check.py"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/counting"])
def test_fc_01_03_05_25_26_27_28_http_check(stage, path):
    """All requests of the cases that can be sent as they are, to both surfaces."""
    if not HTTP_CHECK.exists():
        pytest.skip("field cases (http_check.py): there is no ../shared/field-cases")
    stage.start_control_plane()
    stage.start_agent()
    done = subprocess.run([sys.executable, HTTP_CHECK, "--base", f"http://127.0.0.1:{stage.port}",
                           "--path", path], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" requests, 0 failed\n")


@pytest.fixture
def counting(stage):
    stage.start_control_plane()
    stage.start_agent()
    return stage


def test_fc_22_progress_carries_the_clients_own_token(counting):
    client = counting.client()
    for token in (0, 7, "7", 9007199254740993, ""):
        answer = client.request("tools/call", {"name": "progress", "arguments": {"steps": 3, "ms": 50},
                                               "_meta": {"progressToken": token}})
        tokens = [note["params"]["progressToken"] for note in answer.notifications]
        assert tokens == [token] * 3
        assert {type(found) for found in tokens} == {type(token)}
        assert answer.progress == [1, 2, 3]
    silent = client.call("progress", {"steps": 3, "ms": 200})
    assert silent.notifications == []
    assert silent.text == "3 steps"


def test_fc_29_cancel_has_one_outcome_and_the_session_goes_on(counting):
    client = counting.client()
    body = {"jsonrpc": "2.0", "id": "c", "method": "tools/call",
            "params": {"name": "count", "arguments": {"id": "cancelled", "ms": 3000}}}
    found = []
    thread = threading.Thread(target=lambda: found.append((client.post(body, 20), time.monotonic())))
    thread.start()
    counting.wait_begun("cancelled")
    time.sleep(0.5)
    asked = time.monotonic()
    assert client.notify("notifications/cancelled", {"requestId": "c"})[0] == 202
    thread.join(10)
    (status, _, text), when = found[0]
    assert status == 200
    assert when - asked < 2
    assert text.count('"result"') + text.count('"error"') <= 1
    wait_until(lambda: any(event[0] == "cancelled" for event in counting.events()), 3,
               "the backend is told with its own id")
    assert client.call("echo", {"text": "after"}).text == "after"
    assert counting.begun("cancelled") == 1


def test_fc_38_a_taken_port_is_told_in_one_line(counting):
    started = time.monotonic()
    state = counting.folder / "second"
    second = counting.start([BINARIES / "callboardd", "--host", "127.0.0.1", "--port", counting.port,
                             "--grpc-port", 0, "--state-dir", state], "second")
    assert second.process.wait(5) != 0
    assert time.monotonic() - started < 2
    lines = [line for line in second.output().splitlines() if str(counting.port) in line]
    assert len(lines) == 1 and "in use" in lines[0]
    counting.control_plane.terminate()
    counting.restart_control_plane()  # a socket in TIME_WAIT is no obstacle
    counting.wait_for_seats(1)


def test_fc_18_both_sides_write(stage):
    """Large arguments and large results cross on one link, far more than its windows hold."""
    stage.start_control_plane()
    stage.start_agent(queue__main_in_flight="64", queue__main_depth="600")
    text = "x" * 40_000
    wrong = []
    begun = time.monotonic()

    def calls(number):
        client = stage.client()
        for turn in range(5):
            said = f"{number}.{turn}.{text}"
            answer = client.call("echo", {"text": said}, timeout=30)
            if answer.text != said:
                wrong.append((number, turn, answer.text[:200]))

    callers = [threading.Thread(target=calls, args=(number,)) for number in range(100)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert wrong == []
    assert not any(caller.is_alive() for caller in callers)
    assert time.monotonic() - begun < 30


def test_fc_18_five_hundred_answers_that_nobody_reads_at_first(stage):
    """All at once, 40 KiB each way; the first byte of an answer is read after three seconds."""
    stage.start_control_plane()
    stage.start_agent(queue__main_in_flight="64", queue__main_depth="600")
    sessions = [stage.client().session for _ in range(10)]
    text = "x" * 40_960
    begun = time.monotonic()
    waiting = []
    for number in range(500):
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
            "name": "echo", "arguments": {"text": f"{number}.{text}"}}}).encode()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", stage.port))
        connection.sendall(
            f"POST /mcp/counting HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nConnection: close\r\n"
            f"Mcp-Session-Id: {sessions[number % 10]}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        waiting.append(connection)
    time.sleep(max(0.0, begun + 3 - time.monotonic()))
    for number, connection in enumerate(waiting):
        answer = b""
        with connection:
            while piece := connection.recv(65536):
                answer += piece
        assert answer.count(f'"{number}.{text}"'.encode()) == 1, answer[:300]
    took = time.monotonic() - begun
    print(f"500 answers after {took:.1f} s")
    assert took < 30
    assert stage.agent.output().count("link_up") == 1


def test_fc_05_a_listen_stream_speaks_at_once_and_then_never_falls_silent(stage):
    """180 s with the defaults in the full tier; 8 s with a heartbeat of 1 s else."""
    seconds, beat = (180, 15) if FULL else (8, 1)
    stage.start_control_plane(**({} if FULL else {"bridge__heartbeat": f"{beat}s"}))
    stage.start_agent()
    found = {}

    def listen(path):
        client = stage.client(path)
        begun = time.monotonic()
        connection, response = client._open("GET", None, client._headers() | {"Accept": "text/event-stream"},
                                            beat + 30)
        told = found[path] = {"headers": response.headers, "status": response.status, "times": [], "comments": 0,
                              "lines": []}
        with connection_closed(connection):
            last = begun
            while last < begun + seconds:
                line = response.readline()
                now = time.monotonic()
                told["times"].append(now - last)
                last = now
                told["comments"] += line.startswith(b":")
                told["lines"].append(line)
                if not line:
                    break

    threads = [threading.Thread(target=listen, args=(path,)) for path in ("/mcp", "/mcp/counting")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 60)
        assert not thread.is_alive()
    assert set(found) == {"/mcp", "/mcp/counting"}
    for told in found.values():
        headers = told["headers"]
        assert (told["status"], headers["Content-Type"], headers["X-Accel-Buffering"]) == (
            200, "text/event-stream", "no")
        assert {"no-cache", "no-transform"} <= {part.strip() for part in headers["Cache-Control"].split(",")}
        first, *others = told["times"]
        assert first < 1, "the first byte"
        assert max(others) < beat + 0.9, f"a silence of {max(others):.1f} s"
        assert told["comments"] >= seconds // beat - 1
        assert b"" not in told["lines"], "still open at the end"
        data = [line for line in told["lines"] if line.startswith(b"data:") and line[5:].strip()]
        assert data == [], "nothing but heartbeats"
