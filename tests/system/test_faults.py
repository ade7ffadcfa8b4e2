"""Faults on the real binaries: every call ends in time, nothing is lost, nothing runs twice (issue 3, done-when 3)."""

import os
import signal
import time

import pytest

from mcp_http import McpClient, Refused
from stage import wait_until
from tcp_proxy import TcpProxy

BUDGET = 2.0
# connect < link read idle < call, as the configuration demands it (C3).
SHORT = {
    "budgets__connect": "500ms",
    "budgets__heartbeat": "500ms",
    "budgets__link_read_idle": "1500ms",
    "budgets__quick_call": f"{BUDGET:g}s",
    "budgets__heavy_call": f"{BUDGET:g}s",
}


@pytest.fixture
def counting(stage):
    """A stage with short budgets and the counting server on stdio."""
    stage.start_control_plane(**SHORT)
    stage.start_agent()
    return stage


def test_fc_10_killed_backend_is_told_at_once_and_comes_back(counting):
    client = counting.client()
    call = client.start_call("count", {"id": "doomed", "ms": 60_000})
    counting.wait_begun("doomed")
    os.kill(counting.backend_pid(), signal.SIGKILL)
    killed = time.monotonic()
    answer = call.result(10)
    assert time.monotonic() - killed < 0.5
    assert answer.failed
    assert "SIGKILL" in answer.text or "signal 9" in answer.text

    # The seat comes back by itself, and the call that may have run is not run again.
    def works():
        try:
            return not client.call("echo", {"text": "again"}, timeout=5).failed
        except Refused:
            return False

    wait_until(works, 10, "the restarted backend answers", step=0.1)
    assert counting.begun("doomed") == 1


def test_frozen_backend_costs_its_budget_and_keeps_its_slot(counting):
    client = counting.client()
    call = client.start_call("count", {"id": "frozen", "ms": 200})
    counting.wait_begun("frozen")
    backend = counting.backend_pid()
    os.kill(backend, signal.SIGSTOP)
    answer = call.result(BUDGET + 5)
    assert answer.failed
    assert BUDGET - 0.5 < answer.seconds < BUDGET + 1

    # The DCC is still at it: nothing else may be sent to it until it answers.
    waiting = client.start_call("count", {"id": "next", "ms": 0}, timeout=20)
    time.sleep(0.5)
    assert not waiting.done()
    os.kill(backend, signal.SIGCONT)
    assert not waiting.result(10).failed
    events = {(event, call): when for event, call, when in counting.events()}
    assert events["end", "frozen"] <= events["begin", "next"]
    assert counting.begun("frozen") == 1


def test_killed_agent_ends_its_calls_within_the_budget(counting):
    client = counting.client()
    call = client.start_call("count", {"id": "orphan", "ms": 60_000})
    counting.wait_begun("orphan")
    backend = counting.backend_pid()
    counting.agent.kill()
    answer = call.result(BUDGET + 5)
    assert answer.failed
    assert answer.seconds < BUDGET + 1
    # A stdio child dies with its agent, so no tool goes on unseen.
    wait_until(lambda: not os.path.exists(f"/proc/{backend}/cwd"), 5, "the backend has ended")


def test_restarted_agent_tells_unknown_and_does_not_run_again(counting):
    client = counting.client()
    call = client.start_call("count", {"id": "unknown", "ms": 60_000})
    counting.wait_begun("unknown")
    counting.agent.kill()
    counting.restart_agent()
    answer = call.result(BUDGET + 5)
    assert answer.failed
    assert answer.seconds < BUDGET + 1
    wait_until(lambda: not client.call("count", {"id": "after"}, timeout=10).failed, 10,
               "the seat serves again", step=0.1)
    assert counting.begun("unknown") == 1


def test_orderly_restart_of_the_agent_finishes_what_runs_and_the_rest_runs_after_it(stage):
    stage.start_control_plane()
    stage.start_agent()
    gate = stage.folder / "gate"
    running = stage.client().start_call("count", {"id": "running", "gate": str(gate)}, timeout=60)
    stage.wait_begun("running")
    queued = stage.client().start_call("echo", {"text": "in the queue"}, timeout=60)
    stage.agent.signal(signal.SIGTERM)
    stage.agent.wait_for("stopping")
    late = stage.client().start_call("echo", {"text": "too late"}, timeout=60)
    gate.touch()
    assert running.result(30).text == "counted running"
    assert stage.agent.process.wait(20) == 0
    stage.restart_agent()
    assert queued.result(30).text == "in the queue"
    assert late.result(30).text == "too late"
    assert stage.begun("running") == 1


def test_orderly_end_of_the_agent_waits_for_what_runs_no_longer_than_its_drain(stage):
    stage.start_control_plane()
    stage.start_agent(seats__drain="500ms")
    call = stage.client().start_call("count", {"id": "endless", "ms": 60_000}, timeout=60)
    stage.wait_begun("endless")
    assert stage.agent.terminate() == 0
    stage.restart_agent()
    error = call.result(20).error
    assert (error["data"]["reason"], error["data"]["certainty"]) == ("agent_restarted", "unknown")
    assert stage.begun("endless") == 1


def test_cut_of_eight_seconds_loses_and_repeats_nothing(stage, hole):
    stage.start_control_plane(budgets__heavy_call="40s")
    path = hole()
    stage.start_agent(address=path.address, wrap=path.command)
    client = stage.client()
    steady = client.start_call("progress", {"steps": 24, "ms": 500}, timeout=40, progress=True)
    time.sleep(1.2)
    path.swallow()
    time.sleep(8)
    path.heal()
    answer = steady.result(40)
    assert answer.text == "24 steps"
    assert answer.progress == sorted(set(answer.progress))
    assert answer.progress[-1] == 24

    # The same for a call that ends while the link is away.
    call = client.start_call("count", {"id": "during", "ms": 2000, "bytes": 200_000}, timeout=40)
    stage.wait_begun("during")
    path.swallow()
    time.sleep(8)
    path.heal()
    assert len(call.result(40).text) == 200_000
    assert stage.begun("during") == 1


def test_fc_19_half_open_link_is_found_within_fifteen_seconds(stage, hole):
    stage.start_control_plane(budgets__heavy_call="60s")
    path = hole()
    stage.start_agent(address=path.address, wrap=path.command)
    client = stage.client()
    call = client.start_call("count", {"id": "kept", "ms": 1000}, timeout=60)
    stage.wait_begun("kept")
    links = path.connections
    path.swallow()
    swallowed = time.monotonic()
    # The control plane's side: the seat is no longer counted as live.
    wait_until(lambda: stage.live_seats() == 0, 15, "the control plane misses the agent", step=0.1)
    # The agent's side: it has given the link up and dials again as soon as dialling is possible.
    time.sleep(max(0.0, swallowed + 15 - time.monotonic()))
    path.heal()
    wait_until(lambda: path.connections > links, 11, "the agent dials anew", step=0.05)
    assert not call.result(20).failed
    stage.wait_for_seats(1, 5)
    assert stage.begun("kept") == 1


def test_hundred_link_resets_in_mid_call_lose_and_repeat_nothing(stage):
    stage.start_control_plane(budgets__heavy_call="30s")
    link = TcpProxy(stage.grpc_port)
    stage.on_close(link.close)
    stage.start_agent(address=f"127.0.0.1:{link.port}")
    client = stage.client()
    results = 0
    for number in range(100):
        call = client.start_call("count", {"id": f"cut-{number}", "ms": 40}, timeout=30)
        stage.wait_begun(f"cut-{number}", 30)
        assert link.cut() >= 1
        answer = call.result(35)
        assert answer.text == f"counted cut-{number}"
        results += 1
    begun = [call for event, call, _ in stage.events() if event == "begin"]
    assert results == 100
    assert len(begun) == 100
    assert len(set(begun)) == 100


def spool_files(stage):
    """Bodies that the agent still keeps: those of calls that are not settled."""
    return [file for file in (stage.folder / "agent").rglob("*")
            if file.is_file() and file.stat().st_size >= 150_000]


def test_killed_control_plane_is_back_and_the_running_call_keeps_its_slot(stage):
    stage.start_control_plane(budgets__heavy_call="30s")
    stage.start_agent()
    old = stage.client()
    # Larger than 64 KiB: its body lies in the agent's spool until the call is settled.
    cut_off = old.start_call("count", {"id": "running", "ms": 4000, "bytes": 200_000}, timeout=3)
    stage.wait_begun("running")
    stage.control_plane.kill()
    restarted = time.monotonic()
    stage.restart_control_plane()
    new = McpClient(stage.port, "/mcp/counting")
    # The passed-through seat is known again when its agent is back.
    def opened():
        try:
            return new.initialize()
        except (Refused, OSError):
            return None

    wait_until(opened, 2, "a new session", step=0.02)
    assert time.monotonic() - restarted < 2
    facade = stage.client("/mcp")
    assert {"search_tools", "call_tool"} <= {tool["name"] for tool in facade.tools()}
    assert time.monotonic() - restarted < 2.5

    status, _, body = old.post({"jsonrpc": "2.0", "id": 9, "method": "ping"})
    assert status == 200, body  # the session goes on
    assert cut_off.exception(10) is not None  # the bridge that it had asked has died

    stage.wait_for_seats(1)
    following = new.call("count", {"id": "following", "ms": 0}, timeout=20)
    assert following.text == "counted following"
    events = {(event, call): when for event, call, when in stage.events()}
    assert events["end", "running"] <= events["begin", "following"]
    assert stage.begun("running") == 1
    wait_until(lambda: not spool_files(stage), 10, "the outcome of the running call is settled")
