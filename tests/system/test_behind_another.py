"""A Callboard behind a Callboard: an agent of the outer one serves an instance of the inner one, over HTTP."""

import sys
from pathlib import Path

import pytest

from stage import wait_until
from test_tasks import NAMESPACE, ask, ended, listen, task

ASKING_SERVER = Path(__file__).parent / "asking_server.py"


@pytest.fixture
def chain(stage):
    """serve(backend): that behind two Callboards, (inner, outer); only the inner one makes tasks, of what takes 300 ms."""
    stage.start_control_plane(bridge__modern="true", bridge__task_after="300ms")
    outer = stage.second_control_plane(bridge__modern="true", bridge__task_after="60s")

    def serve(*backend):
        stage.start_agent(*backend)
        outer.start_agent(f"http://127.0.0.1:{stage.port}/mcp/counting", name="behind")
        return stage, outer

    return serve


def test_calls_progress_and_cancels_pass_both(chain):
    inner, outer = chain()
    client = outer.client("/mcp/behind")
    assert {tool["name"] for tool in client.tools()} == {tool["name"] for tool in inner.client().tools()}
    assert client.call("echo", {"text": "far"}).text == "far"
    steps = client.call("progress", {"steps": 3, "ms": 50}, progress=True)
    assert steps.text == "3 steps"
    assert steps.progress[-1] == 3

    client.start_call("count", {"id": "left", "ms": 20000}, progress=True)
    inner.wait_begun("left")
    client.notify("notifications/cancelled", {"requestId": client.next_id() - 1})
    wait_until(lambda: any(event[:2] == ("cancelled", "left") for event in inner.events()), 10,
               "the cancel reaches the tool")


def test_an_ask_of_the_far_tool_reaches_the_client(stage, chain):
    inner, outer = chain(sys.executable, ASKING_SERVER, "--file", stage.runs, "--era", "old")
    gate = inner.folder / "gate"
    gate.touch()
    params = {"name": "confirm", "arguments": {"id": "a", "gate": str(gate)},
              "_meta": {NAMESPACE + "clientCapabilities": {"elicitation": {}}}}
    status, asked = ask(outer.port, "/mcp/behind", "tools/call", dict(params), named="confirm")
    assert status == 200 and asked["result"]["resultType"] == "input_required", asked
    (key, request), = asked["result"]["inputRequests"].items()
    assert request["params"]["message"] == "Which colour?"
    params |= {"inputResponses": {key: {"action": "accept", "content": {"colour": "red"}}},
               "requestState": asked["result"]["requestState"]}
    status, done = ask(outer.port, "/mcp/behind", "tools/call", params, named="confirm")
    assert status == 200 and "red" in done["result"]["content"][0]["text"], done
    assert inner.begun("a") == 1


def test_a_task_of_the_inner_one_is_followed_and_heard_of_through_the_outer(chain):
    inner, outer = chain()
    gate = inner.folder / "gate"
    status, made = ask(outer.port, "/mcp/behind", "tools/call",
                       {"name": "count", "arguments": {"id": "a", "gate": str(gate)}}, named="count")
    assert status == 200 and made["result"]["resultType"] == "task", made
    name = made["result"]["taskId"]
    assert name.startswith("callboard-")
    assert "error" in task(outer.port, "tasks/get", name, "/mcp"), "none of the outer one's own"
    assert task(outer.port, "tasks/get", name, "/mcp/behind")["result"]["status"] == "working"
    told = listen(inner, outer.port, name, "/mcp/behind")
    gate.touch()
    end = next(told)
    assert end["status"] == "completed"
    assert end["result"]["content"][0]["text"] == "counted a"
    assert ended(outer.port, name, "/mcp/behind")["status"] == "completed"
    assert inner.begun("a") == 1


def test_a_call_ends_once_when_the_inner_control_plane_is_killed(chain):
    """To the outer one it is a backend that is gone: what had started there is of unknown outcome, and never run again."""
    inner, outer = chain()
    client = outer.client("/mcp/behind")
    gate = inner.folder / "gate"
    running = client.start_call("count", {"id": "once", "gate": str(gate)}, progress=True, timeout=60)
    inner.wait_begun("once")
    inner.control_plane.kill()
    data = running.result(5).error["data"]
    assert (data["reason"], data["certainty"]) == ("backend_connection_lost", "unknown")
    inner.restart_control_plane()
    inner.wait_for_seats(1)
    gate.touch()
    wait_until(lambda: outer.live_seats() == 1, 15, "the instance is back")
    assert client.call("echo", {"text": "again"}).text == "again"
    wait_until(lambda: ("end", "once") in [event[:2] for event in inner.events()], 10, "the tool ends")
    assert inner.begun("once") == 1
