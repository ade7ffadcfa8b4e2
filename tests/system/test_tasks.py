"""The tasks extension of MCP 2026-07-28: long calls that survive their connection, and the control plane."""

import http.client
import json
import sys
from pathlib import Path

import pytest

from mcp_http import read_events
from stage import wait_until

NAMESPACE = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
TASKS = NAMESPACE + "tasks"
ASKING_SERVER = Path(__file__).parent / "asking_server.py"


def ask(port, path, method, params, named=None, declares=True, timeout=30):
    """(status, response) of one request without a session."""
    meta = {NAMESPACE + "clientCapabilities": {"extensions": {TASKS: {}}} if declares else {}}
    meta |= params.pop("_meta", {})
    meta[NAMESPACE + "protocolVersion"] = MODERN
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
               "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if named:
        headers["Mcp-Name"] = named
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
        if response.headers["Content-Type"].startswith("text/event-stream"):
            # The last event is the answer.
            text = [line for line in text.splitlines() if line.startswith("data: ")][-1][6:]
        return response.status, json.loads(text)
    finally:
        connection.close()


def call(port, tool, arguments, path="/mcp/counting", **more):
    status, response = ask(port, path, "tools/call", {"name": tool, "arguments": arguments} | more,
                           named=tool)
    assert status == 200, response
    return response["result"]


def task(port, method, task_id, path="/mcp/counting"):
    status, response = ask(port, path, method, {"taskId": task_id}, named=task_id)
    assert status == 200, response
    return response


def ended(port, task_id, path="/mcp/counting", seconds=30):
    """What tasks/get says once the task is over."""
    def found():
        result = task(port, "tasks/get", task_id, path)["result"]
        return result if result["status"] not in ("working", "input_required") else None

    return wait_until(found, seconds, f"{task_id} ends", step=0.1)


def start(stage, **settings):
    settings = {"bridge__modern": "true", "bridge__task_after": "500ms"} | settings
    stage.start_control_plane(**settings)
    stage.start_agent()


def test_task_outlives_a_kill_of_the_control_plane_between_create_and_get(stage):
    start(stage)
    gate = stage.folder / "gate"
    made = call(stage.port, "count", {"id": "a", "gate": str(gate)})
    assert (made["resultType"], made["status"]) == ("task", "working")
    assert made["taskId"].startswith("callboard-")
    assert made["pollIntervalMs"] == 1000 and made["ttlMs"] == 24 * 3600 * 1000
    stage.control_plane.kill()  # nothing but the store has seen the answer
    stage.restart_control_plane()
    stage.wait_for_seats(1)
    now = task(stage.port, "tasks/get", made["taskId"])["result"]
    assert (now["status"], now["createdAt"]) == ("working", made["createdAt"])
    gate.touch()
    over = ended(stage.port, made["taskId"])
    assert over["status"] == "completed"
    assert over["result"]["content"][0]["text"] == "counted a"
    assert over["result"]["resultType"] == "complete"
    assert over["lastUpdatedAt"] > over["createdAt"]
    assert stage.begun("a") == 1
    # Nor does its result go with the next one.
    stage.control_plane.kill()
    stage.restart_control_plane()
    again = ended(stage.port, made["taskId"])
    assert again == over


def test_short_calls_and_clients_that_watch_get_the_result(stage):
    start(stage)
    assert call(stage.port, "count", {"id": "a"})["content"][0]["text"] == "counted a"
    watched = call(stage.port, "count", {"id": "b", "ms": 1500}, _meta={"progressToken": "p"})
    assert watched["content"][0]["text"] == "counted b"
    status, response = ask(stage.port, "/mcp/counting", "tools/call",
                           {"name": "count", "arguments": {"id": "c", "ms": 1500}}, named="count",
                           declares=False)
    assert status == 200
    assert response["result"]["content"][0]["text"] == "counted c"


def test_task_on_the_facade_is_asked_for_on_any_path_and_bridge(stage):
    start(stage)
    other = stage.start_bridge(bridge__modern="true")
    hits = call(stage.port, "search_tools", {"query": "count"}, path="/mcp")
    slug = next(hit["slug"] for hit in hits["structuredContent"]["hits"]
                if hit["slug"].endswith(".count"))
    gate = stage.folder / "gate"
    made = call(stage.port, "call_tool",
                {"tool_slug": slug, "arguments": {"id": "a", "gate": str(gate)}}, path="/mcp")
    assert made["resultType"] == "task"
    gate.touch()
    for port, path in ((stage.port, "/mcp"), (other.port, "/mcp"), (other.port, "/mcp/counting")):
        over = ended(port, made["taskId"], path)
        assert over["result"]["content"][0]["text"] == "counted a"


def test_bridge_of_its_own_tells_a_task_when_the_control_plane_knows_it(stage):
    start(stage)
    bridge = stage.start_bridge(bridge__modern="true", bridge__task_after="500ms")
    gate = stage.folder / "gate"
    made = call(bridge.port, "count", {"id": "a", "gate": str(gate)})
    assert made["resultType"] == "task"
    stage.control_plane.kill()
    stage.restart_control_plane()
    stage.wait_for_seats(1)
    gate.touch()
    assert ended(stage.port, made["taskId"])["result"]["content"][0]["text"] == "counted a"
    assert stage.begun("a") == 1


def test_cancelled_task_that_waits_never_runs(stage):
    start(stage)
    gate = stage.folder / "gate"
    first = call(stage.port, "count", {"id": "one", "gate": str(gate)})
    stage.wait_begun("one")
    queued = call(stage.port, "count", {"id": "two"})
    assert queued["resultType"] == "task"
    assert task(stage.port, "tasks/cancel", queued["taskId"])["result"] == {
        "resultType": "complete", "_meta": {NAMESPACE + "serverInfo": {
            "name": "callboard", "version": task_version(stage)}}}
    assert ended(stage.port, queued["taskId"])["status"] == "cancelled"
    gate.touch()
    assert ended(stage.port, first["taskId"])["status"] == "completed"
    assert stage.begun("two") == 0


def task_version(stage):
    _, response = ask(stage.port, "/mcp", "server/discover", {})
    return response["result"]["_meta"][NAMESPACE + "serverInfo"]["version"]


def test_errors_of_the_extension(stage):
    start(stage)
    unknown = "callboard-" + "0" * 32
    assert task(stage.port, "tasks/get", unknown)["error"]["code"] == -32602
    assert task(stage.port, "tasks/get", "else")["error"]["code"] == -32602
    status, response = ask(stage.port, "/mcp", "tasks/get", {"taskId": unknown}, named=unknown,
                           declares=False)
    assert (status, response["error"]["code"]) == (400, -32021)
    assert response["error"]["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
    for method in ("tasks/list", "tasks/result"):
        status, response = ask(stage.port, "/mcp", method, {"taskId": unknown})
        assert (status, response["error"]["code"]) == (404, -32601), method


def listen(stage, port, task_id, path="/mcp"):
    """What a listener is told of that task: the params of one notification after the other."""
    body = {"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": {
        "notifications": {"taskIds": [task_id]},
        "_meta": {NAMESPACE + "protocolVersion": MODERN,
                  NAMESPACE + "clientCapabilities": {"extensions": {TASKS: {}}}}}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=40)
    stage.on_close(connection.close)
    connection.request("POST", path, json.dumps(body), {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"})
    events = read_events(connection.getresponse())
    first = json.loads(next(events).data)
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["notifications"] == {"taskIds": [task_id]}

    def told():
        for event in events:
            message = json.loads(event.data)
            assert message["method"] == "notifications/tasks"
            assert message["params"]["_meta"][NAMESPACE + "subscriptionId"] == 7
            assert message["params"]["taskId"] == task_id
            yield message["params"]

    return told()


def test_listener_is_told_how_its_task_ends(stage):
    start(stage)
    gate = stage.folder / "gate"
    made = call(stage.port, "count", {"id": "a", "gate": str(gate)})
    told = listen(stage, stage.port, made["taskId"])
    gate.touch()
    end = next(told)
    assert end["status"] == "completed"
    assert end["result"]["content"][0]["text"] == "counted a"


def start_asking(stage, era):
    """A task of a backend that asks its user once there is the file; (task id, file)."""
    stage.start_control_plane(bridge__modern="true", bridge__task_after="500ms")
    stage.start_agent(sys.executable, ASKING_SERVER, "--file", stage.runs, "--era", era,
                      name="asking")
    gate = stage.folder / "gate"
    capabilities = {"extensions": {TASKS: {}}, "elicitation": {}}
    made = call(stage.port, "confirm", {"id": "a", "gate": str(gate)}, path="/mcp/asking",
                _meta={NAMESPACE + "clientCapabilities": capabilities})
    assert (made["resultType"], made["status"]) == ("task", "working")
    return made["taskId"], gate


def wait_asked(port, task_id, path="/mcp/asking"):
    """What the task asks, by its keys."""
    def asked():
        result = task(port, "tasks/get", task_id, path)["result"]
        return result.get("inputRequests") if result["status"] == "input_required" else None

    return wait_until(asked, 30, f"{task_id} asks", step=0.1)


def update(port, task_id, responses, path="/mcp/asking"):
    status, response = ask(port, path, "tasks/update",
                           {"taskId": task_id, "inputResponses": responses}, named=task_id)
    assert status == 200, response
    return response["result"]


def accept(asked, colour):
    return {key: {"action": "accept", "content": {"colour": colour}} for key in asked}


@pytest.mark.parametrize("era", ["old", "new"])
def test_task_that_asks_is_answered_on_any_bridge_and_after_a_kill(stage, era):
    task_id, gate = start_asking(stage, era)
    other = stage.start_bridge(bridge__modern="true")
    told = listen(stage, other.port, task_id)
    gate.touch()
    asked = wait_asked(other.port, task_id)
    (key, request), = asked.items()
    assert request["method"] == "elicitation/create"
    assert request["params"]["message"] == "Which colour?"
    notice = next(told)
    assert (notice["status"], notice["inputRequests"]) == ("input_required", asked)

    stage.control_plane.kill()
    stage.restart_control_plane()
    stage.wait_for_seats(1)
    assert wait_asked(stage.port, task_id, "/mcp") == asked
    assert update(other.port, task_id, accept(asked, "blue"))["resultType"] == "complete"
    # A client in doubt says it again; nobody else's keys count.
    update(stage.port, task_id, accept([key, "ask-99"], "red"))
    expected = 'answered {"action": "accept", "content": {"colour": "blue"}}'
    if era == "new":
        second = wait_asked(stage.port, task_id)
        assert key not in second
        assert [request["params"]["message"] for request in second.values()] == [
            "And which other?"]
        stage.control_plane.kill()
        stage.restart_control_plane()
        stage.wait_for_seats(1)
        update(stage.port, task_id, accept(wait_asked(other.port, task_id), "green"))
        expected = "second blue, then green"
    over = ended(stage.port, task_id, "/mcp/asking")
    assert over["result"]["content"][0]["text"] == expected
    assert stage.begun("a") == 1
    assert list(end["status"] for end in told_until(told, "completed"))[-1] == "completed"


def told_until(told, status):
    for notice in told:
        yield notice
        if notice["status"] == status:
            return


def test_cancelled_task_tells_its_backend_that_nobody_answers(stage):
    task_id, gate = start_asking(stage, "old")
    gate.touch()
    asked = wait_asked(stage.port, task_id)
    task(stage.port, "tasks/cancel", task_id, "/mcp/asking")
    assert ended(stage.port, task_id, "/mcp/asking")["status"] == "cancelled"
    wait_until(lambda: ("refused", "a") in [event[:2] for event in stage.events()], 20,
               "the backend is told")
    assert update(stage.port, task_id, accept(asked, "blue"))["resultType"] == "complete"


def test_tasks_of_a_backend_pass_through_on_its_seat_and_are_ours_on_the_facade(stage,
                                                                               fixture_command):
    stage.start_control_plane(bridge__modern="true", bridge__task_after="500ms")
    stage.start_agent(*fixture_command, name="fixture")
    own = call(stage.port, "slow_compute", {"seconds": 1}, path="/mcp/fixture")
    assert own["resultType"] == "task" and not own["taskId"].startswith("callboard-")
    over = ended(stage.port, own["taskId"], "/mcp/fixture")
    assert over["result"]["content"][0]["text"] == "computed for 1 s"

    hits = call(stage.port, "search_tools", {"query": "slow_compute"}, path="/mcp")
    slug = next(hit["slug"] for hit in hits["structuredContent"]["hits"]
                if hit["slug"].endswith(".slow_compute"))
    ours = call(stage.port, "call_tool", {"tool_slug": slug, "arguments": {"seconds": 2}},
                path="/mcp")
    assert ours["taskId"].startswith("callboard-")
    over = ended(stage.port, ours["taskId"], "/mcp")
    assert over["result"]["content"][0]["text"] == "computed for 2 s"
