"""Bounds of the programs that no other test reaches: what all streams together keep in memory, a loop that hangs."""

import json
import signal
import sys

import pytest

from stage import BINARIES, wait_until
from test_field_streams import Listener
from test_metrics import admin_port, scrape
from test_restarts import EVENT_SERVER

KEPT, EVENTS, STREAMS = 16 << 10, 400, 3


def numbers(listener):
    """What the session's own stream has told, in its order."""
    messages = [json.loads(event.data) for event in list(listener.events) if event.data]
    return [message["params"]["data"]["n"] for message in messages if message["method"] == "notifications/message"]


def test_all_streams_together_keep_no_more_in_memory_than_allowed_and_lose_nothing(stage):
    stage.start_control_plane(admin__port=0, limits__replay_total_bytes_max=KEPT)
    stage.start_agent(sys.executable, EVENT_SERVER, name="events")
    clients = [stage.client("/mcp/events") for _ in range(STREAMS)]
    begun = []
    for client in clients:
        listener = Listener(stage, client)
        wait_until(lambda at=listener: any(event.id for event in at.events), 10, "the stream is open")
        begun.append(listener.events[0].id)
        listener.reset()
    most = []

    def kept():
        most.append(scrape(admin_port(stage)).value("callboard_replay_bytes"))
        return most[-1]

    clients[0].call("feed", {"first": 1, "count": EVENTS, "ms": 1})
    wait_until(lambda: kept() > KEPT / 2, 20, "events are kept in memory")
    late = Listener(stage, clients[0], begun[0])
    wait_until(lambda: kept() <= KEPT and len(numbers(late)) >= EVENTS, 30, "the first session's events")
    others = [Listener(stage, client, first) for client, first in zip(clients[1:], begun[1:])]
    wait_until(lambda: all(len(numbers(other)) >= EVENTS for other in others), 30, "those of the others")
    kept()
    print(f"{STREAMS} streams of {EVENTS} events: at most {max(most):.0f} of {KEPT} bytes in memory")
    assert max(most) <= KEPT
    for listener in (late, *others):
        assert numbers(listener) == list(range(1, EVENTS + 1)), "what is not in memory is in the store"
        assert not any(comment.startswith("gap") for comment in listener.comments)


@pytest.mark.parametrize("program", ["callboardd", "callboard-bridge", "callboard-agent"])
def test_a_loop_that_hangs_ends_the_program(stage, program):
    """Any turn of the loop is longer than a microsecond, which is all that it gets here."""
    options = {"callboardd": ["--port", 0, "--grpc-port", 0],
               "callboard-bridge": ["--port", 0, "--control-plane", "127.0.0.1:1"],
               "callboard-agent": ["--control-plane", "127.0.0.1:1"]}[program]
    command = [BINARIES / program, *options, "--state-dir", stage.folder / program]
    if program == "callboard-agent":
        command += ["--registry-dir", stage.folder]
    watched = stage.start([*command, "--set", "runtime.watchdog=1us"], program)
    assert watched.process.wait(30) == -signal.SIGABRT, watched.output()
    assert "error loop_hung " in watched.output()
