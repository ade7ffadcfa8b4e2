"""Bridges as programs of their own: official clients through one, one session through two, and bridges and control planes that die or freeze in mid-call."""

import http.client
import json
import os
import shutil
import signal
import socket
import threading
import time

import pytest

from mcp_http import McpClient, read_events
from stage import ROOT, wait_until
from supervisor import Supervisor
from test_clients import client_command, run_to_end, values  # noqa: F401  (a fixture)
from tcp_proxy import TcpProxy


@pytest.fixture
def behind(stage):
    """A stage whose clients have to go through bridges of their own."""
    stage.start_control_plane()
    stage.start_agent()
    return stage


def same_session(client, port):
    """The session of a client through another port."""
    other = McpClient(port, client.path)
    other.session = client.session
    return other


def open_stream(client, last_event_id=None):
    """(connection, response) of a GET on the session."""
    headers = client._headers() | {"Accept": "text/event-stream"}
    if last_event_id:
        headers["Last-Event-ID"] = last_event_id
    return client._open("GET", None, headers, 20)


def start_streamed_call(client, tool, arguments, number=None):
    """(request id, connection, response) of a tools/call whose answer is a stream."""
    number = number or client.next_id()
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call",
                       "params": {"name": tool, "arguments": arguments}})
    connection, response = client._open(
        "POST", body, client._headers() | {"Content-Type": "application/json"}, 30)
    assert response.headers["Content-Type"] == "text/event-stream"
    return number, connection, response


# ---- one bridge --------------------------------------------------------------------------------


def test_session_of_an_official_client_through_a_bridge_of_its_own(
        stage, client_command, fixture_command):  # noqa: F811
    stage.start_control_plane(budgets__connect="500ms", budgets__heartbeat="500ms",
                              budgets__link_read_idle="1500ms", budgets__quick_call="5s",
                              budgets__heavy_call="5s")
    stage.start_agent(*fixture_command, name="fixture", queue__silence_max="1s")
    bridge = stage.start_bridge()
    program = stage.start([*client_command, f"http://127.0.0.1:{bridge.port}/mcp/fixture", "all"],
                          "client")
    run_to_end(program)
    assert values(program, "connected")[0]["revision"] == "2025-11-25"
    assert values(program, "text") == ["This is a simple text response for testing."]
    assert values(program, "progress")[0][-1] == [100, 100, "Completed step 100 of 100"]
    assert 500 < values(program, "cancelled")[0]["ms"] < 1500
    assert values(program, "after") == ["This is a simple text response for testing."]
    assert values(program, "closed") == [True]


def test_a_bridge_serves_calls_bodies_and_big_parameters(behind):
    bridge = behind.start_bridge()
    client = behind.client(port=bridge.port)
    assert client.call("echo", {"text": "hello"}).text == "hello"
    text = client.call("big", {"bytes": 20_000_000}, timeout=50).text
    assert len(text) == 20_000_000
    assert text.startswith("000000000000000|000000000000001|")
    # Beyond gRPC's own limit of 4 MiB a message.
    long = "x" * 6_000_000
    assert client.call("echo", {"text": long}, timeout=30).text == long
    facade = behind.client("/mcp", bridge.port)
    assert {"search_tools", "call_tool"} <= {tool["name"] for tool in facade.tools()}
    assert "counting" in facade.call("list_instances").text


def test_readyz_of_a_bridge_follows_its_control_plane(behind):
    bridge = behind.start_bridge(bridge__control_plane_wait="300ms")
    wait_until(lambda: behind.get("/v1/readyz", bridge.port)[0] == 200, 5, "the bridge is ready")
    assert behind.get("/v1/readyz", bridge.port)[1]["ready_instance_count"] == 1
    assert behind.get("/health", bridge.port)[0] == 200
    behind.control_plane.kill()
    status, body = behind.get("/v1/readyz", bridge.port)
    assert (status, body["ok"]) == (503, False)
    assert f"127.0.0.1:{behind.grpc_port}" in body["checks"][0]["message"]
    assert behind.get("/health", bridge.port)[0] == 200, "the bridge itself is well"
    behind.restart_control_plane()
    wait_until(lambda: behind.get("/v1/readyz", bridge.port)[0] == 200, 10, "the bridge is ready again")


def test_requests_of_a_bridge_without_a_control_plane_are_told_when_to_come_back(stage):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        bridge = stage.start_bridge(control_plane=f"127.0.0.1:{nobody.getsockname()[1]}",
                                    bridge__control_plane_wait="500ms")
        started = time.monotonic()
        status, headers, body = McpClient(bridge.port).post(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize",
             "params": {"protocolVersion": "2025-11-25", "capabilities": {},
                        "clientInfo": {"name": "t", "version": "1"}}})
        assert 0.4 < time.monotonic() - started < 3
        assert status == 503
        assert int(headers["Retry-After"]) > 0
        error = json.loads(body)["error"]
        assert error["data"] == {"reason": "control_plane_unavailable", "certainty": "not_started"}
        assert "no control plane answers" in error["message"]
        assert bridge.terminate() == 0


def test_a_drained_bridge_finishes_its_calls(behind):
    bridge = behind.start_bridge()
    client = behind.client(port=bridge.port)
    call = client.start_call("count", {"id": "last", "ms": 1500})
    behind.wait_begun("last")
    bridge.signal(signal.SIGTERM)
    assert call.result(10).text == "counted last"
    assert bridge.process.wait(10) == 0


def test_a_drained_control_plane_finishes_the_calls_of_a_bridge_of_its_own(behind):
    bridge = behind.start_bridge()
    client = behind.client(port=bridge.port)
    headers = client._headers() | {"Accept": "application/json"}
    client._headers = lambda: headers  # an answer that cannot be resumed
    call = client.start_call("count", {"id": "plain", "ms": 2000}, timeout=30)
    behind.wait_begun("plain")
    assert behind.control_plane.terminate() == 0
    assert call.result(10).text == "counted plain"
    assert behind.begun("plain") == 1


def test_a_silent_call_within_its_budgets_is_not_ended_by_a_bridge_that_cannot_know_them(behind):
    bridge = behind.start_bridge(bridge__hard_wait="2s", bridge__envelope_after="1s")
    streamed, plain = behind.client(port=bridge.port), behind.client(port=bridge.port)
    headers = plain._headers() | {"Accept": "application/json"}
    plain._headers = lambda: headers
    calls = [client.start_call("count", {"id": name, "ms": 4000}, timeout=60)
             for client, name in ((streamed, "streamed"), (plain, "plain"))]
    assert [call.result(60).text for call in calls] == ["counted streamed", "counted plain"]


def test_a_second_control_plane_serves_when_the_first_is_away(behind):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        bridge = behind.start_bridge(
            control_plane=f"127.0.0.1:{nobody.getsockname()[1]},127.0.0.1:{behind.grpc_port}")
        assert behind.client(port=bridge.port).call("echo", {"text": "second"}).text == "second"


# ---- two bridges, one session ------------------------------------------------------------------


def test_any_bridge_serves_any_session(behind):
    first, second = behind.start_bridge("bridge-a"), behind.start_bridge("bridge-b")
    client = behind.client(port=first.port)
    other = same_session(client, second.port)

    # POST by the other one.
    assert other.call("echo", {"text": "b"}).text == "b"

    # A stream begun here is resumed there, without loss; the first bridge's connection ends.
    number, connection, response = start_streamed_call(
        client, "count", {"id": "moved", "ms": 1500})
    events = read_events(response)
    last = next(event for event in events if event.id).id
    resumed, response_b = open_stream(other, last)
    message = next(json.loads(event.data) for event in read_events(response_b) if event.data)
    assert message["id"] == number
    assert message["result"]["content"][0]["text"] == "counted moved"
    assert [event for event in events if event.data] == [], "told once"
    connection.close()
    resumed.close()
    assert behind.begun("moved") == 1

    # A cancel by the other one reaches the call.
    number, connection, response = start_streamed_call(
        client, "count", {"id": "unwanted", "ms": 3000})
    behind.wait_begun("unwanted")
    assert other.notify("notifications/cancelled", {"requestId": number})[0] == 202
    assert [event for event in read_events(response) if event.data] == [], "no response after a cancel"
    connection.close()
    wait_until(lambda: ("cancelled", "unwanted") in [(e, c) for e, c, _ in behind.events()], 5,
               "the cancel is delivered")

    # DELETE by the other one: the first bridge tells 404 soon, though it has cached the session.
    assert other.delete() == 200
    assert client.post({"jsonrpc": "2.0", "id": 90, "method": "tools/call",
                        "params": {"name": "echo", "arguments": {}}})[0] == 404
    assert client.post({"jsonrpc": "2.0", "id": 91, "method": "ping"})[0] == 404


def test_a_cached_session_that_was_ended_elsewhere_is_not_served_for_long(behind):
    first, second = behind.start_bridge("bridge-a"), behind.start_bridge("bridge-b")
    client = behind.client("/mcp", first.port)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert client.post(ping)[0] == 200
    assert same_session(client, second.port).delete() == 200
    # What needs no control plane is answered from the cache for 5 s at most.
    wait_until(lambda: client.post(ping)[0] == 404, 6, "the bridge notices", step=0.2)


def test_a_question_to_the_client_is_answered_through_the_other_bridge(stage, fixture_command):
    stage.start_control_plane()
    stage.start_agent(*fixture_command, name="fixture")
    first, second = stage.start_bridge("bridge-a"), stage.start_bridge("bridge-b")
    client = McpClient(first.port, "/mcp/fixture")
    client.request("initialize", {
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "t", "version": "1"}})
    number, connection, response = start_streamed_call(
        client, "test_elicitation", {"message": "which layer?"})
    events = (json.loads(event.data) for event in read_events(response) if event.data)
    asked = next(message for message in events if message.get("method") == "elicitation/create")
    assert asked["params"]["message"] == "which layer?"
    other = same_session(client, second.port)
    status, _, _ = other.post({"jsonrpc": "2.0", "id": asked["id"],
                               "result": {"action": "accept", "content": {"response": "layer7"}}})
    assert status == 202
    answer = next(message for message in events if message.get("id") == number)
    assert 'action=accept, content={"response":"layer7"}' in answer["result"]["content"][0]["text"]
    connection.close()


# ---- faults ------------------------------------------------------------------------------------


def test_sigkill_of_the_bridge_in_mid_call_is_resumed_on_the_same_port(behind):
    port = behind.start_bridge("first").port
    behind._programs[-1].end()
    supervised = Supervisor(behind, lambda: behind.start_bridge("bridge", port=port))
    client = behind.client(port=port)
    call = client.start_call("count", {"id": "kept", "ms": 2500, "bytes": 200_000}, timeout=30)
    behind.wait_begun("kept")
    time.sleep(0.5)  # the stream is open since 250 ms
    supervised.kill()
    answer = call.result(30)
    assert len(answer.text) == 200_000
    assert answer.resumes >= 1
    assert behind.begun("kept") == 1
    assert client.call("echo", {"text": "same session"}).text == "same session"
    supervised.wait_restarted(2)


def test_sigkill_of_the_bridge_under_an_official_client(behind, client_command):  # noqa: F811
    port = behind.start_bridge("first").port
    behind._programs[-1].end()
    supervised = Supervisor(behind, lambda: behind.start_bridge("bridge", port=port))
    program = behind.start([*client_command, f"http://127.0.0.1:{port}/mcp/counting", "call",
                            "progress", '{"steps": 12, "ms": 300}'], "client")
    wait_until(lambda: len(values(program, "progress")) >= 3, 20, "three steps are told")
    supervised.kill()
    run_to_end(program)
    # In order, without a hole and without a repetition.
    assert values(program, "progress") == list(range(1, 13))
    assert values(program, "result") == ["12 steps"]


def test_sigkill_of_the_bridge_is_resumed_through_the_other_one(behind):
    first, second = behind.start_bridge("bridge-a"), behind.start_bridge("bridge-b")
    client = behind.client(port=first.port)
    number, connection, response = start_streamed_call(client, "count", {"id": "moved", "ms": 1500})
    last = next(event for event in read_events(response) if event.id).id
    first.kill()
    resumed, response = open_stream(same_session(client, second.port), last)
    message = next(json.loads(event.data) for event in read_events(response) if event.data)
    assert (message["id"], message["result"]["content"][0]["text"]) == (number, "counted moved")
    resumed.close()
    connection.close()
    assert behind.begun("moved") == 1


def test_a_frozen_control_plane_behind_a_lone_bridge_leaves_nobody_waiting(stage):
    # The call may take 6 s in all; a bridge of its own waits 10 s longer for a control plane to say so.
    stage.start_control_plane(budgets__connect="500ms", budgets__heartbeat="500ms",
                              budgets__link_read_idle="1500ms", budgets__quick_call="3s",
                              budgets__heavy_call="3s", budgets__queue="2s",
                              budgets__upper_wait_margin="1s")
    stage.start_agent()
    bridge = stage.start_bridge(bridge__hard_wait="6s", bridge__unary_wait="3s",
                                bridge__control_plane_wait="2s")
    client = stage.client(port=bridge.port)
    answers = {}

    def streamed():
        answers["streamed"] = client.call("count", {"id": "frozen", "ms": 30_000}, timeout=40)

    def plain():
        headers = client._headers() | {"Content-Type": "application/json", "Accept": "application/json"}
        body = json.dumps({"jsonrpc": "2.0", "id": 77, "method": "tools/call",
                           "params": {"name": "count", "arguments": {"id": "plain", "ms": 30_000}}})
        connection, response = client._open("POST", body, headers, 40)
        answers["plain"] = json.loads(response.read())
        connection.close()

    threads = [threading.Thread(target=target, daemon=True) for target in (streamed, plain)]
    threads[0].start()
    stage.wait_begun("frozen")
    threads[1].start()
    time.sleep(0.6)
    stage.control_plane.signal(signal.SIGSTOP)
    frozen = time.monotonic()
    unary = client.post({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}, timeout=20)
    assert time.monotonic() - frozen < 5
    assert json.loads(unary[2])["error"]["data"]["reason"] == "hard_timer"
    for thread in threads:
        thread.join(20)
    took = time.monotonic() - frozen
    assert took < 16 + 4, "both are answered within the hard timer, by this bridge alone"
    for answer in (answers["streamed"].message, answers["plain"]):
        data = answer["error"]["data"]
        assert data["certainty"] == "unknown", answer
        assert data["reason"] in ("hard_timer", "outcome_unknown")
        diagnostics = data["diagnostics"]
        assert diagnostics["session"] == client.session
        assert diagnostics["call_age_ms"] > 500
        assert diagnostics["last_event_age_ms"] > 1000
        assert diagnostics["call_start"].startswith("20")
        assert diagnostics["last_state"]
    stage.control_plane.signal(signal.SIGCONT)
    wait_until(lambda: stage.get("/v1/readyz", bridge.port)[0] == 200, 15, "all is well again")
    assert "count" in {tool["name"] for tool in client.tools()}


def test_streams_of_a_bridge_outlive_a_cut_to_the_control_plane(stage):
    stage.start_control_plane()
    stage.start_agent()
    cable = TcpProxy(stage.grpc_port)
    stage.on_close(cable.close)
    bridge = stage.start_bridge(control_plane=f"127.0.0.1:{cable.port}")
    client = stage.client(port=bridge.port)
    listening, response = open_stream(client)
    call = client.start_call("progress", {"steps": 12, "ms": 250}, timeout=30, progress=True)
    time.sleep(1.2)
    assert cable.cut() >= 1
    answer = call.result(30)
    assert answer.text == "12 steps"
    assert answer.progress == list(range(1, 13))
    assert answer.resumes == 0, "the client's own connection was never cut"
    # The session's GET stream is still the same one, too.
    listening.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        while response.readline():
            pass
    listening.close()


def test_a_restarted_control_plane_that_forgot_its_calls_ends_them_as_unknown(behind):
    bridge = behind.start_bridge()
    client = behind.client(port=bridge.port)
    call = client.start_call("count", {"id": "forgotten", "ms": 2000}, timeout=30)
    behind.wait_begun("forgotten")
    time.sleep(0.5)
    behind.control_plane.kill()
    shutil.rmtree(behind.folder / "callboardd")
    behind.restart_control_plane()
    answer = call.result(20)
    data = answer.error["data"]
    assert (data["reason"], data["certainty"]) == ("outcome_unknown", "unknown")
    assert client.post({"jsonrpc": "2.0", "id": 9, "method": "ping"})[0] == 404
    assert behind.begun("forgotten") == 1


@pytest.mark.parametrize("name", ["callboardd", "agent", "bridge"])
def test_the_watchdog_lets_stopped_programs_live(stage, name):
    stage.start_control_plane(runtime__watchdog="1s")
    stage.start_agent(runtime__watchdog="1s")
    bridge = stage.start_bridge(runtime__watchdog="1s")
    program = {"callboardd": stage.control_plane, "agent": stage.agent, "bridge": bridge}[name]
    os.kill(program.pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(program.pid, signal.SIGCONT)
    time.sleep(1)
    assert program.running
    assert "loop_hung" not in program.output()


def test_bridge_refuses_what_it_cannot_use(stage):
    def said(*options):
        program = stage.start([ROOT / "build/release/bin/callboard-bridge", *options], "bridge")
        assert program.process.wait(10) == 2
        return program.output()

    assert "--control-plane nowhere: expected HOST:PORT" in said("--control-plane", "nowhere")
    assert "bridge.hard_wait" in said("--set", "bridge.hard_wait=soon")
    assert "budgets.queue" in said("--set", "budgets.queue=1m")


# ---- states of a call --------------------------------------------------------------------------


def states_of(response, into):
    """All events until the stream ends or is cut; states go into `into` as they come."""
    events = []
    try:
        for event in read_events(response):
            events.append(event)
            if event.type == "x-agent-status":
                into.append((json.loads(event.data)["state"], time.monotonic()))
    except (OSError, http.client.HTTPException):
        pass
    return events


def follow(response):
    states, events = [], []
    reader = threading.Thread(target=lambda: events.extend(states_of(response, states)), daemon=True)
    reader.start()
    return states, events, reader


@pytest.mark.parametrize("killed", ["bridge", "control plane", "control plane behind a bridge"])
def test_a_client_that_asked_for_states_hears_them_again_after_a_kill(behind, killed):
    bridge = behind.start_bridge() if killed != "control plane" else None
    client = behind.client(port=bridge.port if bridge else behind.port)
    plain = client._headers
    client._headers = lambda: plain() | {"x-agent-status": "events"}
    behind.client().start_call("count", {"id": "before", "ms": 5000}, timeout=30)
    behind.wait_begun("before")
    number, connection, response = start_streamed_call(client, "count", {"id": "mine", "ms": 2500})
    assert response.headers["x-agent-status"] == "queued"
    states, events, reader = follow(response)
    wait_until(lambda: states, 5, "the first state")
    assert states[0][0] == "queued"

    if killed == "bridge":
        bridge.kill()
        reader.join(10)
        behind.start_bridge(port=bridge.port)
    else:
        behind.control_plane.kill()
        behind.restart_control_plane()
    resumed = killed != "control plane behind a bridge"
    heard = len(states)
    if resumed:
        reader.join(10)
        connection.close()
        last = next(event for event in reversed(events) if event.id).id
        began = time.monotonic()
        connection, response = open_stream(client, last)
        assert response.status == 200
        heard = 0
        states, events, reader = follow(response)
        wait_until(lambda: states, 3, "the present state of the call")
        assert states[0][0] in ("queued", "connecting") and states[0][1] - began < 2
    wait_until(lambda: states[-1][0] == "waiting", 20, "the call is seen to run")
    reader.join(20)
    connection.close()
    told = [state for state, _ in states[heard:]]
    assert told[-2:] == ["waiting", "success"], told
    pauses = [after - before for (_, before), (_, after) in zip(states[heard:-1], states[heard + 1:-1])]
    assert all(pause > 0.7 for pause in pauses), "at most one a second but for the last"
    answers = [json.loads(event.data) for event in events if event.data and event.type in ("", "message")]
    assert [answer["id"] for answer in answers] == [number]
    assert answers[0]["result"]["content"][0]["text"] == "counted mine"
    assert events[-1].type in ("", "message") and events[-2].type == "x-agent-status"


def test_a_resumed_stream_says_nothing_of_states_to_those_who_did_not_ask(behind):
    client = behind.client()
    _, connection, response = start_streamed_call(client, "count", {"id": "mine", "ms": 2500})
    last = next(event for event in read_events(response) if event.id).id
    connection.close()
    connection, response = open_stream(client, last)
    assert b"x-agent-status" not in response.read()
    assert response.headers["x-agent-status"] is None
    connection.close()
