"""Field cases about backends that leave, and about links and calls that last: as wide as their cases say."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from conftest import need_full
from mcp_http import Refused
from stage import COUNTING_SERVER, wait_until
from test_field_agents import instances, start_agent

ROGUE_HTTP = Path(__file__).with_name("rogue_http.py")


@pytest.fixture
def rogue(stage):
    """A stage with rogue_http.py; its program."""
    stage.start_control_plane()
    server = stage.start([sys.executable, ROGUE_HTTP], "rogue")
    server.wait_for("/sse")
    return server


def test_fc_06_a_stream_that_ends_without_answer_is_an_error_at_once(stage, rogue):
    stage.start_agent(rogue.output().split()[0])
    answer = stage.client().call("no_answer", timeout=60)
    assert answer.seconds < 1
    data = answer.error["data"]
    assert data["certainty"] == "unknown", answer.error
    stage.control_plane.wait_for(f"seat_up seat=counting instance={data['instance']} ")
    time.sleep(2)
    assert rogue.output().count("call no_answer") == 1, "no retry"
    assert stage.client().call("fine", {"text": "next"}).text == "next"


def test_a_tools_error_that_looks_like_a_lost_session_runs_it_once(stage, rogue):
    stage.start_agent(rogue.output().split()[0])
    client = stage.client()
    assert client.call("aborts").error == {"code": -32000, "message": "render session aborted"}
    assert client.call("fine", {"text": "next"}).text == "next"
    assert rogue.output().count("call aborts") == 1


def test_fc_07_a_backend_without_get_is_usable_and_asked_once(stage, rogue):
    started = time.monotonic()
    stage.start_agent(rogue.output().split()[0])
    client = stage.client()
    assert "fine" in {tool["name"] for tool in client.tools()}
    assert client.call("fine", {"text": "usable"}).text == "usable"
    assert time.monotonic() - started < 2
    time.sleep(5)
    assert rogue.output().split().count("GET") <= 1, "no retry loop"
    assert client.call("fine", {"text": "still"}).text == "still"


# ---- a backend that is killed -------------------------------------------------------------------


def timed_call(client, since, after):
    """The answer of a call made `after` seconds after `since`; it always is a structured one."""
    time.sleep(max(0.0, since + after - time.monotonic()))
    return client.call("echo", {"text": "there"}, timeout=10)


@pytest.mark.parametrize("agent_too", [False, True])
@pytest.mark.parametrize("busy", [False, True])
def test_fc_10_calls_after_a_kill_are_answered_and_others_are_unaffected(stage, busy, agent_too):
    """The DCC alone, whose agent starts it again, or both, which stay away."""
    stage.start_control_plane(budgets__queue="500ms")
    stage.start_agent()
    start_agent(stage, "other", sys.executable, COUNTING_SERVER, "--file", stage.folder / "other.txt")
    stage.wait_for_seats(2)
    client, other, facade = stage.client(), stage.client("/mcp/other"), stage.client("/mcp")
    running = None
    if busy:
        running = client.start_call("count", {"id": "doomed", "ms": 60_000}, timeout=60)
        stage.wait_begun("doomed")
    backend = stage.backend_pid()
    if agent_too:
        stage.agent.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(backend, signal.SIGKILL)
    killed = time.monotonic()
    if agent_too:
        wait_until(lambda: instances(facade).get("counting", {}).get("status") != "available", 2,
                   "the instance has left the routable ones")
    for after in (0.1, 2, 10):
        with contextlib.suppress(Refused):  # of a session of a seat that is not there
            answer = timed_call(client, killed, after)
            assert answer.seconds < 1, answer.text
            if answer.failed:
                data = answer.error["data"]
                assert data["certainty"] == "not_started" and data["reason"], answer.text
            else:
                assert answer.text == "there" and not agent_too
        assert other.call("echo", {"text": "well"}).text == "well"
    if not agent_too:
        assert client.call("echo", {"text": "again"}).text == "again", "restarted by its agent"
    if running and not agent_too:
        answer = running.result(1)
        assert answer.error["data"]["certainty"] == "unknown"
        assert stage.begun("doomed") == 1


# ---- what lasts ---------------------------------------------------------------------------------


def test_fc_19_ninety_seconds_of_silence_on_the_link_end_in_one_outcome(stage, hole):
    need_full("a link that is half-open for 90 s")
    stage.start_control_plane()
    path = hole()
    stage.start_agent(address=path.address, wrap=path.command)
    call = stage.client().start_call("count", {"id": "kept", "ms": 20_000}, timeout=200)
    stage.wait_begun("kept")
    time.sleep(1)
    path.swallow()
    swallowed = time.monotonic()
    wait_until(lambda: stage.live_seats() == 0, 30, "the control plane misses the agent", step=0.1)
    wait_until(lambda: "link_down" in stage.agent.output(), 30 - (time.monotonic() - swallowed),
               "the agent misses the control plane", step=0.1)
    time.sleep(max(0.0, swallowed + 90 - time.monotonic()))
    path.heal()
    stage.wait_for_seats(1, 15)
    assert call.result(15).text == "counted kept"
    assert stage.begun("kept") == 1


@pytest.mark.parametrize("tool", ["progress", "count"])
def test_fc_12_a_call_of_six_minutes_ends_with_its_result(stage, tool):
    need_full("a call of six minutes")
    stage.start_control_plane(budgets__heavy_call="600s")
    stage.start_agent()
    client = stage.client()
    arguments = {"steps": 36, "ms": 10_000} if tool == "progress" else {"id": "silent", "ms": 360_000}
    answer = client.call(tool, arguments, timeout=400, progress=True)
    assert answer.seconds > 359 and answer.resumes == 0
    if tool == "count":
        assert answer.text == "counted silent" and stage.begun("silent") == 1
        return
    assert answer.text == "36 steps" and answer.progress == list(range(1, 37))
    late = [arrival - float(note["params"]["message"])
            for arrival, note in zip(answer.arrivals, answer.notifications)]
    assert max(late) < 0.2
