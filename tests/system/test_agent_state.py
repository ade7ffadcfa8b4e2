"""What an agent's state folder is for: a kill under load, a copy of it, a disk that is full."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import need
from stage import wait_until

SEATS = 4
CALLS_PER_SEAT = 10
TOOL_MS = 250


def test_agent_killed_under_load_loses_no_call_and_runs_none_twice(stage):
    stage.start_control_plane(budgets__heavy_call="30s")
    names = [f"dcc{number}" for number in range(SEATS)]
    stage.start_registry_agent(names)
    clients = [stage.client(f"/mcp/{name}") for name in names]
    calls = {}
    for number in range(CALLS_PER_SEAT):
        for name, client in zip(names, clients):
            key = f"{name}-{number}"
            calls[name, key] = client.start_call("count", {"id": key, "ms": TOOL_MS}, timeout=60)
    files = {name: stage.folder / f"{name}.txt" for name in names}
    wait_until(lambda: sum(len(stage.events(file)) for file in files.values()) >= 4 * SEATS, 20,
               "all seats are at work")
    stage.agent.kill()
    killed = time.time()
    stage.restart_agent(wait=False)

    answers = {key: call.result(60) for key, call in calls.items()}
    unknown = []
    unbegun = 0
    for (name, key), answer in answers.items():
        begun = [when for event, call, when in stage.events(files[name]) if (event, call) == ("begin", key)]
        assert len(begun) <= 1, f"{key} has run {len(begun)} times"
        if not answer.failed:
            assert answer.text == f"counted {key}"
            assert len(begun) == 1
            continue
        # Unknown only where the tool had started before the agent died, and it says all it knows.
        data = answer.error["data"]
        assert data["certainty"] == "unknown", answer.text
        assert data["reason"] == "agent_restarted", answer.text
        assert data["diagnostics"]["call_age_ms"] > 0
        assert data["diagnostics"]["instance"]
        assert all(when < killed + 1 for when in begun), key  # its request may have been on its way
        unknown.append(name)
        unbegun += not begun
    # One call at a time was at work at each seat.
    assert 1 <= len(unknown) <= SEATS
    assert len(unknown) == len(set(unknown)), unknown
    # The journal comes before the first byte: between the two at most one call can have been.
    assert unbegun <= 1


def test_copied_state_folder_is_refused_while_its_original_serves(stage):
    stage.start_control_plane(budgets__heavy_call="30s")
    original = stage.start_agent()
    client = stage.client()
    running = client.start_call("count", {"id": "running", "ms": 1500}, timeout=20)
    stage.wait_begun("running")
    copied = stage.folder / "copied"
    shutil.copytree(stage.folder / "agent", copied)
    command = [str(copied) if part == str(stage.folder / "agent") else part for part in original.command]
    clone = stage.start(command, "clone")
    clone.wait_for("link_refused")
    assert f"in use by {os.uname().nodename} pid {original.pid}" in clone.output()
    assert "link_up" not in clone.output()
    assert running.result(20).text == "counted running"
    assert stage.begun("running") == 1
    assert stage.control_plane.output().count("link_down") == 0


@pytest.fixture
def small_disk(tmp_path):
    """A folder in which the agent, wrapped, finds a file system of 1 MiB of its own."""
    if os.geteuid() != 0:
        need("mounting a small tmpfs needs root")
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        need(f"unshare -m: {probe.stderr.strip()}")
    return tmp_path / "agent"


def test_full_disk_starts_nothing_and_serves_again_when_there_is_room(stage, small_disk):
    def wrap(command):
        script = f"mkdir -p {small_disk} && mount -t tmpfs -o size=1m tmpfs {small_disk} && exec \"$@\""
        return ["unshare", "-m", "sh", "-c", script, "sh", *command]

    stage.start_control_plane(budgets__heavy_call="30s")
    stage.start_agent(wrap=wrap)
    client = stage.client()
    assert not client.call("count", {"id": "before"}).failed

    # A call at work when the disk fills up ends well all the same.
    running = client.start_call("count", {"id": "running", "ms": 1000}, timeout=20)
    stage.wait_begun("running")
    inside = Path(f"/proc/{stage.agent.pid}/root{small_disk}")
    filler = inside / "filler"
    with open(filler, "wb", buffering=0) as out:
        try:
            while out.write(bytes(512)):
                pass
        except OSError:
            pass
    assert running.result(20).text == "counted running"

    # What is left of the journal's last page takes some records more.
    for number in range(200):
        refused = client.call("count", {"id": f"full-{number}"}, timeout=20)
        if refused.failed:
            break
        assert stage.begun(f"full-{number}") == 1
    assert refused.failed
    assert refused.error["data"]["reason"] == "journal_unwritable", refused.text
    assert refused.error["data"]["certainty"] == "not_started"
    assert stage.begun(f"full-{number}") == 0
    stage.agent.wait_for("journal_unwritable")

    filler.unlink()
    assert client.call("count", {"id": "after"}, timeout=20).text == "counted after"
    assert stage.begun(f"full-{number}") == 0
    stage.agent.wait_for("journal_writable")
