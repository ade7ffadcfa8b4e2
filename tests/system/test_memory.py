"""Memory comes back: after abandoned sessions, aborted calls and agents that come and go."""

import contextlib
import http.client
import json
import socket
import time
from pathlib import Path

from mcp_http import REVISION
from stage import wait_until
from tcp_proxy import TcpProxy

INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "m", "version": "1"}}})
ALLOWED = 1.05


def resident_kib(program):
    for line in Path("/proc", str(program.pid), "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def open_files(program):
    return len(list(Path("/proc", str(program.pid), "fd").iterdir()))


def open_sessions(stage, count):
    """Opens sessions and forgets them; nobody says DELETE."""
    connection = http.client.HTTPConnection("127.0.0.1", stage.port, timeout=10)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    for _ in range(count):
        connection.request("POST", "/mcp/counting", INITIALIZE, headers)
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        session = response.headers["Mcp-Session-Id"]
        connection.request("POST", "/mcp/counting", json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "ping"}), headers | {"Mcp-Session-Id": session})
        response = connection.getresponse()
        assert (response.status, response.read() != b"") == (200, True)
    connection.close()
    return session


def abort_calls(stage, count, ms):
    """Calls whose client vanishes by a reset while they wait or run."""
    client = stage.client()
    for number in range(count):
        body = json.dumps({"jsonrpc": "2.0", "id": number + 10, "method": "tools/call", "params": {
            "name": "count", "arguments": {"id": f"gone-{number}", "ms": ms}}}).encode()
        head = (f"POST /mcp/counting HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Accept: application/json, text/event-stream\r\nMcp-Session-Id: {client.session}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        with socket.create_connection(("127.0.0.1", stage.port), 5) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(head + body)
        if number % 100 == 99:
            client.call("echo", {"text": "t"})
    client.call("echo", {"text": "t"}, timeout=50)
    client.delete()


def settled(measure, level, seconds=15):
    """The lowest of what is measured until it is low enough, or until the time is over."""
    lowest = measure()
    with contextlib.suppress(AssertionError):
        wait_until(lambda: measure() <= level, seconds, "memory comes back", step=0.25)
    return min(lowest, measure())


def test_fc_30_ten_thousand_abandoned_sessions_give_their_memory_back(stage):
    """The sessions end by idle time; as many again must fit into what the first ones left."""
    plane = stage.start_control_plane(budgets__session_idle="4s", budgets__session_grace="1s")
    stage.start_agent()
    open_sessions(stage, 15_000)
    time.sleep(32)  # the bridge believes what it knows of a session for 30 s
    level = resident_kib(plane)
    last = open_sessions(stage, 10_000)
    time.sleep(6)
    now = settled(lambda: resident_kib(plane), level * ALLOWED)
    assert now <= level * ALLOWED, f"{level} KiB after warm-up, {now} KiB after 10000 sessions"
    client = stage.client()
    client.session = last
    assert client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "echo", "arguments": {}}})[0] == 404
    assert stage.client().call("echo", {"text": "t"}).text == "t"


def test_fc_30_who_reads_or_waits_is_not_idle_and_delete_frees_at_once(stage):
    stage.start_control_plane(budgets__session_idle="3s", budgets__session_grace="1s",
                              bridge__session_recheck="1s")
    stage.start_agent()

    def ping(client):
        return client.post({"jsonrpc": "2.0", "id": client.next_id(), "method": "ping"})[0]

    idle, reading, waiting, ended = (stage.client() for _ in range(4))
    connection, response = reading._open("GET", None, reading._headers() | {"Accept": "text/event-stream"}, 20)
    call = waiting.start_call("count", {"id": "long", "ms": 8000})
    stage.wait_begun("long")
    assert ended.delete() == 200 and ping(ended) == 404
    time.sleep(7)
    assert not call.done()
    assert (ping(idle), ping(reading), ping(waiting)) == (404, 200, 200)
    assert call.result(10).text == "counted long"
    connection.close()
    time.sleep(7)
    assert (ping(reading), ping(waiting)) == (404, 404)


def test_a_thousand_aborted_calls_give_their_memory_back(stage):
    plane = stage.start_control_plane(limits__receipts_max=200)
    agent = stage.start_agent()
    abort_calls(stage, 400, 2)
    levels = [resident_kib(program) for program in (plane, agent)]
    files = open_files(plane)
    abort_calls(stage, 1000, 2)
    for program, level in zip((plane, agent), levels):
        now = settled(lambda: resident_kib(program), level * ALLOWED)
        assert now <= level * ALLOWED, f"{program.command[0]}: {level} KiB, then {now} KiB"
    assert settled(lambda: open_files(plane), files) <= files


def test_two_hundred_agent_reconnects_give_their_memory_back(stage):
    plane = stage.start_control_plane()
    proxy = TcpProxy(stage.grpc_port)
    stage.on_close(proxy.close)
    agent = stage.start_agent(address=f"127.0.0.1:{proxy.port}")
    client = stage.client()

    def reconnect(count):
        for _ in range(count):
            proxy.cut()
            wait_until(lambda: client.call("echo", {"text": "t"}, timeout=20).text == "t", 20,
                       "a call after the link was cut")

    reconnect(50)
    levels = [resident_kib(program) for program in (plane, agent)]
    files = [open_files(program) for program in (plane, agent)]
    reconnect(200)
    for program, level, before in zip((plane, agent), levels, files):
        now = settled(lambda: resident_kib(program), level * ALLOWED)
        assert now <= level * ALLOWED, f"{program.command[0]}: {level} KiB, then {now} KiB"
        assert settled(lambda: open_files(program), before + 2) <= before + 2
