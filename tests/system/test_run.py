"""./run as a command: what it serves by --name, that signals leave nothing behind, and what it says when it cannot start."""

import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from mcp_http import McpClient
from stage import COUNTING_SERVER, ROOT, Program, command_line, descendants, port_is_free, wait_until


class Run:
    """A started ./run, with a mark in its environment by which everything it starts is found."""

    def __init__(self, stage, *arguments, ignore_sigint=False):
        self.stage = stage
        self.mark = f"CALLBOARD_TEST_MARK={uuid.uuid4().hex}"
        key, value = self.mark.split("=")
        before = signal.getsignal(signal.SIGINT)
        if ignore_sigint:  # as a shell script does it for a job started with &
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.program = stage.start(
                [ROOT / "run", "--port", 0, "--grpc-port", 0, "--state-dir", stage.folder / "state",
                 *arguments], "run", os.environ | {key: value})
        finally:
            signal.signal(signal.SIGINT, before)

    def wait_ready(self):
        self.program.wait_for("Ctrl-C stops everything", 60)
        self.stage.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/mcp", self.program.output())[1])
        return self

    def left_behind(self):
        """Command lines of processes that carry the mark."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if self.mark.encode() in Path("/proc", entry, "environ").read_bytes():
                    found.append(f"{entry} {command_line(entry)}")
            except OSError:
                pass
        return found


def counting(stage):
    return ["--name", "counting", "--", sys.executable, COUNTING_SERVER, "--file", stage.runs]


def test_serves_exactly_one_stdio_server(stage):
    Run(stage, *counting(stage)).wait_ready()
    client = McpClient(stage.port, "/mcp/counting")
    client.initialize()
    assert {tool["name"] for tool in client.tools()} == {"count", "big", "progress", "echo"}
    assert client.call("echo", {"text": "over stdio"}).text == "over stdio"
    facade = McpClient(stage.port)
    facade.initialize()
    assert "openusd" not in facade.call("list_instances").text


def test_serves_exactly_one_http_server(stage):
    server = Program([sys.executable, COUNTING_SERVER, "--file", stage.runs, "--http", 0],
                     stage.folder / "counting.log")
    stage.on_close(server.end)
    server.wait_for("/mcp")
    Run(stage, "--name", "counting", "--url", server.output().strip()).wait_ready()
    client = McpClient(stage.port, "/mcp/counting")
    client.initialize()
    assert client.call("echo", {"text": "over http"}).text == "over http"


@pytest.mark.parametrize("number, ignored", [(signal.SIGINT, False), (signal.SIGINT, True),
                                             (signal.SIGTERM, False)],
                         ids=["SIGINT", "SIGINT-of-a-background-job", "SIGTERM"])
@pytest.mark.parametrize("what", ["server", "openusd"])
def test_signal_stops_everything(stage, number, ignored, what):
    run = Run(stage, *(counting(stage) if what == "server" else []), ignore_sigint=ignored)
    run.wait_ready()
    assert len(run.left_behind()) >= 4
    run.program.signal(number)
    assert run.program.process.wait(30) == 0, run.program.output()
    assert run.left_behind() == []
    assert port_is_free(stage.port)


def test_port_in_use_is_named_with_what_helps(stage):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = Run(stage, "--port", port, *counting(stage))
        assert run.program.process.wait(60) == 1
    message = run.program.output()
    assert f"port {port}" in message and "in use" in message and "--port" in message
    assert run.left_behind() == []


def test_second_run_in_the_same_state_folder_is_refused(stage):
    first = Run(stage, *counting(stage)).wait_ready()
    second = subprocess.run(
        [ROOT / "run", "--port", "0", "--grpc-port", "0", "--state-dir", stage.folder / "state",
         *map(str, counting(stage))], capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert "--state-dir" in second.stderr and str(first.program.pid) in second.stderr
    assert first.program.running


def test_death_of_the_agent_ends_the_run_with_its_last_lines(stage):
    run = Run(stage, *counting(stage)).wait_ready()
    agent = next(pid for pid in descendants(run.program.pid)
                 if "callboard-agent" in command_line(pid))
    os.kill(agent, signal.SIGKILL)
    assert run.program.process.wait(30) == 1
    assert "callboard-agent was killed by SIGKILL" in run.program.output()
    wait_until(lambda: run.left_behind() == [], 5, "everything has ended")


def test_death_of_the_dcc_is_told_and_the_stage_goes_on(stage):
    run = Run(stage).wait_ready()
    dcc = next(pid for pid in descendants(run.program.pid)
               if "dcc-mcp-openusd" in command_line(pid))
    os.kill(dcc, signal.SIGKILL)
    run.program.wait_for("openusd was killed by SIGKILL", 5)
    run.program.wait_for("The stage goes on without it.", 5)
    assert stage.get("/health")[0] == 200
    run.program.signal(signal.SIGTERM)
    assert run.program.process.wait(30) == 0


def test_missing_program_is_told_before_anything_starts(stage):
    run = Run(stage, "--name", "x", "--", "no-such-program-here")
    assert run.program.process.wait(60) == 1
    assert "no-such-program-here" in run.program.output()
