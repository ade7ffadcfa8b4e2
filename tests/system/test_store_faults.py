"""Faults of the store on the real callboardd: full disk, read-only disk, damaged file, kills; nothing acknowledged is lost."""

import contextlib
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest

from conftest import FULL, need
from mcp_http import REVISION, Answer, McpClient, Refused, read_events
from prometheus_text import scrape
from stage import BINARIES, COUNTING_SERVER, wait_until
from test_field_agents import start_agent
from test_restarts import EVENT_SERVER


@pytest.fixture
def small_disk(stage):
    """Makes the control plane's state folder a disk of 4 MiB of its own; returns its path."""
    if os.geteuid() != 0:
        need("mounting a small disk needs root")
    folder = stage.folder / "callboardd"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", folder], check=True)
    stage.on_close(lambda: subprocess.run(["umount", folder], check=True))
    return folder


def fill(folder):
    """Takes the last byte of the disk; returns the file that holds it."""
    balloon = folder / "balloon"
    with open(balloon, "wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
    return balloon


def ping(client):
    return client.post({"jsonrpc": "2.0", "id": client.next_id(), "method": "ping"})[0]


def readiness(stage, port=None):
    status, body = stage.get("/v1/readyz", port)
    failed = [check for check in (body or {}).get("checks", []) if not check["ok"]]
    return status, failed[0] if failed else None


def refusal_of_a_session(stage):
    """The text a client gets that cannot have a session; None if it gets one."""
    try:
        stage.client("/mcp")
    except Refused as refused:
        return refused.body
    return None


def sessions_until_refused(stage):
    """Opens sessions until the disk takes none: what its log has room for is still taken."""
    for _ in range(300):
        refused = refusal_of_a_session(stage)
        if refused:
            return refused
    raise AssertionError("the full disk still takes sessions")


def run_callboardd(state, *options):
    """callboardd that is expected to end by itself: (status, stderr)."""
    done = subprocess.run([BINARIES / "callboardd", "--port", "0", "--grpc-port", "0",
                           "--state-dir", state, *options], capture_output=True, text=True, timeout=20)
    return done.returncode, (done.stdout + done.stderr).strip()


def test_full_disk_stops_only_new_sessions_until_there_is_room(stage, small_disk):
    stage.start_control_plane()
    stage.start_agent()
    bridge = stage.start_bridge()
    wait_until(lambda: readiness(stage, bridge.port)[0] == 200, 5, "the bridge is ready")
    old = stage.client()
    acknowledged = [stage.client("/mcp") for _ in range(5)]
    running = old.start_call("count", {"id": "running", "ms": 5000})
    stage.wait_begun("running")
    balloon = fill(small_disk)
    refused = sessions_until_refused(stage)
    assert f"the store {small_disk}/callboard.db cannot be written: its disk is full" in refused
    status, check = readiness(stage)
    assert status == 503
    assert check["name"] == "store"
    assert "its disk is full; free some space there" in check["message"]
    assert readiness(stage, bridge.port) == (503, check), "so says a bridge of its own"

    # Who has a session is served, with what runs and with new calls.
    assert not running.done()
    assert running.result(20).text == "counted running"
    assert old.call("echo", {"text": "still here"}).text == "still here"
    assert readiness(stage)[0] == 503
    assert "its disk is full" in refusal_of_a_session(stage)
    assert stage.control_plane.output().count("store_failed") == 1

    balloon.unlink()
    wait_until(lambda: readiness(stage)[0] == 200, 5, "ready again")
    assert readiness(stage, bridge.port)[0] == 200
    acknowledged += [stage.client("/mcp") for _ in range(5)]
    stage.control_plane.wait_for("store_recovered duration_ms=")
    stage.control_plane.kill()
    stage.restart_control_plane()
    assert [ping(client) for client in acknowledged] == [200] * 10


def test_full_disk_at_the_start_is_a_sentence(small_disk):
    fill(small_disk)
    status, text = run_callboardd(small_disk)
    assert status == 2
    assert text.startswith(f"callboardd: cannot open the store {small_disk}/callboard.db: its disk is full; "
                           "free some space there")


def test_read_only_disk_is_a_sentence(stage, small_disk):
    stage.start_control_plane()
    client = stage.client("/mcp")
    assert stage.control_plane.terminate() == 0
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    status, text = run_callboardd(small_disk)
    assert status == 2
    assert text == (f"callboardd: cannot open the store {small_disk}/callboard.db: the file or its folder "
                    "cannot be written (Read-only file system); make both writable, or put the store "
                    "elsewhere with store.path")
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    stage.restart_control_plane()
    assert ping(client) == 200


def test_damaged_file_is_a_sentence_and_can_be_moved_away(stage):
    state = stage.folder / "callboardd"
    file = state / "callboard.db"
    stage.start_control_plane()
    for _ in range(30):
        client = stage.client("/mcp")
    assert stage.control_plane.terminate() == 0
    status, text = run_callboardd(state, "--check-store")
    assert status == 0
    assert text.startswith(f"the store {file} is sound: 30 records, ")

    content = bytearray(file.read_bytes())
    content[8192:] = b"\x5a" * (len(content) - 8192)
    file.write_bytes(content)
    for options in [], ["--check-store"]:
        status, text = run_callboardd(state, *options)
        assert status == 2
        assert text.startswith(f"callboardd: cannot open the store {file}: it is damaged (")
        assert "move it away: callboardd then begins with an empty store" in text
    file.rename(state / "damaged.db")
    stage.restart_control_plane()
    assert ping(client) == 404
    client = stage.client("/mcp")
    assert ping(client) == 200


def test_one_store_is_for_one_callboardd(stage):
    stage.start_control_plane()
    status, text = run_callboardd(stage.folder / "callboardd")
    assert status == 2
    assert f"process {stage.control_plane.pid} has it open; stop that process" in text
    assert readiness(stage) == (200, None)


def test_a_call_that_an_older_store_takes_for_open_is_told_to_be_over(stage):
    """A copy from the midst of the call is put back after its end, as a loss of power may do; its agent has forgotten the outcome."""
    stage.start_control_plane()
    stage.start_agent(admin__port=0)
    state, gate = stage.folder / "callboardd", stage.folder / "gate"
    held = json.loads((stage.folder / "agent" / "ports.json").read_text())["admin"]
    client = stage.client()
    call = client.start_call("count", {"id": "once", "gate": str(gate)})
    stage.wait_begun("once")
    wait_until(lambda: call.answer.event_ids, 10, "the call's stream is open")
    copies = {path: path.read_bytes() for path in files_of_the_store(state)}
    number = client._next_id
    gate.touch()
    assert call.result(20).text == "counted once"
    wait_until(lambda: scrape(held).value("callboard_agent_calls") == 0, 10, "the call is settled")

    stage.control_plane.kill()
    for path in files_of_the_store(state):
        path.unlink()
    for path, content in copies.items():
        path.write_bytes(content)
    stage.restart_control_plane()
    again = Answer({}, event_ids=[call.answer.event_ids[0]])
    client._resume(number, again, time.monotonic() + 30)
    assert again.result is None, "what the tool had answered is gone"
    assert again.error["data"]["reason"] == "settled_before"
    assert again.error["data"]["certainty"] == "finished"
    assert "has ended before, as RESULT" in again.error["message"]
    assert stage.begun("once") == 1


class Audited:
    """A session whose own stream is told messages all the time; what it was shown is asked for again after each fault."""

    def __init__(self, stage, name):
        self._client = stage.client(f"/mcp/{name}")
        self._shown = []  # (event id, number), since the last audit
        self._from = ""   # the newest id before that
        self._reader = None
        self._last = 0
        self.read()
        wait_until(lambda: self._from, 10, "the session's stream is open")

    def feed(self, count, ms):
        self._client.call("feed", {"first": 1, "count": count, "ms": ms})

    def read(self):
        self._reader = threading.Thread(target=self._read, args=(self._shown,), daemon=True)
        self._reader.start()

    def _read(self, shown):
        headers = self._client._headers() | {"Accept": "text/event-stream"}
        if self._from:
            headers["Last-Event-ID"] = self._from
        try:
            connection, response = self._client._open("GET", None, headers, 20)
            assert response.status == 200
            for event in read_events(response):
                if event.data and event.type in ("", "message"):
                    shown.append((event.id, json.loads(event.data)["params"]["data"]["n"]))
                elif not self._from:
                    self._from = event.id
            connection.close()
        except (OSError, http.client.HTTPException):
            pass  # it was cut

    @property
    def told(self):
        return len(self._shown)

    @property
    def last(self):
        """The newest message that an audit has seen twice."""
        return self._last

    def audit(self):
        """After a restart: all that was shown is shown again, the same under the same ids, and it goes on."""
        self._reader.join(10)
        before, self._shown = self._shown, []
        self.read()
        wait_until(lambda: self.told > len(before), 20, "what was shown, and more")
        assert self._shown[:len(before)] == before
        numbers = [number for _, number in self._shown]
        assert numbers == list(range(self._last + 1, self._last + 1 + len(numbers))), "none is missing"
        if before:
            self._from, self._last = before[-1]
            del self._shown[:len(before)]


def sessions_until(stop, stage, sessions):
    """Opens sessions; whoever was shown an id counts, whatever became of the rest."""
    while not stop.is_set():
        client = McpClient(stage.port)
        with contextlib.suppress(OSError, Refused, ValueError, http.client.HTTPException):
            client.initialize(timeout=5)
        if client.session:
            sessions.append(client)


class Acknowledged:
    """What clients were told of calls, to be asked for after each fault: outcomes by their key, jobs that run, cancels."""

    def __init__(self, stage):
        self._stage = stage
        self._files = {name: stage.folder / f"{name}.txt" for name in ("keyed", "held")}
        for name, file in self._files.items():
            start_agent(stage, name, sys.executable, COUNTING_SERVER, "--file", file)
        stage.wait_for_seats(1 + len(self._files))
        self._client = stage.client("/mcp")
        self._slugs = {name: self._slug(name) for name in self._files}
        self._gate = self._running = self._cancelled = None
        self._number = 0
        self._answered = []  # (key, text), since the last audit
        self.audited = 0

    def _slug(self, name):
        hits = self._client.call("search_tools", {"query": "count", "instance": name}).result["structuredContent"]["hits"]
        return next(hit["slug"] for hit in hits if hit["slug"].endswith(".count"))

    def _count(self, seat, arguments, meta=None):
        return self._client.call("call_tool", {"tool_slug": self._slugs[seat], "arguments": arguments}, meta=meta)

    def _keyed(self, key):
        return self._count("keyed", {"id": key}, {"callboard/idempotency-key": key})

    def _job(self, tool, job):
        return self._client.call(tool, {"job_id": job}).result["structuredContent"]

    def _begun(self, seat, call):
        return sum(1 for event, other, _ in self._stage.events(self._files[seat]) if (event, other) == ("begin", call))

    def begin(self, number):
        """A job that runs, and one behind it that is cancelled before it has begun."""
        self._gate = self._stage.folder / f"gate-{number}"
        self._held, self._gone = f"held-{number}", f"gone-{number}"
        job = self._count("held", {"id": self._held, "gate": str(self._gate)}).result["structuredContent"]
        assert job["status"] == "running", job
        self._running = job["job_id"]
        job = self._count("held", {"id": self._gone}).result["structuredContent"]
        assert job["status"] == "pending", job
        self._cancelled = job["job_id"]
        assert "error" not in self._job("jobs_cancel", self._cancelled)

    def call_until(self, stop):
        """Calls with a key each; those count whose result was shown."""
        while not stop.is_set():
            self._number += 1
            key = f"key-{self._number}"
            with contextlib.suppress(OSError, Refused, ValueError, http.client.HTTPException):
                answer = self._keyed(key)
                if not answer.failed:
                    self._answered.append((key, answer.text))

    def audit(self):
        for key, text in self._answered:
            assert text == f"counted {key}"
            again = self._keyed(key)
            assert again.text == text, f"{key}: {again.text}"
            assert self._begun("keyed", key) == 1, f"{key} has run again"
        self.audited += len(self._answered)
        self._answered.clear()
        assert self._job("jobs_get_status", self._running)["status"] == "running"
        wait_until(lambda: self._job("jobs_get_status", self._cancelled)["status"] == "cancelled", 10,
                   "what was cancelled is cancelled")
        self._gate.touch()
        ended = wait_until(lambda: (job := self._job("jobs_get_status", self._running))["status"] != "running" and job,
                           20, "the job that ran ends")
        assert ended["status"] == "completed", ended
        assert ended["result"]["content"][0]["text"] == f"counted {self._held}"
        assert self._begun("held", self._held) == 1
        assert self._begun("held", self._gone) == 0


def kill_during_commits(stage, sessions, acknowledged, seconds):
    stop = threading.Event()
    workers = [threading.Thread(target=sessions_until, args=(stop, stage, sessions), daemon=True) for _ in range(2)]
    workers.append(threading.Thread(target=acknowledged.call_until, args=(stop,), daemon=True))
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    stage.control_plane.kill()
    stop.set()
    for worker in workers:
        worker.join(40)
        assert not worker.is_alive()


def large_sessions_until_refused(stage):
    """Sessions of 40 KB each until the disk takes none, and the refusal: the store's log has room of its own."""
    opened = []
    while len(opened) < 1000:
        client = McpClient(stage.port)
        try:
            client.request("initialize", {"protocolVersion": REVISION, "capabilities": {},
                                          "clientInfo": {"name": "x" * 40_000, "version": "1"}})
        except Refused as refused:
            return opened, refused.body
        opened.append(client)
    raise AssertionError("the full disk still takes sessions")


def fill_and_make_room(stage, disk):
    balloon = fill(disk)
    opened, refused = large_sessions_until_refused(stage)
    assert f"the store {disk}/callboard.db cannot be written: its disk is full" in refused
    balloon.unlink()
    wait_until(lambda: readiness(stage)[0] == 200, 10, "ready again")
    assert all(client.delete() < 300 for client in opened)


def refuse_read_only(disk):
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    status, text = run_callboardd(disk)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert status == 2
    assert f"cannot open the store {disk}/callboard.db: the file or its folder cannot be written" in text


def files_of_the_store(state):
    """SQLite's, without the folder of large results beside them."""
    return [path for path in state.glob("callboard.db*") if path.is_file()]


def refuse_damaged(disk):
    """The backup is put back in its place."""
    kept = {path: path.read_bytes() for path in files_of_the_store(disk)}
    for path, content in kept.items():  # with its log, which would make up for the file
        path.write_bytes(b"\x5a" * len(content))
    status, text = run_callboardd(disk)
    assert status == 2
    assert f"cannot open the store {disk}/callboard.db: " in text
    assert "move it" in text
    for path, content in kept.items():
        path.write_bytes(content)


@pytest.mark.parametrize("fault", ["kill", "disk full", "read-only", "damaged"])
def test_faults_with_an_open_stream_lose_nothing_that_was_acknowledged(stage, small_disk, fault):
    """Sessions are opened, calls with a key end, and a stream is told messages all the time; a job runs, one is cancelled. Twenty
    faults, each with a SIGKILL in the midst of commits, in the full tier, two else."""
    rounds = 20 if FULL else 2
    chance = random.Random(fault)
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    stage.start_control_plane(bridge__envelope_after="500ms")
    start_agent(stage, "events", sys.executable, EVENT_SERVER)
    acknowledged = Acknowledged(stage)
    stream = Audited(stage, "events")
    stream.feed(1_000_000, 20)
    sessions, audited = [], 0
    for number in range(rounds):
        wait_until(lambda: stream.told >= 5, 20, "the stream is told more")
        acknowledged.begin(number)
        if fault == "disk full":
            fill_and_make_room(stage, small_disk)
        kill_during_commits(stage, sessions, acknowledged, chance.uniform(0.05, 0.4))
        if fault == "read-only":
            refuse_read_only(small_disk)
        elif fault == "damaged":
            refuse_damaged(small_disk)
        stage.restart_control_plane()
        assert [client.session for client in sessions if ping(client) != 200] == [], f"round {number}"
        stream.audit()
        acknowledged.audit()
        audited += len(sessions)
        while len(sessions) > 50:
            assert sessions.pop(0).delete() < 300
    assert acknowledged.audited > 0
    print(f"{fault}: {rounds} rounds, {audited} sessions and {acknowledged.audited} outcomes asked for after a kill, "
          f"{stream.last} messages shown, none lost or told twice")


def test_twenty_kills_during_commits_lose_no_acknowledged_session(stage):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    stage.start_control_plane()
    acknowledged, lock = [], threading.Lock()

    def open_sessions(stop):
        while not stop.is_set():
            client = McpClient(stage.port)
            try:
                client.initialize(timeout=5)
            except (OSError, Refused, ValueError):
                pass
            # An id that was shown counts, whatever became of the rest.
            if client.session:
                with lock:
                    acknowledged.append(client)

    for round_number in range(20):
        stop = threading.Event()
        openers = [threading.Thread(target=open_sessions, args=(stop,), daemon=True) for _ in range(4)]
        before = len(acknowledged)
        for opener in openers:
            opener.start()
        time.sleep(chance.uniform(0.05, 0.4))
        wait_until(lambda: len(acknowledged) > before, 10, "a session")
        stage.control_plane.kill()
        stop.set()
        for opener in openers:
            opener.join(10)
        stage.restart_control_plane()
        lost = [client.session for client in acknowledged[before:] if ping(client) != 200]
        assert not lost, f"round {round_number}, seed {seed}"
    assert [client.session for client in acknowledged if ping(client) != 200] == []
    terms = [line.rpartition("term=")[2].split()[0] for line in stage.control_plane.output().splitlines()
             if " ready " in line and "term=" in line]
    assert len(terms) == 21
    assert sorted(set(map(int, terms))) == list(map(int, terms))
