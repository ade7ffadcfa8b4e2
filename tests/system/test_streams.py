"""Many streams: idle ones that live and vanish, quick ones, and slow readers beside them."""

import http.client
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

import black_hole
from conftest import FULL, need
from figures import percentile
from mcp_http import McpClient
from stage import BINARIES, COUNTING_SERVER, wait_until
from test_memory import ALLOWED, open_files, resident_kib

CROWD = Path(__file__).with_name("sse_crowd.py")


def cpu_seconds(program):
    fields = Path("/proc", str(program.pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def result_of(program, seconds):
    """The JSON line that a crowd prints at the end."""
    program.wait_for('{"opened"', seconds)
    return json.loads(next(line for line in program.output().splitlines() if line.startswith("{")))


def test_idle_streams_live_and_those_that_vanish_are_gone(stage, silent_path):
    """Full: 2000 streams for ten minutes with the defaults. Else 500 for 30 s, heartbeats and time-out 5 s."""
    streams, seconds, beat, timeout = (2000, 600, 15, 20) if FULL else (500, 30, 5, 5)
    state = stage.folder / "callboardd"
    state.mkdir()
    command = [BINARIES / "callboardd", "--host", "0.0.0.0", "--port", 0, "--grpc-port", 0,
               "--state-dir", state, "--set", f"bridge.allowed_hosts={black_hole.NEAR}",
               "--set", f"bridge.heartbeat={beat}s", "--set", f"bridge.peer_timeout={timeout}s"]
    program = stage.start(silent_path.command(command, silent_path.near), "callboardd")
    program.wait_for("callboardd ready")
    port = json.loads((state / "ports.json").read_text())["http"]
    idle_files = open_files(program)

    def crowd(name, duration):
        return stage.start(silent_path.command(
            [sys.executable, CROWD, "--host", black_hole.NEAR, "--port", port, "--streams", streams,
             "--seconds", duration, "--sessions", stage.folder / "sessions.json", "listen"]), name)

    def vanish(member):
        """Without a FIN; the seconds until the bridge has noticed for all."""
        silent_path.swallow()
        begun = time.monotonic()
        wait_until(lambda: open_files(program) <= idle_files + 2, beat + timeout + 15,
                   "no stream is left", step=0.1)
        gone = time.monotonic() - begun
        member.kill()
        silent_path.heal()
        return gone

    # The first crowd pays for what stays: sessions, and what the allocator keeps.
    fresh = resident_kib(program)
    first = crowd("crowd0", 0.1)
    result_of(first, 90)
    each = (resident_kib(program) - fresh) / streams
    vanish(first)
    before = resident_kib(program)

    second = crowd("crowd1", seconds)
    second.wait_for("open", 90)
    held, opened_at = resident_kib(program), time.monotonic()
    cpu = cpu_seconds(program)
    seen = result_of(second, seconds + 60)
    cpu = (cpu_seconds(program) - cpu) / (time.monotonic() - opened_at)
    late = percentile(seen["gaps"], 0.99) - beat
    print(f"{streams} idle streams for {seconds} s: {each:.1f} KiB resident each with its session, "
          f"{cpu * 100:.1f} % of a core, heartbeats p99 {late * 1000:+.0f} ms, {min(seen['beats'])} to "
          f"{max(seen['beats'])} a stream, longest silence {max(seen['gaps']):.1f} s, at the end {max(seen['tails']):.1f} s")
    assert seen["opened"] == streams and seen["dropped"] == 0
    assert len(seen["beats"]) == len(seen["tails"]) == streams
    assert min(seen["beats"]) >= seconds // beat - 1
    assert late <= 1.0 and percentile(seen["tails"], 0.99) <= beat + 1.0
    assert max(seen["gaps"] + seen["tails"]) < 2 * beat, "a heartbeat is missing"

    gone = vanish(second)
    after = resident_kib(program)
    print(f"vanished without FIN: all gone after {gone:.1f} s, resident {before} -> {held} -> {after} KiB")
    assert gone <= beat + timeout + 2.0
    assert after <= before * ALLOWED


def quick_streams(stage, name, streams, seconds):
    """In seconds the latencies of streams with ten events a second, and by how much a timer of their reader was late."""
    member = stage.start([sys.executable, CROWD, "--port", stage.port, "--streams", streams,
                          "--seconds", seconds, "progress"], name)
    seen = result_of(member, seconds * 3 + 60)
    assert seen["finished"] == streams and seen["dropped"] == 0
    return seen["latencies"], seen["late"]


def test_a_hundred_streams_with_ten_events_a_second_are_quick(stage):
    stage.start_control_plane()
    stage.start_agent(queue__main_in_flight=100, queue__main_depth=200)
    seconds = 60 if FULL else 8
    # The best of three: other programs share the machine.
    best = 1.0
    for attempt in range(3):
        latencies, _ = quick_streams(stage, f"quick{attempt}", 100, seconds)
        best = min(best, percentile(latencies, 0.99))
        print(f"100 streams at 10 events/s: p50 {percentile(latencies, 0.5) * 1000:.1f} ms, "
              f"p99 {percentile(latencies, 0.99) * 1000:.1f} ms")
        if best <= 0.050:
            break
    assert best <= 0.050


class StalledReader:
    """A client that asks for 32 MiB and reads none of it."""

    def __init__(self, stage):
        self.session = stage.client("/mcp/heavy").session
        self._socket = socket.socket()
        # A small window, so that the kernels do not read for it.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        self._socket.connect(("127.0.0.1", stage.port))
        body = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {
            "name": "big", "arguments": {"bytes": 32 << 20}}}).encode()
        self._socket.sendall((f"POST /mcp/heavy HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                              f"Content-Type: application/json\r\nAccept: text/event-stream\r\n"
                              f"Mcp-Session-Id: {self.session}\r\n"
                              f"Content-Length: {len(body)}\r\n\r\n").encode() + body)

    def read_rest(self):
        """What had got through until the stream was cut."""
        self._socket.settimeout(30)
        taken = 0
        with self._socket:
            try:
                while data := self._socket.recv(1 << 16):
                    taken += len(data)
            except ConnectionResetError:
                pass
        return taken


def test_a_slow_reader_costs_its_neighbours_nothing(stage):
    """Full: 1 GiB passes on others, else 128 MiB, while one reader takes nothing of its 32 MiB until it is
    cut: after 20 s, which is the default, else after 3 s."""
    piece, pieces = 16 << 20, 64 if FULL else 8
    seconds, patience = (18, "20s") if FULL else (6, "3s")
    stage.start_control_plane(bridge__slow_reader=patience)
    # Two servers, two agents: what shows must be the bridge's doing.
    stage.start_agent(queue__main_in_flight=32)
    stage.start([BINARIES / "callboard-agent", "--control-plane", f"127.0.0.1:{stage.grpc_port}",
                 "--state-dir", stage.folder / "heavy", "--name", "heavy", "--", sys.executable,
                 COUNTING_SERVER, "--file", stage.runs], "heavy")
    stage.wait_for_seats(2)
    sampled, stop = [], threading.Event()

    def sample():
        while not stop.wait(0.05):
            sampled.append(resident_kib(stage.control_plane))

    def round_of(name):
        """p99 of ten quick streams while large answers pass, that of their reader's own timer; the most that was resident."""
        client = stage.client("/mcp/heavy")
        sampled.clear()

        def load():
            for _ in range(pieces):
                answer = client.call("big", {"bytes": piece}, timeout=120)
                assert len(answer.text) == piece

        loader = threading.Thread(target=load)
        loader.start()
        latencies, late = quick_streams(stage, name, 10, seconds)
        loader.join()
        return percentile(latencies, 0.99), percentile(late, 0.99), max(sampled)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        # The best of three: other programs share the machine.
        for attempt in range(3):
            alone, late, most = round_of(f"alone{attempt}")
            slow = StalledReader(stage)
            beside, late_beside, most_beside = round_of(f"beside{attempt}")
            taken = slow.read_rest()
            # An event passes two processes that are no part of Callboard, the tool and the reader: what a timer of
            # such a process is late by in this very run, twice, shows on a latency that costs nothing.
            allowed = max(2 * alone, 2 * max(late, late_beside))
            print(f"p99 of the neighbours {alone * 1000:.1f} ms, beside a slow reader {beside * 1000:.1f} ms "
                  f"(allowed {allowed * 1000:.1f} ms; timers were late by {late * 1000:.1f} and {late_beside * 1000:.1f} ms); "
                  f"resident at most {most >> 10} and {most_beside >> 10} MiB; the slow one took {taken >> 10} KiB")
            assert taken < 1 << 20
            assert most_beside <= most + (16 << 10)
            if beside <= allowed:
                break
    finally:
        stop.set()
        sampler.join()
    assert beside <= allowed
    # Nobody lost a session for it.
    again = McpClient(stage.port, "/mcp/heavy")
    again.session = slow.session
    assert again.call("echo", {"text": "still here"}).text == "still here"


def test_progress_arrives_at_a_hundred_thousand_events_a_second(stage):
    """From a tool through agent, control plane and bridge to 16 SSE answers: in order, the last step of each
    call and then its result. Full: at least 100 000 a second arrive, else 20 000 a second are sent."""
    source, reader = BINARIES / "bench_progress_source", BINARIES / "bench_progress_reader"
    if not source.exists():
        need("bench_progress_source is not built: cmake -DCALLBOARD_BENCH=ON")
    rate, seconds, wanted = (125_000, 5, 100_000) if FULL else (20_000, 2, 10_000)
    sessions, each = 8, 2
    stage.start_control_plane()
    stage.start_agent(source, name="bench", queue__main_in_flight=16)
    per_call = rate // (sessions * each)
    best = 0
    # The best of five: other programs share the machine.
    for attempt in range(5):
        cpu = [cpu_seconds(program) for program in (stage.control_plane, stage.agent)]
        client = stage.start([reader, stage.port, "/mcp/bench", sessions, each, per_call * seconds, per_call],
                             f"reader{attempt}")
        assert client.process.wait(120) == 0, client.output()
        seen = json.loads(client.output())
        plane, agent = ((cpu_seconds(program) - before) * 1e6 / seen["delivered"]
                        for program, before in zip((stage.control_plane, stage.agent), cpu))
        assert seen["results"] == sessions * each and seen["unordered"] == 0
        arrived = seen["delivered"] / seen["seconds"]
        print(f"{arrived:,.0f} of {rate:,} events/s arrived ({seen['delivered'] / seen['sent']:.1%}), "
              f"callboardd {plane:.1f} us, agent {agent:.1f} us of CPU each")
        best = max(best, arrived)
        if best >= wanted:
            break
    assert best >= wanted


def test_a_stream_at_the_end_of_its_life_is_resumed(stage):
    stage.start_control_plane(bridge__stream_life="3s")
    stage.start_agent()
    answer = stage.client().call("progress", {"steps": 16, "ms": 500}, progress=True)
    assert answer.progress == list(range(1, 17))
    assert answer.text == "16 steps"
    assert 2 <= answer.resumes <= 4


def test_fc_12_a_long_silent_call_carries_comments_and_ends(stage):
    """6 minutes against 15 s; shortened: 8 s against 2 s."""
    stage.start_control_plane(bridge__heartbeat="2s")
    stage.start_agent()
    client = stage.client()
    body = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {
        "name": "count", "arguments": {"id": "long", "ms": 8000}, "_meta": {"progressToken": "t"}}})
    connection = http.client.HTTPConnection("127.0.0.1", stage.port, timeout=20)
    connection.request("POST", "/mcp/counting", body, {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
        "Mcp-Session-Id": client.session})
    response = connection.getresponse()
    last, gap, comments, lines = time.monotonic(), 0.0, 0, []
    while line := response.readline():
        gap = max(gap, time.monotonic() - last)
        last = time.monotonic()
        comments += line.startswith(b": ping")
        lines.append(line)
    connection.close()
    assert gap <= 3.0 and comments >= 3
    assert b"counted long" in b"".join(lines)
    assert stage.begun("long") == 1
