"""One agent and two real callboardd: calls of both, the death of one, and an orderly goodbye."""

import time

from stage import wait_until
from test_faults import spool_files

SETTINGS = {"budgets__heavy_call": "30s"}


def start_both(stage, **settings):
    stage.start_control_plane(**SETTINGS, **settings)
    other = stage.second_control_plane(**SETTINGS)
    return other


def test_calls_of_two_control_planes_share_the_seat_and_outlive_the_death_of_one(stage):
    other = start_both(stage)
    stage.start_agent(address=f"127.0.0.1:{stage.grpc_port},127.0.0.1:{other.grpc_port}")
    other.wait_for_seats(1)
    first, second = stage.client(), other.client()
    calls = [client.start_call("count", {"id": f"{name}-{number}", "ms": 100}, timeout=20)
             for number in range(5) for name, client in (("first", first), ("second", second))]
    assert all(not call.result(20).failed for call in calls)
    begun = [call for event, call, _ in stage.events() if event == "begin"]
    assert len(begun) == len(set(begun)) == 10
    times = {(event, call): when for event, call, when in stage.events()}
    order = sorted(begun, key=lambda call: times["begin", call])
    for former, later in zip(order, order[1:]):
        assert times["end", former] <= times["begin", later], "the seat has one queue for both"

    # One dies: its call runs on and keeps the slot, the other's waits for it and ends well.
    cut_off = first.start_call("count", {"id": "orphan", "ms": 2000, "bytes": 200_000}, timeout=3)
    stage.wait_begun("orphan")
    stage.control_plane.kill()
    queued = second.call("count", {"id": "after"}, timeout=20)
    assert queued.text == "counted after"
    assert cut_off.exception(10) is not None
    times = {(event, call): when for event, call, when in stage.events()}
    assert times["end", "orphan"] <= times["begin", "after"]
    time.sleep(1)
    assert spool_files(stage), "the outcome waits in the agent's journal"

    # It is back: asked for, settled, and not run again.
    stage.restart_control_plane()
    stage.wait_for_seats(1)
    wait_until(lambda: not spool_files(stage), 10, "the outcome is settled by its owner")
    assert stage.begun("orphan") == 1
    assert not stage.client().call("echo", {"text": "back"}, timeout=10).failed


def test_alternates_are_linked_and_serve_when_the_first_says_goodbye(stage):
    # The second names no others; the first names the second.
    stage.start_control_plane(**SETTINGS)
    other = stage.second_control_plane(**SETTINGS)
    stage.control_plane.terminate()
    stage.start_control_plane(**SETTINGS, cluster__alternates=f"127.0.0.1:{other.grpc_port}",
                              bridge__drain="2s")
    stage.start_agent()
    other.wait_for_seats(1)
    assert f"address=127.0.0.1:{other.grpc_port}" in stage.agent.output()
    stage.control_plane.terminate()
    assert not other.client().call("count", {"id": "elsewhere"}, timeout=10).failed


def test_two_addresses_of_one_control_plane_are_one_link(stage):
    stage.start_control_plane(**SETTINGS)
    stage.start_agent(address=f"127.0.0.1:{stage.grpc_port},localhost:{stage.grpc_port}")
    stage.agent.wait_for("link_alias")
    call = stage.client().call("count", {"id": "once", "ms": 1500}, timeout=10)
    assert not call.failed
    assert stage.begun("once") == 1
    assert stage.control_plane.output().count("link_up") == 1
    assert stage.control_plane.output().count("link_down") == 0
