"""Settings read again at SIGHUP: what can change is taken, the rest is named, faults do nothing."""

import signal
import subprocess
import sys
import time

import pytest

from stage import BINARIES, COUNTING_SERVER, command_line, descendants, wait_until
from test_backends import gone


def start_configured(stage, program, text, *options):
    config = stage.folder / f"{program}.toml"
    config.write_text(text)
    started = stage.start(
        [BINARIES / program, "--config", config, "--state-dir", stage.folder / program, *options],
        program,
    )
    return started, config


def reload(program, config, text):
    """Writes the file and sends SIGHUP; the new lines of the log, once it has been read."""
    before = len(program.output())
    config.write_text(text)
    program.signal(signal.SIGHUP)
    wait_until(lambda: "settings_" in program.output()[before:], 5, "the settings are read again")
    time.sleep(0.2)  # the log is written in pieces
    return program.output()[before:]


def test_callboardd_takes_budgets_limits_and_log_level(stage):
    first = (
        '[budgets]\nquick_call = "20s"\nheavy_call = "20s"\n'
        '[limits]\nparams_bytes_max = "1MiB"\n'
    )
    plane, config = start_configured(stage, "callboardd", first, "--port", "0", "--grpc-port", "0")
    plane.wait_for("callboardd ready")
    ports = plane.output().split("callboardd ready ")[1].split()
    stage.port, stage.grpc_port = (int(part.rsplit(":", 1)[1]) for part in ports[:2])
    stage.start_agent()
    client = stage.client()
    assert client.call("count", {"id": "a", "ms": 1500}).text == "counted a"
    assert client.call("echo", {"text": "x" * 2000}).text == "x" * 2000

    said = reload(
        plane,
        config,
        '[budgets]\nlink_read_idle = "500ms"\nconnect = "100ms"\nheartbeat = "100ms"\n'
        'quick_call = "600ms"\nheavy_call = "700ms"\n'
        '[limits]\nparams_bytes_max = "1KiB"\n[log]\nlevel = "debug"\n',
    )
    # The link's read idle stays 15 s until a restart, and a call must exceed it: nothing is taken.
    assert "settings_not_reloaded" in said and "link_read_idle (15s)" in said
    assert client.call("count", {"id": "b", "ms": 1500}).text == "counted b"

    said = reload(
        plane,
        config,
        '[budgets]\nquick_call = "16s"\nheavy_call = "17s"\nreceipt = "1h"\n'
        '[limits]\nparams_bytes_max = "1KiB"\n[log]\nlevel = "warn"\n',
    )
    assert "settings_reloaded" in said and "budgets.heavy_call=17s" in said
    assert "settings_need_restart" in said and "budgets.receipt" in said
    refused = client.call("echo", {"text": "x" * 2000})
    assert refused.failed and "1024" in refused.text
    before = plane.output().count("session_opened")
    stage.client()
    time.sleep(0.3)
    assert plane.output().count("session_opened") == before, "info is not told any more"

    said = reload(plane, config, "[budgets\nquick_call = 1")
    assert "settings_not_reloaded" in said and "line 1" in said
    said = reload(plane, config, '[budgets]\nquick_cal = "1s"\n[log]\nlevel = "loud"\n')
    assert "quick_cal" in said and "loud" in said, "every fault is named"
    answer = client.call("count", {"id": "slow", "ms": 20_000}, timeout=25)
    assert answer.failed and 16 < answer.seconds < 19, "the budget of the last good file holds"


def test_callboard_bridge_takes_its_log_level_and_names_the_rest(stage):
    stage.start_control_plane()
    stage.start_agent()
    first = '[bridge]\nheartbeat = "10s"\nretry = "3s"\n'
    bridge, config = start_configured(
        stage,
        "callboard-bridge",
        first,
        "--control-plane",
        f"127.0.0.1:{stage.grpc_port}",
        "--port",
        "0",
    )
    bridge.wait_for("callboard-bridge ready")
    port = int(bridge.output().split("callboard-bridge ready http=")[1].split()[0].split(":")[1])
    client = stage.client(port=port)
    running = client.start_call("count", {"id": "running", "ms": 3000})
    stage.wait_begun("running")

    said = reload(bridge, config, "[bridge\nheartbeat = 1")
    assert "settings_not_reloaded" in said and "line 1" in said
    said = reload(bridge, config, '[bridge]\nheartbeet = "1s"\n[log]\nlevel = "loud"\n')
    assert "heartbeet" in said and "loud" in said, "every fault is named"
    assert "settings_reloaded" not in said

    said = reload(
        bridge, config, '[bridge]\nheartbeat = "5s"\nretry = "3s"\n[log]\nlevel = "warn"\n'
    )
    assert "settings_reloaded" in said and "log.level=warn" in said
    assert "settings_need_restart" in said and "bridge.heartbeat" in said
    assert "bridge.retry" not in said, "it has not changed"
    assert running.result(10).text == "counted running", "no call notices"
    assert client.call("echo", {"text": "still"}).text == "still"
    assert bridge.terminate() == 0
    assert "draining" not in bridge.output(), "info is not told any more"


SERVER = f"{sys.executable} {COUNTING_SERVER} --file {{}}"
WRAPPER = f"trap '' TERM; sleep 600 & {SERVER}; wait"


@pytest.mark.parametrize("quiet", [True, False])
def test_fc_33_a_changed_backend_replaces_the_former_one_and_leaves_no_orphans(stage, quiet):
    """A shell wrapper with a grandchild, deaf to SIGTERM; never two copies, no zombies."""
    stage.start_control_plane()
    command = (f"exec {SERVER}" if quiet else WRAPPER).format(stage.runs)
    text = '[backend]\nname = "counting"\ncommand = """{}"""\n[log]\nlevel = "debug"\n'
    agent, config = start_configured(
        stage,
        "callboard-agent",
        text.format(command),
        "--control-plane",
        f"127.0.0.1:{stage.grpc_port}",
    )
    stage.agent = agent
    stage.wait_for_seats(1)
    client = stage.client()
    assert client.call("echo", {"text": "first"}).text == "first"
    pids = descendants(agent.pid)

    second = stage.folder / "second.txt"
    started = time.monotonic()
    config.write_text(text.format(f"exec {SERVER.format(second)}"))
    agent.signal(signal.SIGHUP)
    most = 0
    while not gone(pids):
        servers = [
            pid for pid in descendants(agent.pid) if command_line(pid).startswith(sys.executable)
        ]
        most = max(most, len(servers))
        assert time.monotonic() - started < 5
        time.sleep(0.01)
    assert most <= 1, "never two copies at once"
    wait_until(lambda: "settings_reloaded" in agent.output(), 5, "the new settings in the log")
    stage.wait_for_seats(1)

    def works():
        return not stage.client().call("count", {"id": "new"}).failed and second.exists()

    wait_until(works, 10, "the second server answers", step=0.2)
    assert [event for event, call, _ in stage.events(second)][:2] == ["begin", "end"]
    children = subprocess.run(
        ["ps", "--ppid", str(agent.pid), "-o", "stat="], capture_output=True, text=True
    ).stdout
    assert "Z" not in children, "no zombies"
    said = reload(agent, config, '[backend]\nname = "counting"\n')
    assert "settings_not_reloaded" in said and "backend.command" in said
    assert client.call("echo", {"text": "still"}).text == "still"
