"""Restarts in mid-stream, orderly and not, under the official clients: which of a hundred events they are told, how often, in which order."""

import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from conftest import need_full
from stage import wait_until
from supervisor import Supervisor
from test_clients import CLIENTS, facts, run_to_end, values
from test_field_agents import start_agent

EVENT_SERVER = Path(__file__).with_name("event_server.py")
EVENTS, ASKS = 100, 20  # a question before each twentieth event
KINDS = ("python", "typescript")


def follow(stage, server, node_modules, ms):
    """Both clients, each on a seat of its own, at the same call; the folder through which they are told more.

    server(kind): the URL, or the command as a JSON list, of the seat of that name.
    """
    folder = stage.folder / "follow"
    folder.mkdir()
    shutil.copy(CLIENTS / "follow.mjs", stage.folder)
    (stage.folder / "node_modules").symlink_to(node_modules)
    commands = {"python": [sys.executable, CLIENTS / "follow.py"],
                "typescript": ["node", stage.folder / "follow.mjs"]}
    arguments = f'{{"count": {EVENTS}, "ms": {ms}, "asks": {ASKS}}}'
    return folder, [
        stage.start([*commands[kind], server(kind), "tell", arguments, folder], f"client-{kind}")
        for kind in KINDS]


def check_events(program, exact, last=True):
    """exact: of progress, too, each event once. Else it may miss or be told twice, but never fall. Without `last` that of
    the last event may be missing.
    """
    numbers = list(range(1, EVENTS + 1))
    asks = [n for n in numbers if n % ASKS == 0]
    assert values(program, "log") == numbers
    assert values(program, "asked") == asks
    assert values(program, "result") == [[{"n": n} for n in asks]]
    progress = values(program, "progress")
    if not last and progress[-1] == EVENTS - 1:
        numbers = numbers[:-1]
    if exact:
        assert progress == numbers
        told = [fact for fact in facts(program) if fact[0] in ("log", "progress")]
        assert told[:2 * len(numbers)] == [fact for n in numbers for fact in (("log", n), ("progress", n))]
    else:
        assert progress == sorted(progress)
        assert progress[-1] == numbers[-1]


def restart_at_half(stage, node_modules, what, number, ms, **settings):
    """`what`: callboardd alone, callboardd behind a bridge of its own, or that bridge."""
    control_plane = Supervisor(stage, lambda: stage.start_control_plane(**settings))
    for kind in KINDS:
        start_agent(stage, kind, sys.executable, EVENT_SERVER)
    stage.wait_for_seats(len(KINDS))
    restarted, port = control_plane, stage.port
    if what != "callboardd":
        port = stage.start_bridge("first").port
        stage._programs[-1].end()
        bridge = Supervisor(stage, lambda: stage.start_bridge("bridge", port=port, **settings))
        restarted = bridge if what == "bridge" else control_plane
    folder, clients = follow(stage, lambda kind: f"http://127.0.0.1:{port}/mcp/{kind}", node_modules, ms)
    for client in clients:
        wait_until(lambda: len(values(client, "progress")) >= EVENTS // 2, 30 + ms / 10,
                   f"half of the events are told:\n{client.output()[-2000:]}")
    restarted.kill(number)
    for client in clients:
        wait_until(lambda: values(client, "result"), 90,
                   f"the call ends:\n{client.output()[-2000:]}", step=0.1)
        check_events(client, exact=number == signal.SIGTERM or what == "bridge")
    assert restarted.starts == 2
    # The stream of the session as such is there again, too.
    (folder / "news").touch()
    for client in clients:
        run_to_end(client)
        assert values(client, "news") == values(client, "connected")
    assert stage.control_plane.output().count("session_opened") == len(KINDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("what", ["callboardd", "callboardd behind a bridge", "bridge"])
def test_restart_at_event_50_of_100(stage, node_modules, what, number):
    # A drain that is over before the call is.
    restart_at_half(stage, node_modules, what, number, 50, bridge__drain="1s")


@pytest.mark.parametrize("what", ["callboardd", "callboardd behind a bridge", "bridge"])
def test_orderly_restart_with_the_default_drain(stage, node_modules, what):
    need_full("an orderly restart that takes its ten seconds")
    restart_at_half(stage, node_modules, what, signal.SIGTERM, 400)


def test_an_orderly_end_takes_no_longer_than_its_drain(stage):
    stage.start_control_plane(bridge__drain="1s")
    stage.start_agent()
    call = stage.client().start_call("count", {"id": "cut", "ms": 4000}, timeout=30)
    stage.wait_begun("cut")
    wait_until(lambda: call.answer.event_ids, 5, "the call's stream is open")
    started = time.monotonic()
    assert stage.control_plane.terminate() == 0
    assert 0.9 < time.monotonic() - started < 1.9
    stage.restart_control_plane()
    assert call.result(20).text == "counted cut"
    assert stage.begun("cut") == 1


def test_calls_right_after_a_kill_wait_for_their_agent(stage):
    """The agent is held until calls have come; it was linked when callboardd died."""
    stage.start_control_plane()
    stage.start_agent()
    client = stage.client()
    facade = stage.client("/mcp")
    slug = facade.call("search_tools", {"query": "echo"}).result["structuredContent"]["hits"][0]["slug"]
    stage.control_plane.kill()
    stage.agent.signal(signal.SIGSTOP)
    stage.restart_control_plane()
    rows = facade.call("list_instances").result["structuredContent"]["instances"]
    assert [(row["instance"], row["status"]) for row in rows] == [("counting", "reconnecting")]
    calls = [client.start_call("count", {"id": "own", "ms": 10}, timeout=40),
             stage.client().start_call("count", {"id": "new", "ms": 10}, timeout=40),
             facade.start_call("call_tool", {"tool_slug": slug, "arguments": {"text": "by slug"}}, timeout=40)]
    time.sleep(1)  # a refusal would be there at once
    assert [call.result().text for call in calls if call.done()] == []
    stage.agent.signal(signal.SIGCONT)
    assert calls[0].result(30).text == "counted own"
    assert calls[1].result(30).text == "counted new"
    assert "by slug" in calls[2].result(30).text
    assert [stage.begun("own"), stage.begun("new")] == [1, 1]
