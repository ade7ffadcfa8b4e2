"""Both eras of MCP on one URL, with real clients: a client of 2026-07-28 with backends of both kinds, hanging up, listening."""

import http.client
import json
import os
import signal
import stat
import sys

import pytest

from stage import SHARED, wait_until
from test_client_apps import CLIENTS, apps, facts, run  # noqa: F401

NAMESPACE = "io.modelcontextprotocol/"
MODERN = "2026-07-28"


@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_client_of_the_new_era_is_asked_by_a_backend_of_the_old_one(stage, apps, kind):  # noqa: F811
    stage.start_control_plane()
    start_fixture(stage, kind, "--legacy-only")
    told = facts(run(stage, [apps[0], CLIENTS / "modern_session.py",
                             f"http://127.0.0.1:{stage.port}/mcp/fixture"]))
    assert told["revision"] == MODERN
    assert {"test_simple_text", "test_elicitation"} <= set(told["tools"])
    assert told["text"] == "This is a simple text response for testing."
    assert [step[0] for step in told["progress"]] == [0, 50, 100]
    assert told["resource"] == "This is the content of the static text resource."
    assert told["prompt"] == "This is a simple prompt for testing."
    assert told["asked"] == "Colour?"
    assert told["elicited"] == 'User response: action=accept, content={"response":"blue"}'
    assert told["sampled"] == "Capital?"
    assert told["answered"] == "LLM response: Paris"
    # The key by which parked calls are resumed is nobody else's.
    key = os.stat(stage.folder / "callboardd" / "request_state_key")
    assert stat.S_IMODE(key.st_mode) == 0o600


def start_fixture(stage, kind, *options):
    """An agent with the conformance fixture on stdio or behind HTTP."""
    fixture = SHARED / "conformance" / "backend"
    if kind == "stdio":
        return stage.start_agent("node", str(fixture / "fixture.mjs"), *options, name="fixture")
    server = stage.start(["node", fixture / "http.mjs", "--port", "0", *options], "fixture")
    server.wait_for("/mcp")
    url = next(word for word in server.output().split() if word.startswith("http://"))
    return stage.start_agent(url, name="fixture")


@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_client_of_the_old_era_is_asked_by_a_backend_of_the_new_one(stage, kind):
    stage.start_control_plane()
    start_fixture(stage, kind, "--modern-only")
    told = facts(run(stage, [sys.executable, CLIENTS / "asked_session.py",
                             f"http://127.0.0.1:{stage.port}/mcp/fixture"]))
    assert told["revision"] == "2025-11-25"
    assert "test_input_required_result_multi_round" in told["tools"]
    assert told["simple_text"] == "This is a simple text response for testing."
    assert told["input_required_result_elicitation"] == "Hello, Ada!"
    assert told["input_required_result_multiple_inputs"] == "Name: Ada; Greeting: Paris; Roots: 1"
    assert told["input_required_result_multi_round"] == (
        "Multi-round complete for Ada who likes blue")
    assert told["input_required_result_list_roots"] == "Found 1 root(s)"
    assert told["resource"] == "This is the content of the static text resource."


def post(port, method, params, path="/mcp/counting", name=None, number=1, timeout=20):
    """(connection, response) of a modern request."""
    meta = {NAMESPACE + "protocolVersion": MODERN, NAMESPACE + "clientCapabilities": {},
            **params.pop("_meta", {})}
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
               "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if name:
        headers["Mcp-Name"] = name
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request("POST", path, json.dumps(body), headers)
    return connection, connection.getresponse()


def messages(response):
    """The messages of an event stream, as they come."""
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


@pytest.mark.parametrize("way", ["callboardd", "callboard-bridge"])
def test_hanging_up_cancels_at_the_seat(stage, way, fixture_command):
    log = stage.folder / "wire.log"
    stage.start_control_plane()
    stage.start_agent(*fixture_command, "--legacy-only", "--log", log, name="fixture")
    port = stage.port if way == "callboardd" else stage.start_bridge().port
    connection, response = post(port, "tools/call",
                                {"name": "slow_compute", "arguments": {"seconds": 30}},
                                "/mcp/fixture", "slow_compute")
    assert response.getheader("Content-Type") == "text/event-stream"
    response.close()
    connection.close()
    wait_until(lambda: "notifications/cancelled" in log.read_text(), 20, "the seat is told")
    # The envelope has ended at the bridge.
    assert NAMESPACE + "protocolVersion" not in [
        line for line in log.read_text().splitlines() if "slow_compute" in line][0]


def test_listening_hears_of_updates_and_of_a_restart(stage, fixture_command):
    stage.start_control_plane()
    stage.start_agent(*fixture_command, name="fixture")
    wish = {"resourceSubscriptions": ["test://watched-resource"], "promptsListChanged": True}
    _, response = post(stage.port, "subscriptions/listen", {"notifications": wish}, "/mcp/fixture",
                       number="listen-1")
    heard = messages(response)
    first = next(heard)
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"] == {"_meta": {NAMESPACE + "subscriptionId": "listen-1"},
                               "notifications": {"promptsListChanged": True,
                                                 "resourceSubscriptions": ["test://watched-resource"]}}

    def hear(method):
        message = next(heard)
        while message["method"] != method:
            message = next(heard)
        assert message["params"]["_meta"][NAMESPACE + "subscriptionId"] == "listen-1"
        return message["params"]

    child = stage.backend_pid("fixture.mjs")
    # The first is told when the seat has subscribed.
    assert hear("notifications/resources/updated")["uri"] == "test://watched-resource"
    os.kill(child, signal.SIGUSR1)
    assert hear("notifications/resources/updated")["uri"] == "test://watched-resource"
    os.kill(child, signal.SIGKILL)
    assert hear("notifications/resources/updated")["uri"] == "test://watched-resource"
    stage.control_plane.process.send_signal(signal.SIGTERM)
    last = list(heard)[-1]
    assert last == {"jsonrpc": "2.0", "id": "listen-1", "result": {
        "resultType": "complete", "_meta": {NAMESPACE + "subscriptionId": "listen-1"}}}


def test_listening_is_acknowledged_for_what_the_backend_can_tell(stage):
    stage.start_control_plane()
    stage.start_agent()
    wish = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True,
            "resourceSubscriptions": ["test://watched-resource"]}
    _, response = post(stage.port, "subscriptions/listen", {"notifications": wish})
    assert next(messages(response))["params"]["notifications"] == {"toolsListChanged": True}


def test_levels_and_subscriptions_of_an_older_client_take_effect_at_a_new_backend(stage, fixture_command):
    log = stage.folder / "wire.log"
    stage.start_control_plane()
    stage.start_agent(*fixture_command, "--modern-only", "--log", log, name="fixture")
    client = stage.client("/mcp/fixture")
    heard = []

    def hear(event):
        if event.type in ("", "message") and event.data:
            heard.append(json.loads(event.data))

    client.listen(hear, timeout=120)

    def levels():
        return [note["params"]["level"] for note in client.call("test_tool_with_logging").notifications
                if note["method"] == "notifications/message"]

    assert client.request("logging/setLevel", {"level": "error"}).result == {}
    assert levels() == []
    assert client.request("logging/setLevel", {"level": "info"}).result == {}
    assert levels() == ["info"] * 3

    def said(method):
        """What the backend has said by itself of that kind."""
        lines = [json.loads(line[2:]) for line in log.read_text().splitlines() if line[0] == ">"]
        return [message["params"] for message in lines if message.get("method") == method]

    def listened_to(*uris):
        last = said("notifications/subscriptions/acknowledged")[-1]["notifications"]
        return sorted(last.get("resourceSubscriptions", [])) == sorted(uris)

    def change():
        """Changes the watched resource and then the prompts, and waits until that is heard."""
        before = methods().count(prompts)
        os.kill(stage.backend_pid("fixture.mjs"), signal.SIGUSR1)
        # Behind whatever the backend says of the resource.
        client.call("test_trigger_prompt_change")
        wait_until(lambda: methods().count(prompts) > before, 20, "the client hears of the prompts")

    def methods():
        return [message["method"] for message in heard]

    watched, other = "test://watched-resource", "test://static-text"
    updated, prompts = "notifications/resources/updated", "notifications/prompts/list_changed"
    for uri in (watched, other):
        assert client.request("resources/subscribe", {"uri": uri}).result == {}
    wait_until(lambda: listened_to(watched, other), 20, "the agent listens to both")
    told = len(said(prompts))
    change()
    wait_until(lambda: updated in methods(), 20, "the client hears of the resource")
    assert [message["params"] for message in heard if message["method"] == updated] == [{"uri": watched}]
    assert len(said(updated)) == 1, "what was listened to before is over"
    assert len(said(prompts)) == told + 1
    assert client.request("resources/unsubscribe", {"uri": watched}).result == {}
    wait_until(lambda: listened_to(other), 20, "the agent listens to one")
    change()
    assert methods().count(updated) == 1
    assert set(methods()) == {updated, prompts}, "what the agent is told of its listening stays there"
    missing = client.request("resources/read", {"uri": "test://nowhere"})
    assert missing.error["code"] == -32002


def result_of(response):
    """The result of a call, streamed or not."""
    if response.getheader("Content-Type") == "application/json":
        return json.loads(response.read())["result"]
    return [message for message in messages(response) if "id" in message][-1]["result"]


def test_call_that_asks_survives_a_kill_of_the_control_plane(stage, fixture_command):
    log = stage.folder / "wire.log"
    stage.start_control_plane()
    stage.start_agent(*fixture_command, "--legacy-only", "--log", log, name="fixture")

    def call(more):
        meta = {NAMESPACE + "clientCapabilities": {"elicitation": {}}}
        params = {"name": "test_elicitation", "arguments": {"message": "Colour?"}, "_meta": meta, **more}
        return result_of(post(stage.port, "tools/call", params, "/mcp/fixture", "test_elicitation")[1])

    asked = call({})
    assert asked["resultType"] == "input_required"
    (key, request), = asked["inputRequests"].items()
    assert request["params"]["message"] == "Colour?"
    # What is stored now is stored behind it.
    stage.client("/mcp/fixture")
    stage.control_plane.kill()
    stage.restart_control_plane()
    stage.wait_for_seats(1)
    answers = {"inputResponses": {key: {"action": "accept", "content": {"response": "blue"}}},
               "requestState": asked["requestState"]}
    told = call(answers)
    assert told["content"][0]["text"] == (
        'User response: action=accept, content={"response":"blue"}')
    calls = [line for line in log.read_text().splitlines()
             if "tools/call" in line and "test_elicitation" in line]
    assert len(calls) == 1, "it has run once"
    assert call(answers)["content"] == told["content"], "who asks again is told again"


def test_selected_tools_in_the_new_era(stage):
    stage.start_control_plane()
    stage.start_agent()
    path = "/mcp?tools=counting"
    _, response = post(stage.port, "server/discover", {}, path)
    capabilities = result_of(response)["capabilities"]
    assert capabilities.pop("extensions") == {"io.modelcontextprotocol/tasks": {}}
    assert capabilities == {"tools": {"listChanged": True}}
    _, response = post(stage.port, "tools/list", {}, path)
    names = [tool["name"] for tool in result_of(response)["tools"]]
    echo = next(name for name in names if name.endswith("__echo"))
    _, response = post(stage.port, "tools/call", {"name": echo, "arguments": {"text": "hello"}}, path, echo)
    result = result_of(response)
    assert result["resultType"] == "complete"
    assert "hello" in result["content"][0]["text"]
    _, response = post(stage.port, "subscriptions/listen",
                       {"notifications": {"toolsListChanged": True}}, path, number="l")
    heard = messages(response)
    assert next(heard)["params"]["notifications"] == {"toolsListChanged": True}
    stage.agent.terminate()
    stage.restart_agent()
    stage.control_plane.process.send_signal(signal.SIGTERM)
    assert list(heard)[-1]["result"]["resultType"] == "complete"


def test_facade_serves_the_new_era(stage):
    stage.start_control_plane()
    stage.start_agent()
    _, response = post(stage.port, "tools/call", {"name": "list_instances", "arguments": {}}, "/mcp",
                       "list_instances")
    result = json.loads(response.read())["result"]
    assert result["resultType"] == "complete"
    assert result["structuredContent"]["instances"][0]["instance"] == "counting"
    _, response = post(stage.port, "server/discover", {}, "/mcp")
    assert json.loads(response.read())["result"]["supportedVersions"][0] == MODERN
