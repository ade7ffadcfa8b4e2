"""Small things stay quick beside a large one: cancels, heartbeats and events while 64 MiB cross a slow path."""

import hashlib
import json
import statistics
import sys
import threading
import time

from counting_server import pattern
from figures import percentile
from mcp_http import McpClient
from shaped_path import ShapedPath, measured_rate

BITS_PER_SECOND = 200e6
DELAY = 0.005
SIZE = 64 << 20
SAMPLES = 100
HEARTBEAT = 0.1
LIMIT = 0.050


def report(what, values):
    print(f"{what}: n={len(values)} p50={percentile(values, 0.5) * 1000:.1f} ms "
          f"p99={percentile(values, 0.99) * 1000:.1f} ms max={max(values) * 1000:.1f} ms")


class Transfers:
    """Carries the large result again and again in a process of its own, until stop().

    In this one the parsing of 64 MiB would hold up the path and the clients.
    """

    def __init__(self, stage):
        self._program = stage.start([sys.executable, __file__, stage.port], "transfers")

    def stop(self):
        """Mbit/s of each."""
        assert self._program.running, self._program.output()
        self._program.process.terminate()
        self._program.process.wait(10)
        rates = [float(line) for line in self._program.output().splitlines()]
        assert rates
        return rates


def transfer_forever(port):
    client = McpClient(port, "/mcp/large")
    client.initialize()
    expected = hashlib.sha256(pattern(SIZE).encode()).hexdigest()
    while True:
        answer = client.call("big", {"bytes": SIZE}, timeout=60)
        if hashlib.sha256(answer.text.encode()).hexdigest() != expected:
            sys.exit(f"{len(answer.text)} characters arrived, not the {SIZE} sent")
        print(f"{SIZE * 8 / 1e6 / answer.seconds:.0f}", flush=True)


class Watch:
    """Follows a file of the counting server and notes when each line has been seen first."""

    def __init__(self, stage, file):
        self._stage, self._file = stage, file

    def wait(self, event, call, seconds=10):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for seen, which, when in self._stage.events(self._file)[-6:]:
                if (seen, which) == (event, call):
                    return when
            time.sleep(0.002)
        raise AssertionError(f"no '{event} {call}' in {self._file.name}")


def cancel_latencies(stage, count):
    """From the client's POST of notifications/cancelled to the backend's receipt of it."""
    client = stage.client("/mcp/small")
    watch = Watch(stage, stage.folder / "small.txt")
    found = []
    for number in range(count):
        call = f"call-{number}"
        body = {"jsonrpc": "2.0", "id": client.next_id(), "method": "tools/call",
                "params": {"name": "count", "arguments": {"id": call, "ms": 300}}}
        running = threading.Thread(target=client.post, args=(body,), daemon=True)
        running.start()
        watch.wait("begin", call)
        sent = time.time()
        client.notify("notifications/cancelled", {"requestId": body["id"], "reason": "enough"})
        found.append(watch.wait("cancelled", call) - sent)
        running.join(10)
        watch.wait("end", call)
    return found


def event_latencies(client, steps, milliseconds):
    """From the backend's sending of a progress event to its arrival at the client."""
    answer = client.call("progress", {"steps": steps, "ms": milliseconds}, timeout=60, progress=True)
    assert answer.text == f"{steps} steps"
    assert answer.progress == list(range(1, steps + 1))
    # The first ones wait for the stream to be opened.
    return [arrival - float(note["params"]["message"])
            for note, arrival in zip(answer.notifications, answer.arrivals)][20:]


def heartbeat_latencies(stage, count):
    """How late each heartbeat of the agent came, as the control plane has seen its idle seat.

    A beat that is held up makes the time since the one before longer by just that. Each is seen in
    many answers; the earliest arrival among them is its own, the others held up on their way here.
    """
    client = stage.client("/mcp")
    arrivals = []
    deadline = time.monotonic() + 3 * count * HEARTBEAT
    while len(arrivals) <= count and time.monotonic() < deadline:
        text = client.call("list_instances", {}).text
        rows = json.JSONDecoder().raw_decode(text)[0]["instances"]
        row = next(row for row in rows if row["instance"] == "steady")
        arrival = time.monotonic() - row["last_seen_ms"] / 1000
        if not arrivals or arrival - arrivals[-1] > HEARTBEAT / 2:
            arrivals.append(arrival)
        else:
            arrivals[-1] = min(arrivals[-1], arrival)
        time.sleep(0.005)
    intervals = [after - before for before, after in zip(arrivals, arrivals[1:])]
    usual = statistics.median(intervals)
    return [DELAY + max(0, interval - usual) for interval in intervals]


def quick(what, measure):
    """Whether the best of three is below the limit: others share the machine, but what is slow by itself always is."""
    for _ in range(3):
        values = measure()
        report(what, values)
        assert len(values) >= SAMPLES
        if percentile(values, 0.99) < LIMIT:
            return True
    return False


def test_cancels_heartbeats_and_events_are_quick_beside_a_large_result(stage):
    for _ in range(10):
        rate = measured_rate(BITS_PER_SECOND, DELAY)
        if rate > 150e6:
            break
        time.sleep(2)  # others share the machine
    assert 150e6 < rate < 205e6, f"the path gives {rate / 1e6:.0f} Mbit/s; is the machine busy?"
    stage.start_control_plane(budgets__heavy_call="60s", budgets__quick_call="60s",
                              budgets__heartbeat=f"{HEARTBEAT * 1000:.0f}ms")
    path = ShapedPath(stage.grpc_port, BITS_PER_SECOND, DELAY)
    stage.on_close(path.close)
    stage.start_registry_agent(["large", "small", "steady"], f"127.0.0.1:{path.port}")

    alone = event_latencies(stage.client("/mcp/steady"), 60, 10)
    transfers = Transfers(stage)
    time.sleep(2)  # the first result is made, and on its way
    report("events alone", alone)
    assert quick("events", lambda: event_latencies(stage.client("/mcp/steady"), 400, 10))
    assert quick("cancels", lambda: cancel_latencies(stage, SAMPLES))
    assert quick("heartbeats", lambda: heartbeat_latencies(stage, SAMPLES))
    print(f"path: {rate / 1e6:.0f} Mbit/s; results of 64 MiB, made and carried, at Mbit/s: {transfers.stop()}")


if __name__ == "__main__":
    transfer_forever(int(sys.argv[1]))
