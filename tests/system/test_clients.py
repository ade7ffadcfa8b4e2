"""The official MCP clients against the bridge: a whole session, and a stream that is cut in mid-call and resumed without loss."""

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from stage import wait_until
from tcp_proxy import TcpProxy

CLIENTS = Path(__file__).with_name("clients")


@pytest.fixture(params=["typescript", "python"])
def client_command(request, stage):
    """The command of an official client."""
    if request.param == "python":
        return [sys.executable, CLIENTS / "session.py"]
    # A module finds its packages by its own place, so it is run from beside them.
    modules = request.getfixturevalue("node_modules")
    script = stage.folder / "session.mjs"
    shutil.copy(CLIENTS / "session.mjs", script)
    (stage.folder / "node_modules").symlink_to(modules)
    return ["node", script]


def facts(program):
    """[(fact, value)] as the client has told them so far; other lines are its own logging."""
    lines = [line for line in program.output().splitlines() if line.startswith('{"fact"')]
    return [(entry["fact"], entry["value"]) for entry in map(json.loads, lines)]


def values(program, fact):
    return [value for name, value in facts(program) if name == fact]


def run_to_end(program, seconds=55):
    wait_until(lambda: not program.running, seconds, f"the client ends:\n{program.output()[-2000:]}")
    assert program.process.returncode == 0, program.output()[-3000:]


def test_session_against_the_conformance_fixture(stage, client_command, fixture_command):
    # The fixture obeys a cancel and never answers, so its slot comes back by budget and silence.
    stage.start_control_plane(budgets__connect="500ms", budgets__heartbeat="500ms",
                              budgets__link_read_idle="1500ms", budgets__quick_call="5s",
                              budgets__heavy_call="5s")
    stage.start_agent(*fixture_command, name="fixture", queue__silence_max="1s")
    url = f"http://127.0.0.1:{stage.port}/mcp/fixture"
    program = stage.start([*client_command, url, "all"], "client")
    run_to_end(program)
    told = dict(facts(program))
    assert told["connected"]["revision"] == "2025-11-25"
    assert told["connected"]["session"] is True
    assert {"test_simple_text", "test_tool_with_progress", "slow_compute"} <= set(told["tools"])
    assert told["text"] == "This is a simple text response for testing."
    assert told["progress"] == [[0, 100, "Completed step 0 of 100"],
                                [50, 100, "Completed step 50 of 100"],
                                [100, 100, "Completed step 100 of 100"]]
    assert 500 < told["cancelled"]["ms"] < 1500
    assert told["after"] == "This is a simple text response for testing."
    assert told["closed"] is True


def test_cut_stream_of_the_fixture_is_resumed(stage, client_command, fixture_command):
    stage.start_control_plane()
    stage.start_agent(*fixture_command, name="fixture")
    cable = TcpProxy(stage.port)
    stage.on_close(cable.close)
    program = stage.start([*client_command, f"http://127.0.0.1:{cable.port}/mcp/fixture", "call",
                           "slow_compute", '{"seconds": 2}'], "client")
    wait_until(lambda: values(program, "connected"), 20, "the client is connected")
    time.sleep(1)  # the call's stream is open since 250 ms, and primed
    assert cable.cut() >= 1
    run_to_end(program)
    assert values(program, "result") == ["computed for 2 s"]


def test_cut_stream_with_progress_is_resumed_without_loss(stage, client_command):
    stage.start_control_plane()
    stage.start_agent()
    cable = TcpProxy(stage.port)
    stage.on_close(cable.close)
    program = stage.start([*client_command, f"http://127.0.0.1:{cable.port}/mcp/counting", "call",
                           "progress", '{"steps": 12, "ms": 300}'], "client")
    wait_until(lambda: len(values(program, "progress")) >= 3, 20, "three steps are told")
    assert cable.cut() >= 1
    run_to_end(program)
    # In order, without a hole and without a repetition.
    assert values(program, "progress") == list(range(1, 13))
    assert values(program, "result") == ["12 steps"]
