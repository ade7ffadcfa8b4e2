"""SIGKILL under load: two hundred calls of fifty sessions end with their result and run once; open streams lose and repeat no event."""

import hashlib
import http.client
import json
import random
import shutil
import sys
import threading
import time

from conftest import FULL
from counting_server import pattern
from mcp_http import McpClient, read_events
from stage import wait_until
from supervisor import Supervisor
from test_clients import CLIENTS, facts, values
from test_field_agents import start_agent
from test_restarts import EVENT_SERVER

ROUNDS = 10 if FULL else 2
SEATS, SESSIONS, CALLS_EACH = 20, 50, 4
IN_FLIGHT = SESSIONS * CALLS_EACH
OFFICIAL = 4  # sessions of each official client, among the fifty
LARGE = 100_000  # beyond 64 KiB: the body waits in the agent's spool


def seat_name(number):
    return f"seat{number:02}"


def run_file(stage, number):
    return stage.folder / f"{seat_name(number)}.txt"


class Crowd:
    """Fifty sessions, most of them plain, some of the official clients; each seat gets ten of their calls a round.

    The first twenty sessions are each on one seat's own tools; the others use the facade.
    """

    def __init__(self, stage, port, node_modules):
        self._stage = stage
        self._folder = stage.folder / "crowd"
        self._folder.mkdir()
        self._facade = McpClient(port)
        self._facade.initialize()
        self._slugs = [self._slug(number) for number in range(SEATS)]
        self._plain, urls = {}, {"python": {}, "typescript": {}}
        for session in range(SESSIONS):
            path = f"/mcp/{seat_name(session)}" if session < SEATS else "/mcp"
            kind = {0: "python", 1: "typescript"}.get(session % (SEATS // 2))
            if kind and len(urls[kind]) < OFFICIAL:
                urls[kind][str(session)] = f"http://127.0.0.1:{port}{path}"
            else:
                self._plain[session] = McpClient(port, path)
                self._plain[session].initialize()
        shutil.copy(CLIENTS / "load.mjs", stage.folder)
        (stage.folder / "node_modules").symlink_to(node_modules)
        self._official = {
            kind: stage.start([*command, self._folder, json.dumps(urls[kind])], kind)
            for kind, command in (("python", [sys.executable, CLIENTS / "load.py"]),
                                  ("typescript", ["node", stage.folder / "load.mjs"]))}
        for program in self._official.values():
            wait_until(lambda: len(values(program, "connected")) == OFFICIAL, 30, program.output())
        self.sessions = 1 + SESSIONS

    def _slug(self, number):
        hits = self._facade.call("search_tools", {"query": "count", "instance": seat_name(number)})
        return next(hit["slug"] for hit in hits.result["structuredContent"]["hits"]
                    if hit["slug"].endswith(".count"))

    def _plan(self, number):
        """{session: [(call, tool, arguments)]}, and {call: the text of its true result}."""
        plan, expected = {}, {}
        for session in range(SESSIONS):
            plan[session] = []
            for turn in range(CALLS_EACH):
                call = f"{number}-{session}-{turn}"
                arguments = {"id": call, "ms": 1000}
                expected[call] = f"counted {call}"
                if (session + turn) % 10 == 0:
                    arguments["bytes"] = LARGE
                    expected[call] = pattern(LARGE)
                if session < SEATS:
                    plan[session].append((call, "count", arguments))
                else:
                    slug = self._slugs[(session * CALLS_EACH + turn) % SEATS]
                    plan[session].append(
                        (call, "call_tool", {"tool_slug": slug, "arguments": arguments}))
        return plan, expected

    def _begun(self, number):
        """{call: how often it has begun} of a round."""
        counts = {}
        for seat in range(SEATS):
            for event, call, _ in self._stage.events(run_file(self._stage, seat)):
                if event == "begin" and call.startswith(f"{number}-"):
                    counts[call] = counts.get(call, 0) + 1
        return counts

    def _told(self, fact, number):
        """What the official clients have told of this round."""
        return [value for program in self._official.values() for value in values(program, fact)
                if (value if isinstance(value, str) else value[0]).startswith(f"{number}-")]

    def round(self, number, kill):
        """Kills with all calls in flight, and sees each of them to its end."""
        stage = self._stage
        gate = stage.folder / f"gate-{number}"
        # What comes first at each seat holds it until all others are under way.
        holds = [self._facade.start_call("call_tool", {"tool_slug": slug, "arguments": {
            "id": f"{number}-hold-{seat}", "gate": str(gate)}}, timeout=90)
            for seat, slug in enumerate(self._slugs)]
        wait_until(lambda: len(self._begun(number)) == SEATS, 20, "each seat is held")
        plan, expected = self._plan(number)
        written = self._folder / f"round-{number}.part"
        written.write_text(json.dumps(plan))
        written.rename(self._folder / f"round-{number}.json")
        ended = []  # times
        calls = {}
        for session, client in self._plain.items():
            for call, tool, arguments in plan[session]:
                calls[call] = client.start_call(tool, arguments, timeout=90)
                calls[call].add_done_callback(lambda _: ended.append(time.monotonic()))

        def all_open():
            plain = sum(1 for future in calls.values() if future.answer.event_ids)
            return plain + len(self._told("open", number)) == IN_FLIGHT

        wait_until(all_open, 30, "all streams are open", step=0.05)
        gate.touch()
        wait_until(lambda: len(self._begun(number)) >= 2 * SEATS, 10, "each seat is at work")
        assert not ended and not self._told("result", number)
        killed = time.monotonic()
        kill()
        wait_until(lambda: ended or self._told("result", number), 20, "a first result")
        first = time.monotonic() - killed
        results = {call: future.result(90).text for call, future in calls.items()}
        wait_until(lambda: len(self._told("result", number)) == 2 * OFFICIAL * CALLS_EACH, 60,
                   "the official clients have all their results", step=0.1)
        took = time.monotonic() - killed
        print(f"round {number}: first result {first:.2f} s after the kill, all after {took:.1f} s")

        # The official clients tell a large text by its digest.
        results |= dict(self._told("result", number))
        wrong = {call: (text[:200], results.get(call, "none")[:200]) for call, text in expected.items()
                 if results.get(call) not in (text, hashlib.sha256(text.encode()).hexdigest())}
        assert not wrong
        assert all(not hold.result(30).failed for hold in holds)
        begun = self._begun(number)
        assert {call: count for call, count in begun.items() if count != 1} == {}
        assert len(begun) == IN_FLIGHT + SEATS
        assert first < 2.0

    def close(self):
        """Ends the official clients in order; each has had one session all the time."""
        (self._folder / "stop").touch()
        for program in self._official.values():
            wait_until(lambda: not program.running, 20, "the official clients end")
            assert sorted(values(program, "connected")) == sorted(values(program, "closed")), facts(program)


def begin(stage):
    """A supervised callboardd with twenty seats."""
    supervised = Supervisor(stage, stage.start_control_plane)
    stage.start_registry_agent([seat_name(number) for number in range(SEATS)])
    return supervised


def test_sigkill_of_callboardd_under_two_hundred_calls(stage, node_modules):
    supervised = begin(stage)
    crowd = Crowd(stage, stage.port, node_modules)
    for number in range(1, ROUNDS + 1):
        crowd.round(number, supervised.kill)
        supervised.wait_restarted(number + 1)
    crowd.close()
    assert stage.control_plane.output().count("session_opened") == crowd.sessions


def test_sigkill_of_a_bridge_under_two_hundred_calls(stage, node_modules):
    control_plane = begin(stage)
    port = stage.start_bridge("first").port
    stage._programs[-1].end()
    supervised = Supervisor(stage, lambda: stage.start_bridge("bridge", port=port))
    crowd = Crowd(stage, port, node_modules)
    for number in range(1, ROUNDS + 1):
        crowd.round(number, supervised.kill)
        supervised.wait_restarted(number + 1)
    crowd.close()
    assert stage.control_plane.output().count("session_opened") == crowd.sessions
    assert control_plane.starts == 1


# ---- open streams ------------------------------------------------------------------------------


class Follower:
    """The stream of a session, resumed by Last-Event-ID whenever it is cut."""

    def __init__(self, stage, client):
        self._client = client
        self._stopping = False
        self.ids, self.numbers, self.refused = [], [], []
        threading.Thread(target=self._follow, daemon=True).start()
        stage.on_stop(self.stop)

    def stop(self):
        self._stopping = True

    def _follow(self):
        while not self._stopping:
            headers = self._client._headers() | {"Accept": "text/event-stream"}
            if self.ids:
                headers["Last-Event-ID"] = self.ids[-1]
            try:
                self._read(headers)
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)

    def _read(self, headers):
        connection, response = self._client._open("GET", None, headers, 20)
        try:
            if response.status != 200:
                return self.refused.append((response.status, response.read()))
            for event in read_events(response):
                if event.id:
                    self.ids.append(event.id)
                if event.data and event.type in ("", "message"):
                    self.numbers.append(json.loads(event.data)["params"]["data"]["n"])
        finally:
            connection.close()


def logged(answer):
    return [note["params"]["data"]["n"] for note in answer.notifications
            if note["method"] == "notifications/message"]


def test_kills_with_open_streams_lose_and_repeat_no_event(stage):
    """Three calls and a session's own stream tell all the time; twenty kills in the full tier, six else."""
    rounds = 20 if FULL else 6
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    supervised = Supervisor(stage, lambda: stage.start_control_plane(budgets__heavy_call="300s"))
    names = [f"events{number}" for number in range(4)]
    for name in names:
        start_agent(stage, name, sys.executable, EVENT_SERVER)
    stage.wait_for_seats(len(names))
    count = rounds * 200
    calls = [stage.client(f"/mcp/{name}").start_call("tell", {"count": count, "ms": 20}, progress=True,
                                                     timeout=200) for name in names[1:]]
    fed = stage.client(f"/mcp/{names[0]}")
    follower = Follower(stage, fed)
    wait_until(lambda: follower.ids, 10, "the session's stream is open")
    fed.call("feed", {"first": 1, "count": count, "ms": 20})

    def heard():
        return [*(len(call.answer.notifications) for call in calls), len(follower.numbers)]

    for number in range(rounds):
        before = heard()
        wait_until(lambda: all(now > then for now, then in zip(heard(), before)), 15,
                   "all streams are told more")
        time.sleep(chance.uniform(0.05, 0.4))
        supervised.kill()
        supervised.wait_restarted(number + 2)
    assert not any(call.done() for call in calls), "all kills came in mid-stream"
    for call in calls:
        answer = call.result(150)
        assert answer.text == "[]"
        assert logged(answer) == list(range(1, count + 1))
        assert answer.progress == sorted(answer.progress) and answer.progress[-1] == count
        assert len(set(answer.event_ids)) == len(answer.event_ids)
        assert answer.resumes >= rounds
    wait_until(lambda: follower.numbers[-1:] == [count], 20, "the last message to the session")
    assert follower.numbers == list(range(1, count + 1)), "what belongs to no call is told once, too"
    assert follower.refused == []
