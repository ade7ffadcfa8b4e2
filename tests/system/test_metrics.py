"""What the programs tell an operator: figures at /metrics, log lines as JSON, and the trace of a call through every hop."""

import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import need_full
from mcp_http import McpClient, Refused, read_events
from prometheus_text import scrape
from stage import BINARIES, ROOT, wait_until
from test_store_faults import fill, small_disk  # noqa: F401 (a fixture)

TRACED_SERVER = ROOT / "tests" / "system" / "traced_server.py"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def admin_port(stage, program="callboardd"):
    return json.loads((stage.folder / program / "ports.json").read_text())["admin"]


def figures(stage, program="callboardd"):
    return scrape(admin_port(stage, program))


def wait_for_figure(stage, at_least, name, program="callboardd", seconds=15, **labels):
    wait_until(lambda: figures(stage, program).value(name, **labels) >= at_least, seconds,
               f"{name}{labels} is {at_least}", step=0.05)


def ask(port, path="/metrics", method="GET", headers=None):
    """Status and body of any request to an admin port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def listen(client, last_id=None):
    """A GET stream and its first event with an id."""
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": client.session}
    if last_id:
        headers["Last-Event-ID"] = last_id
    connection = http.client.HTTPConnection(client.host, client.port, timeout=10)
    connection.request("GET", client.path, headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    event = None if last_id else next(event for event in read_events(response) if event.id)
    return connection, event


# -- the port --------------------------------------------------------------------------------------


def test_the_admin_port_is_off_unless_asked_for_and_answers_only_what_it_is_for(stage):
    stage.start_control_plane()
    assert "admin" not in json.loads((stage.folder / "callboardd" / "ports.json").read_text())
    stage.control_plane.terminate()

    stage.start_control_plane(admin__port=0)
    port = admin_port(stage)
    assert ask(port)[0] == 200
    assert ask(port, headers={"Host": f"localhost:{port}"})[0] == 200
    assert ask(port, headers={"Host": "evil.example"})[0] == 403
    assert ask(port, headers={"Origin": "http://localhost"})[0] == 403
    status, text = ask(port, "/secret")
    assert (status, text) == (404, "no path '/secret' here; there is: /metrics\n")
    assert ask(port, method="POST")[0] == 405
    # MCP clients find nothing of it on their port.
    assert ask(stage.port)[0] == 404


@pytest.mark.parametrize("program", ["callboardd", "callboard-agent", "callboard-bridge"])
def test_a_taken_or_senseless_admin_port_is_a_clear_error(stage, program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [BINARIES / program, "--state-dir", stage.folder / program, "--log-level", "off"]
        if program == "callboardd":
            command += ["--port", "0", "--grpc-port", "0"]
        if program == "callboard-bridge":
            command += ["--port", "0"]
        ended = subprocess.run([*command, "--admin-port", str(port)], capture_output=True, text=True,
                               timeout=20, check=False)
        assert ended.returncode == 2
        assert f"admin port: cannot listen on 127.0.0.1:{port}" in ended.stderr
        assert "--admin-port" in ended.stderr
        ended = subprocess.run([*command, "--set", "admin.port=http"], capture_output=True, text=True,
                               timeout=20, check=False)
        assert ended.returncode == 2
        assert "admin.port 'http': expected a port (0 picks a free one) or off" in ended.stderr


# -- the figures -----------------------------------------------------------------------------------


def test_calls_sessions_and_streams_are_counted_as_they_happen(stage):
    stage.start_control_plane(admin__port=0)
    stage.start_agent(admin__port=0)
    client = stage.client()
    seat = figures(stage)
    assert seat.value("callboard_agents") == 1
    assert seat.value("callboard_seats", presence="linked") == 1
    assert seat.value("callboard_agent_links_total", kind="first") == 1

    for n in range(3):
        assert client.call("count", {"id": f"a{n}"}).text == f"counted a{n}"
    assert client.call("echo", {"text": "x", "fail": True}).failed
    assert client.call("count", {"id": 7}).failed  # id must be a string
    stranger = McpClient(stage.port, "/mcp/counting")
    stranger.session = "f" * 32
    with pytest.raises(Refused) as unknown:
        stranger.call("echo")
    assert unknown.value.status == 404

    now = figures(stage)
    ended = "callboard_calls_ended_total"
    assert now.value(ended, outcome="result", reason="none") == 3
    assert now.value(ended, outcome="tool_error", reason="none") == 1
    assert now.value("callboard_calls_refused_total", reason="params_invalid") == 1
    assert now.value("callboard_call_duration_seconds_count", outcome="result") == 4
    assert now.value("callboard_call_duration_seconds_bucket", outcome="result", le="1") == 4
    assert now.value("callboard_session_mismatches_total") == 1
    assert now.value("callboard_sessions") == now.value("callboard_sessions_opened_total") == 1
    agent = figures(stage, "agent")
    assert agent.value("callboard_agent_calls_started_total") == 4
    assert agent.value("callboard_agent_calls_ended_total", outcome="result", reason="none") >= 3
    assert agent.value("callboard_agent_link_up", address=f"127.0.0.1:{stage.grpc_port}") == 1

    # One runs, two wait for their turn: states, and the queue of the seat.
    # The first is long: both others have arrived before it ends, on a slow machine too.
    running = [client.start_call("count", {"id": "q0", "ms": 4000})]
    stage.wait_begun("q0")
    running += [client.start_call("count", {"id": f"q{n}", "ms": 1200}) for n in (1, 2)]
    wait_for_figure(stage, 2, "callboard_calls_open", state="queued")
    wait_until(lambda: figures(stage).total("callboard_seat_queue_depth", name="counting") == 2, 5,
               "two calls wait at the seat")
    now = figures(stage)
    assert now.value("callboard_calls_open", state="waiting") == 1
    assert now.value("callboard_calls_open", state="queued") == 2
    assert now.total("callboard_seat_running", name="counting") == 1
    assert [call.result(20).failed for call in running] == [False] * 3
    now = figures(stage)
    assert sum(now.value("callboard_calls_open", state=state)
               for state in ("queued", "connecting", "sending", "waiting", "retrying")) == 0
    assert now.value("callboard_call_state_seconds_count", state="queued") >= 2
    assert now.value("callboard_call_state_seconds_sum", state="queued") >= 2

    # A stream that its client drops and takes up again.
    streams = now.value("callboard_sse_streams_opened_total")
    dropped = now.value("callboard_sse_streams_ended_total", cause="client")
    connection, first = listen(client)
    assert figures(stage).value("callboard_sse_streams") == 1
    connection.close()
    wait_for_figure(stage, dropped + 1, "callboard_sse_streams_ended_total", cause="client")
    connection, _ = listen(client, first.id)
    wait_for_figure(stage, 1, "callboard_sse_resumes_total", result="resumed")
    connection.close()
    wait_for_figure(stage, dropped + 2, "callboard_sse_streams_ended_total", cause="client")
    now = figures(stage)
    assert now.value("callboard_sse_streams") == 0
    assert now.value("callboard_sse_streams_opened_total") == streams + 2
    assert now.total("callboard_sse_stream_life_seconds_count") == streams + 2
    assert now.value("callboard_sse_stream_life_seconds_count", cause="client") == dropped + 2
    assert now.value("process_open_fds") > 5
    assert now.value("process_resident_memory_bytes") > 1 << 20
    assert 0 < now.value("process_cpu_seconds_total") < 60
    assert abs(now.value("process_start_time_seconds") - time.time()) < 120


def test_a_killed_agent_shows_in_drops_lost_calls_and_its_return(stage):
    stage.start_control_plane(admin__port=0)
    stage.start_agent()
    client = stage.client()
    lost = client.start_call("count", {"id": "lost", "ms": 60000}, timeout=30)
    stage.wait_begun("lost")
    stage.agent.kill()
    wait_for_figure(stage, 1, "callboard_agent_link_drops_total", cause="closed")
    assert figures(stage).value("callboard_agents") == 0
    assert figures(stage).value("callboard_calls_open", state="connecting") == 1
    stage.restart_agent()
    assert lost.result(20).failed
    now = figures(stage)
    assert now.value("callboard_agent_links_total", kind="again") == 1
    assert now.value("callboard_agent_reattached_total", level="re_register") == 1
    assert now.value("callboard_agent_reattached_total", level="resume") == 0
    assert now.value("callboard_calls_ended_total", outcome="lost", reason="agent_restarted") == 1
    assert now.value("callboard_call_duration_seconds_count", outcome="failure") == 1
    assert now.value("callboard_call_retries_exhausted_total") == 0


def test_what_comes_back_after_a_kill_of_the_control_plane_is_counted(stage):
    stage.start_control_plane(admin__port=0)
    stage.start_agent(admin__port=0)
    client, other = stage.client(), stage.client()
    assert figures(stage).value("callboard_sessions_awaited") == 0
    stage.control_plane.kill()
    failures = "callboard_agent_link_failures_total"
    wait_for_figure(stage, 1, failures, "agent", reason="no_answer")
    stage.restart_control_plane()
    wait_for_figure(stage, 1, "callboard_agent_reattached_total", level="resume")
    now = figures(stage)
    assert now.value("callboard_agent_reattached_total", level="re_register") == 0
    assert now.value("callboard_sessions_awaited") == 2
    assert client.call("echo", {"text": "x"}).text == "x"
    now = figures(stage)
    assert now.value("callboard_sessions_awaited") == 1
    assert now.value("callboard_sessions_taken_over_total", result="taken_up") == 1
    assert other.delete() == 200
    now = figures(stage)
    assert now.value("callboard_sessions_awaited") == 0
    assert now.total("callboard_sessions_taken_over_total") == 2
    agent = figures(stage, "agent")
    assert agent.value("callboard_agent_relinks_total", level="re_register") == 1
    assert agent.value("callboard_agent_relinks_total", level="resume") == 0
    assert agent.value(failures, reason="identity_in_use") == 0


def test_an_idempotent_call_that_loses_every_attempt_is_told(stage):
    stage.start_control_plane(admin__port=0)
    stage.start_agent(sys.executable, "-c", DYING_SERVER)
    answer = stage.client().call("die", timeout=40)
    assert answer.failed
    now = figures(stage)
    assert now.value("callboard_call_retries_total") == 2
    assert now.value("callboard_call_retries_exhausted_total") == 1
    assert now.value("callboard_calls_ended_total", outcome="lost", reason="dcc_exited") == 1


# Its read-only tool ends the process.
DYING_SERVER = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, result = message["method"], {}
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"],
                  "capabilities": {"tools": {}}, "serverInfo": {"name": "dying", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "die", "inputSchema": {"type": "object"},
                             "annotations": {"readOnlyHint": True, "idempotentHint": True}}]}
    elif method == "tools/call":
        os._exit(3)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_a_failing_store_shows_and_so_does_its_recovery(stage, small_disk):  # noqa: F811
    stage.start_control_plane(admin__port=0)
    assert figures(stage).value("callboard_store_up") == 1
    stage.client("/mcp")
    assert figures(stage).value("callboard_store_commits_total") >= 1
    balloon = fill(small_disk)
    with pytest.raises(Refused):
        for _ in range(200):
            stage.client("/mcp")
    now = figures(stage)
    assert now.value("callboard_store_up") == 0
    assert now.value("callboard_store_failures_total") >= 1
    assert now.value("callboard_store_pending_records") > 0
    balloon.unlink()
    wait_for_figure(stage, 1, "callboard_store_up")
    wait_until(lambda: figures(stage).value("callboard_store_pending_records") == 0, 10,
               "all is durable again")


def test_docs_and_alerts_name_just_the_metrics_there_are(stage):
    stage.start_control_plane(admin__port=0)
    stage.start_agent(admin__port=0)
    bridge = stage.start_bridge(admin__port=0)
    client = stage.client(port=bridge.port)
    assert client.call("echo", {"text": "x"}).text == "x"
    there = {}
    for program in ("callboardd", "agent", "bridge"):
        there |= figures(stage, program).types
    assert figures(stage, "bridge").value("callboard_http_requests_total") == 3

    docs = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `((?:callboard|process)_\w+)` \| (\w+) \|", docs, re.MULTILINE)
    assert dict(rows) == there
    assert len(rows) == len(there), "a row is there twice"
    rules = (ROOT / "deploy" / "prometheus" / "callboard.rules.yml").read_text()
    used = set(re.findall(r"\b(?:callboard|process)_\w+", re.sub(r"#.*", "", rules)))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} <= set(there)


def test_alert_rules_are_sound_and_fire(tmp_path):
    """Checked and tried out by Prometheus' own promtool; alert_rules.yml says when which alert is raised."""
    need_full("promtool is fetched")
    promtool = subprocess.run([ROOT / "tools" / "install_promtool"], check=True, capture_output=True,
                              text=True).stdout.splitlines()[-1]
    shutil.copytree(ROOT / "deploy" / "prometheus", tmp_path, dirs_exist_ok=True)
    shutil.copy(Path(__file__).with_name("alert_rules.yml"), tmp_path)
    for command in (["check", "config", "prometheus.yml"], ["check", "rules", "callboard.rules.yml"],
                    ["test", "rules", "alert_rules.yml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"


# -- traces ----------------------------------------------------------------------------------------


def traced(client, tool="trace", arguments=None, meta=None, **headers):
    """What the backend has seen of a call with these headers."""
    client._headers = lambda: McpClient._headers(client) | headers
    answer = client.call(tool, arguments, meta=meta)
    assert not answer.failed, answer.text
    return json.loads(answer.result["content"][0]["text"])


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_trace_context_reaches_the_backend_unchanged(stage, transport):
    stage.start_control_plane(log__format="json")
    backend = [sys.executable, TRACED_SERVER]
    if transport == "http":
        server = stage.start([*backend, "--http", 0], "traced")
        server.wait_for("/mcp")
        backend = [server.output().strip()]
    stage.start_agent(*backend, name="traced", log__format="json")
    bridge = stage.start_bridge()
    sent = {"traceparent": PARENT, "tracestate": "vendor=1,other=a", "baggage": "show=alpha"}
    in_http = sent if transport == "http" else {}

    for port in (stage.port, bridge.port):
        client = stage.client("/mcp/traced", port=port)
        assert traced(client, **sent) == {"meta": sent, "http": in_http}
        assert traced(client) == {"meta": {}, "http": {}}
        # A traceparent that is none takes the tracestate with it; so does one of all zeros.
        for bad in ("00-1-2-01", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"ff-{TRACE}-00f067aa0ba902b7-01"):
            assert traced(client, traceparent=bad, tracestate="vendor=1") == {"meta": {}, "http": {}}
        # That of `_meta` is the client's own message, and is what an HTTP backend hears of without a header.
        own = {"traceparent": PARENT}
        seen = traced(client, meta=own)
        assert seen == {"meta": own, "http": own if transport == "http" else {}}

        facade = stage.client("/mcp", port=port)
        found = facade.call("search_tools", {"query": "trace"}).text
        slug = re.search(r"traced\.[0-9a-f]+\.trace", found).group()
        assert traced(facade, "call_tool", {"tool_slug": slug, "arguments": {}}, **sent) == {
            "meta": sent, "http": in_http}

    batch(stage, sent, in_http)
    for program in (stage.agent, stage.control_plane):
        program.terminate()
    lines = [json.loads(line) for line in stage.control_plane.output().splitlines()
             if not line.startswith("callboardd ready")]
    ended = [line for line in lines if line["event"] == "call_ended"]
    assert {line.get("trace") for line in ended} >= {TRACE, None}
    with_trace = next(line for line in ended if line.get("trace") == TRACE)
    assert with_trace["level"] == "info" and isinstance(with_trace["duration_ms"], int)
    assert {"time", "session", "call", "instance", "agent", "seat", "outcome"} <= set(with_trace)
    mine = [json.loads(line) for line in stage.agent.output().splitlines() if '"call_ended"' in line]
    same = next(line for line in mine if line["call"] == with_trace["call"])
    assert (same["trace"], same["session"], same["instance"]) == (
        TRACE, with_trace["session"], with_trace["instance"])


def batch(stage, sent, in_http):
    """Two calls in one JSON-RPC batch share the headers of their request."""
    connection = http.client.HTTPConnection("127.0.0.1", stage.port, timeout=10)
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

    def post(message):
        connection.request("POST", "/mcp/traced", json.dumps(message), headers)
        response = connection.getresponse()
        text = response.read()
        assert response.status in (200, 202), text
        headers.setdefault("Mcp-Session-Id", response.headers.get("Mcp-Session-Id") or "")
        return json.loads(text) if text else None

    post({"jsonrpc": "2.0", "id": 1, "method": "initialize",
          "params": {"protocolVersion": "2025-03-26", "capabilities": {},
                     "clientInfo": {"name": "batch", "version": "1"}}})
    post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    headers.update(sent)
    answers = post([{"jsonrpc": "2.0", "id": n, "method": "tools/call",
                     "params": {"name": "trace", "arguments": {}}} for n in (2, 3)])
    connection.close()
    assert len(answers) == 2
    for answer in answers:
        assert json.loads(answer["result"]["content"][0]["text"]) == {"meta": sent, "http": in_http}
