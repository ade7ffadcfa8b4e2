"""Field cases about agents: broken backends among good ones, storms, silence, taken ports."""

import contextlib
import datetime
import json
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from conftest import FULL
from stage import BINARIES, COUNTING_SERVER, wait_until
from tcp_proxy import TcpProxy


def start_agent(stage, name, *backend):
    """One more agent of its own, that need not become ready; backend as for Stage.start_agent."""
    command = [
        BINARIES / "callboard-agent",
        "--control-plane",
        f"127.0.0.1:{stage.grpc_port}",
        "--state-dir",
        stage.folder / f"agent-{name}",
        "--name",
        name,
        "--log-level",
        "debug",
    ]
    command += ["--url", backend[0]] if str(backend[0]).startswith("http") else ["--", *backend]
    return stage.start(command, f"agent-{name}")


@pytest.fixture
def closed_port():
    """A socket whose port nobody listens on while it is open."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held


def instances(client):
    rows = client.call("list_instances").result["structuredContent"]["instances"]
    return {row["instance"]: row for row in rows}


def start_broken(stage, port):
    start_agent(stage, "refused", f"http://127.0.0.1:{port}/mcp")
    start_agent(stage, "missing", "no-such-command-anywhere", "--serve")
    facade = stage.client("/mcp")

    def told():
        rows = instances(facade)
        return {"refused", "missing"} <= set(rows) and all(
            rows[name].get("reason") for name in ("refused", "missing")
        )

    wait_until(told, 10, "why both are not well", step=0.1)
    return facade


def test_fc_08_broken_backends_are_shown_with_the_reason_and_cost_the_good_one_nothing(
    stage, closed_port
):
    stage.start_control_plane()
    stage.start_agent()
    start_broken(stage, closed_port.getsockname()[1])
    started = time.monotonic()
    facade = stage.client("/mcp")  # initialize while two are broken
    assert time.monotonic() - started < 1

    hits = facade.call("search_tools", {"query": "echo"}).result["structuredContent"]["hits"]
    assert {hit["instance"] for hit in hits} == {"counting"}
    slug = next(hit["slug"] for hit in hits if hit["slug"].endswith(".echo"))
    answer = facade.call("call_tool", {"tool_slug": slug, "arguments": {"text": "well"}})
    assert answer.text == "well" and answer.seconds < 1
    assert [tool["name"] for tool in stage.client().tools()] == ["count", "big", "progress", "echo"]

    rows = instances(facade)
    assert rows["counting"]["status"] == "available" and "reason" not in rows["counting"]
    for name, reason in (("refused", "Connection refused"), ("missing", "command not found")):
        assert rows[name]["status"] == "unresponsive", rows[name]
        assert reason in rows[name]["reason"], rows[name]
    done = subprocess.run(
        [BINARIES / "callboard", "--address", f"127.0.0.1:{stage.grpc_port}", "ps", "-o", "wide"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert "Connection refused" in done.stdout and "command not found" in done.stdout


def test_fc_08_with_every_backend_broken_a_call_gets_an_error_and_no_lost_connection(
    stage, closed_port
):
    stage.start_control_plane(budgets__queue="2s")
    start_broken(stage, closed_port.getsockname()[1])
    started = time.monotonic()
    facade = stage.client("/mcp")
    assert time.monotonic() - started < 1
    answer = facade.call("call_tool", {"tool_slug": "counting.01234567.echo", "arguments": {}})
    assert answer.failed and "there are: missing, refused" in answer.text
    for name in ("refused", "missing"):
        client = stage.client(f"/mcp/{name}")
        answer = client.call("echo", timeout=10)
        assert answer.failed and answer.seconds < 5, answer.text
        assert answer.error["data"]["certainty"] == "not_started"
    # What is broken may be mended without anybody's help.
    port = closed_port.getsockname()[1]
    closed_port.close()
    server = stage.start(
        [sys.executable, COUNTING_SERVER, "--file", stage.runs, "--http", port], "mended"
    )
    server.wait_for("/mcp")
    stage.wait_for_seats(1)
    assert stage.client("/mcp/refused").call("echo", {"text": "mended"}).text == "mended"
    assert "reason" not in instances(facade)["refused"]


# -- the link ------------------------------------------------------------


def times_of(program, event):
    """When an event stands in a program's log, in seconds of the epoch."""
    stamps = re.findall(rf"^(\S+) \w+ {event} ", program.output(), re.MULTILINE)
    return [datetime.datetime.fromisoformat(stamp).timestamp() for stamp in stamps]


def test_fc_11_twenty_agents_come_back_after_their_gateway_was_away(stage):
    """Away for fifteen minutes in the full tier, for ten seconds else; the unit test of that name has the whole time, too."""
    away = 900 if FULL else 10
    stage.start_control_plane(budgets__heavy_call="2000s")
    agents = [
        start_agent(stage, f"a{n}", sys.executable, COUNTING_SERVER, "--file", stage.runs)
        for n in range(20)
    ]
    stage.wait_for_seats(20, 60)
    client = stage.client("/mcp/a7")
    running = client.start_call("count", {"id": "reconciled", "ms": 3000}, timeout=away + 60)
    stage.wait_begun("reconciled")
    wait_until(lambda: running.answer.event_ids, 5, "the call's stream is open")
    stage.control_plane.kill()
    killed = time.time()
    time.sleep(away)
    opened = time.time()
    stage.restart_control_plane()
    stage.wait_for_seats(20, 60)
    most = [0, 0]
    back = []
    for agent in agents:
        # Every attempt fails but the last, and each that fails is told.
        agent.wait_for("info link_up", count=2)
        failed = [when - killed for when in times_of(agent, "link_fails")]
        back.append(times_of(agent, "link_up")[-1] - opened)
        assert agent.running and len(failed) >= 1
        most[0] = max(most[0], sum(when < 60 for when in failed))
        for minute in range(1, away // 60):
            tried = sum(60 * minute <= when < 60 * (minute + 1) for when in failed)
            most[1] = max(most[1], tried)
    print(f"an agent tried at most {most[0]} times in the first minute, {most[1]} in a later one; "
          f"back {min(back):.2f} to {max(back):.2f} s after the port was open")
    assert most[0] <= 30 and most[1] <= 20
    assert max(back) <= 60
    assert max(back) - min(back) > 0.1, "not all at the same moment"
    assert running.result(10).text == "counted reconciled"
    assert stage.begun("reconciled") == 1, "what was in flight has not been run again"
    assert stage.client("/mcp/a7").call("echo", {"text": "back"}).text == "back"


def test_fc_16_pings_of_an_idle_link_go_on_and_offend_nobody(stage):
    """Pings each 20 s for 40 minutes in the full tier, each second for half a minute else; nothing else is on the link."""
    keepalive, rounds = (20, 40) if FULL else (1, 9)
    stage.start_control_plane(
        budgets__heartbeat="3000s",
        budgets__link_read_idle="9000s",
        budgets__quick_call="10000s",
        budgets__heavy_call="11000s",
    )
    proxy = TcpProxy(stage.grpc_port)
    stage.on_close(proxy.close)
    stage.start_agent(address=f"127.0.0.1:{proxy.port}", link__keepalive=f"{keepalive}s")
    time.sleep(3 * keepalive)
    counts = [proxy.relayed]
    for _ in range(rounds):
        time.sleep(3 * keepalive)
        counts.append(proxy.relayed)
    ping = 9 + 8  # a frame's head and its payload
    grown = [later - earlier for earlier, later in zip(counts, counts[1:])]
    assert all(grown_by >= 4 * ping for grown_by in grown), f"pings stopped: {grown}"
    assert proxy.accepted == 1
    assert stage.agent.output().count("link_up") == 1
    assert "link_down" not in stage.agent.output() + stage.control_plane.output()
    assert "ENHANCE_YOUR_CALM" not in stage.agent.output() + stage.control_plane.output()
    assert stage.client().call("echo", {"text": "awake"}).text == "awake"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/counting"])
def test_a_caller_hears_that_its_seats_agent_is_away_and_gets_its_answer_later(stage, path):
    stage.start_control_plane(
        budgets__connect="500ms", budgets__heartbeat="500ms", budgets__link_read_idle="1500ms"
    )
    stage.start_agent()
    client = stage.client(path)
    tool, arguments = "echo", {"text": "late"}
    if path == "/mcp":
        hits = client.call("search_tools", {"query": "echo"}).result["structuredContent"]["hits"]
        slug = next(hit["slug"] for hit in hits if hit["slug"].endswith(".echo"))
        tool, arguments = "call_tool", {"tool_slug": slug, "arguments": arguments}
    stage.agent.signal(signal.SIGSTOP)
    wait_until(lambda: stage.live_seats() == 0, 10, "the agent is missed")
    call = client.start_call(tool, arguments, progress=True, timeout=40)
    time.sleep(1)
    stage.agent.signal(signal.SIGCONT)
    answer = call.result(45)
    assert answer.text == "late"
    first = answer.notifications[0]["params"]
    assert "waiting for the seat's agent to connect" in first["message"]
    assert answer.progress == sorted(answer.progress) and answer.progress[0] == -1


# -- start-up ------------------------------------------------------------


def start_gateway(stage, port, name):
    command = [BINARIES / "callboardd", "--host", "127.0.0.1", "--port", port, "--grpc-port", 0]
    return stage.start([*command, "--state-dir", stage.folder / name], name)


def test_fc_38_of_three_gateways_at_the_same_moment_one_wins(stage):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = time.monotonic()
    three = [start_gateway(stage, port, f"gateway{n}") for n in range(3)]
    wait_until(lambda: sum(not gateway.running for gateway in three) == 2, 10, "two have left")
    assert time.monotonic() - started < 5
    winner = next(gateway for gateway in three if gateway.running)
    winner.wait_for("callboardd ready")
    for loser in three:
        if loser is not winner:
            assert loser.process.returncode != 0
            lines = [line for line in loser.output().splitlines() if str(port) in line]
            assert len(lines) == 1 and "127.0.0.1" in lines[0] and "in use" in lines[0]
    stage.port = port
    assert stage.get("/health")[0] == 200
    assert winner.terminate() == 0
    # What the last one left in TIME_WAIT is no obstacle to the next.
    start_gateway(stage, port, "next").wait_for("callboardd ready", 5)
    ports = json.loads((stage.folder / "next" / "ports.json").read_text())
    assert ports["http"] == port
