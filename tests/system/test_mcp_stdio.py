"""callboard mcp-stdio under the official clients and bare pipes: what passes, and that no loss of the server leaves a client without an answer."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mcp_http import McpClient, Refused
from stage import BINARIES, wait_until
from supervisor import Supervisor
from tcp_proxy import TcpProxy
from test_client_apps import apps, check, run  # noqa: F401
from test_client_apps import facts as told_of
from test_clients import CLIENTS, run_to_end, values
from test_field_agents import start_agent
from test_restarts import EVENT_SERVER, EVENTS, KINDS, check_events, follow

REFUSING_SERVER = Path(__file__).with_name("refusing_server.py")


def face(port, path="/mcp/counting", *options):
    return [str(BINARIES / "callboard"), "mcp-stdio", "--url", f"http://127.0.0.1:{port}{path}",
            "--log-level", "debug", *options]


@pytest.fixture(params=["typescript", "python"])
def client(request, stage):
    """Starts an official client that makes calls through a stdio face."""
    if request.param == "python":
        command = [sys.executable, CLIENTS / "stdio_steps.py"]
    else:
        shutil.copy(CLIENTS / "stdio_steps.mjs", stage.folder)
        (stage.folder / "node_modules").symlink_to(request.getfixturevalue("node_modules"))
        command = ["node", stage.folder / "stdio_steps.mjs"]

    def start(steps, server):
        plan = stage.folder / "steps.json"
        plan.write_text(json.dumps(steps))
        return stage.start([*command, plan, *server], "client")

    return start


class Pipe:
    """A client on bare pipes."""

    def __init__(self, stage, command, reading=True, env=None):
        self.log = stage.folder / f"pipe-{time.monotonic_ns()}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, env=os.environ | (env or {}))
        stage.on_stop(self.end)
        self.heard = []
        if reading:
            self.read()

    def read(self):
        def run():
            for line in self.process.stdout:
                self.heard.append(json.loads(line))

        threading.Thread(target=run, daemon=True).start()

    def say(self, message):
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self, number, seconds=20):
        return wait_until(lambda: next((m for m in self.heard if m.get("id") == number
                                        and "method" not in m), None),
                          seconds, f"an answer to {number}; heard {self.heard[-5:]}\n{self.logged()}")

    def ask(self, number, method, **params):
        self.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def call(self, number, tool, **arguments):
        self.ask(number, "tools/call", name=tool, arguments=arguments)

    def initialize(self, revision="2025-11-25"):
        self.ask(0, "initialize", protocolVersion=revision, capabilities={},
                 clientInfo={"name": "pipe", "version": "1"})
        result = self.answer(0)["result"]
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def logged(self):
        return self.log.read_text(errors="replace")[-3000:]

    def wait_logged(self, text, seconds=20):
        wait_until(lambda: text in self.log.read_text(errors="replace"), seconds,
                   f"'{text}' in\n{self.logged()}")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


def text_of(message):
    return message["result"]["content"][0]["text"]


# ---- with the official clients ---------------------------------------------------------------


def test_a_session_of_an_official_client(stage, client, fixture_command):
    stage.start_control_plane()
    stage.start_agent(*fixture_command, name="fixture")
    program = client([["test_simple_text", {}, ""], ["test_tool_with_progress", {}, ""],
                      ["test_sampling", {"prompt": "capital?"}, ""],
                      ["test_elicitation", {"message": "who?"}, ""]],
                     face(stage.port, "/mcp/fixture"))
    run_to_end(program)
    assert values(program, "connected")[0]["revision"] == "2025-11-25"
    results = values(program, "result")
    assert results[0] == "This is a simple text response for testing."
    assert values(program, "progress")[:2] == [0, 50]  # the last: see below
    assert "Paris" in results[2]
    assert values(program, "asked") == ["who?"] and "accept" in results[3]
    assert values(program, "closed") == [True]
    assert "stdio_ends" in program.output()
    # The client closes its end, and the session is over at the server, too.
    session = program.output().split("session_connected session=")[1].split()[0]
    assert stage.get("/v1/readyz")[0] == 200
    other = McpClient(stage.port, "/mcp/fixture")
    other.session = session
    with pytest.raises(Refused) as refused:
        other.request("ping", {})
    assert refused.value.status == 404


def test_sigkill_of_callboardd_in_mid_call(stage, client):
    stage.start_control_plane()
    stage.start_agent()
    gate, second = stage.folder / "gate", stage.folder / "second"
    program = client([["count", {"id": "one", "gate": str(gate)}, ""],
                      ["count", {"id": "two"}, str(second)]], face(stage.port))
    stage.wait_begun("one", 20)
    stage.control_plane.kill()
    time.sleep(1)
    stage.restart_control_plane()
    gate.touch()
    wait_until(lambda: values(program, "result"), 30, f"a result:\n{program.output()[-3000:]}")
    second.touch()
    run_to_end(program)
    assert values(program, "result") == ["counted one", "counted two"]
    assert [stage.begun("one"), stage.begun("two")] == [1, 1]
    assert "resumed=1 re_registered=0 failed=0" in program.output(), "it is the same session"


def test_sigkill_of_a_bridge_in_mid_call(stage, client):
    stage.start_control_plane()
    stage.start_agent()
    port = stage.start_bridge("first").port
    stage._programs[-1].end()
    bridge = Supervisor(stage, lambda: stage.start_bridge("bridge", port=port))
    gate = stage.folder / "gate"
    program = client([["count", {"id": "one", "gate": str(gate)}, ""], ["echo", {"text": "on"}, ""]],
                     face(port))
    stage.wait_begun("one", 20)
    bridge.kill()
    bridge.wait_restarted(2)
    gate.touch()
    run_to_end(program)
    assert values(program, "result") == ["counted one", "on"]
    assert stage.begun("one") == 1


def test_a_control_plane_that_is_away_for_longer_than_the_budget(stage, client):
    stage.start_control_plane()
    stage.start_agent()
    gate, again = stage.folder / "gate", stage.folder / "again"
    program = client([["count", {"id": "one", "gate": str(gate)}, ""], ["echo", {"text": "back"}, str(again)]],
                     face(stage.port, "/mcp/counting", "--reconnect-budget", "4s"))
    stage.wait_begun("one", 20)
    stage.control_plane.kill()
    wait_until(lambda: values(program, "error"), 30, f"the call fails:\n{program.output()[-3000:]}")
    error = values(program, "error")[0]
    assert "tool_call_failed" in error["message"]
    assert error["data"]["reason"] == "reconnect_budget_spent"
    assert error["data"]["certainty"] == "unknown"
    assert error["data"]["diagnostics"]["reconnect_attempts"] >= 3
    stage.restart_control_plane()
    gate.touch()
    stage.wait_for_seats(1)
    again.touch()
    run_to_end(program)
    assert values(program, "result") == ["back"]
    assert stage.begun("one") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_restart_at_event_50_of_100(stage, node_modules, number):
    """The same as tests of HTTP clients in test_restarts: what is told, how often, in which order."""
    control_plane = Supervisor(stage, lambda: stage.start_control_plane(bridge__drain="1s"))
    for kind in KINDS:
        start_agent(stage, kind, sys.executable, EVENT_SERVER)
    stage.wait_for_seats(len(KINDS))
    folder, clients = follow(stage, lambda kind: json.dumps(face(stage.port, f"/mcp/{kind}")), node_modules, 50)
    for program in clients:
        wait_until(lambda: len(values(program, "progress")) >= EVENTS // 2, 40,
                   f"half of the events are told:\n{program.output()[-2000:]}")
    control_plane.kill(number)
    for program in clients:
        wait_until(lambda: values(program, "result"), 60, f"the call ends:\n{program.output()[-2000:]}",
                   step=0.1)
        # The TypeScript client takes a response before the notifications that it has read with it.
        check_events(program, exact=number == signal.SIGTERM, last=False)
    (folder / "news").touch()
    for program in clients:
        run_to_end(program)
        assert "re_registered=0 failed=0" in program.output()


def test_python_client_of_the_new_era_falls_back(stage, apps):  # noqa: F811
    stage.start_control_plane()
    stage.start_agent()
    told = told_of(run(stage, [apps[0], CLIENTS / "app_session.py", "v2-stdio", *face(stage.port, "/mcp")]))
    check("Python mcp 2.3.0 on stdio", told, {"2025-11-25"})


def test_the_entry_of_a_client_that_speaks_stdio_only(stage):
    """What client-config prints for Claude Desktop is a command that speaks MCP."""
    stage.start_control_plane()
    stage.start_agent()
    printed = subprocess.run([BINARIES / "callboard", "client-config", "claude-desktop", "--url",
                              f"http://127.0.0.1:{stage.port}/mcp"], capture_output=True, text=True,
                             timeout=10, check=True).stdout
    entry = json.loads(printed)["mcpServers"]["callboard"]
    pipe = Pipe(stage, [entry["command"], *entry["args"]])
    assert pipe.initialize()["serverInfo"]["name"] == "callboard"


# ---- on bare pipes ---------------------------------------------------------------------------


def test_cuts_in_the_first_moments_of_calls_run_nothing_twice(stage):
    stage.start_control_plane()
    stage.start_agent()
    cable = TcpProxy(stage.port)
    stage.on_close(cable.close)
    pipe = Pipe(stage, face(cable.port))
    pipe.initialize()
    for number in range(1, 6):
        name = f"cut{number}"
        pipe.call(number, "count", id=name, ms=400)
        stage.wait_begun(name)
        cable.cut()
        assert text_of(pipe.answer(number)) == f"counted {name}"
        assert stage.begun(name) == 1
    assert "session_away" in pipe.log.read_text()


def test_a_session_that_is_forgotten_is_opened_anew(stage):
    """A control plane without a store forgets its sessions, and with them which calls it had taken."""
    stage.start_control_plane(store__kind="memory")
    stage.start_agent()
    pipe = Pipe(stage, face(stage.port))
    pipe.initialize()
    pipe.ask(1, "tools/list")
    pipe.answer(1)
    gate = stage.folder / "gate"
    pipe.call(2, "count", id="lost", gate=str(gate))
    stage.wait_begun("lost")
    pipe.call(3, "echo", text="idempotent")  # it waits behind the other
    stage.control_plane.kill()
    stage.restart_control_plane()
    error = pipe.answer(2, 30)["error"]
    assert "tool_call_failed" in error["message"] and error["data"]["reason"] == "session_lost"
    gate.touch()
    assert text_of(pipe.answer(3, 30)) == "idempotent"
    pipe.call(4, "count", id="next")
    assert text_of(pipe.answer(4)) == "counted next"
    assert [stage.begun("lost"), stage.begun("next")] == [1, 1]


@pytest.mark.parametrize("status, reason", [(401, "unauthenticated"), (403, "forbidden")])
def test_401_and_403_stop_it(stage, status, reason):
    mode = stage.folder / "mode"
    mode.write_text("200")
    server = stage.start([sys.executable, REFUSING_SERVER, mode], "server")
    server.wait_for("/mcp")
    url = server.output().split()[0]
    pipe = Pipe(stage, [*face(1)[:2], "--url", url])
    pipe.initialize()
    server.wait_for("GET 405")
    mode.write_text(str(status))
    pipe.call(1, "echo")
    error = pipe.answer(1)["error"]
    assert error["data"]["reason"] == reason and error["data"]["certainty"] == "not_started"
    assert f"refused with {status}" in error["message"]
    before = server.output()
    time.sleep(2)  # a second attempt would come after half a second
    assert server.output() == before
    pipe.call(2, "echo")
    assert pipe.answer(2)["error"]["data"]["reason"] == reason
    mode.write_text("200")
    pipe.call(3, "echo")
    assert text_of(pipe.answer(3))


@pytest.mark.parametrize("mode_after", ["404", "stream"])
def test_404_opens_another_session_and_a_200_alone_does_not_count(stage, mode_after):
    mode = stage.folder / "mode"
    mode.write_text("200")
    server = stage.start([sys.executable, REFUSING_SERVER, mode], "server")
    server.wait_for("/mcp")
    port = int(server.output().split(":")[2].split("/")[0])
    pipe = Pipe(stage, face(port, "/mcp"))
    pipe.initialize()
    pipe.call(1, "echo")
    first = text_of(pipe.answer(1))
    server.kill()
    mode.write_text(mode_after)
    program = [sys.executable, "-c",
               f"import sys; sys.argv = ['x', {str(mode)!r}]; sys.path.insert(0, {str(REFUSING_SERVER.parent)!r});"
               f"import refusing_server; from counting_server import serve; serve(refusing_server.Handler, {port})"]
    again = stage.start(program, "server-again")
    again.wait_for("/mcp")
    pipe.call(2, "echo")
    second = text_of(pipe.answer(2))
    assert first != second, "the call ran in a session that is known"
    talk = [line for line in again.output().splitlines() if line.startswith("POST")]
    assert talk.count("POST 200 initialize") == 1
    assert talk.index("POST 404 ping") < talk.index("POST 200 initialize")


def test_junk_and_huge_lines_are_answered_and_leave_the_rest_alone(stage):
    stage.start_control_plane()
    stage.start_agent()
    pipe = Pipe(stage, face(stage.port))
    pipe.initialize()
    pipe.say(b"this is no JSON")
    pipe.say(b"\xff\xfe\x00")
    pipe.say(b"")
    wait_until(lambda: len(pipe.heard) == 3, 10, f"two errors: {pipe.heard}")
    assert [message["error"]["code"] for message in pipe.heard[1:]] == [-32700, -32700]
    pipe.say(b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"text":"'
             + b"x" * (20 << 20) + b'"}}}')
    assert pipe.answer(5)["error"]["data"]["reason"] == "message_too_large"
    pipe.call(6, "echo", text="y" * (2 << 20))
    assert text_of(pipe.answer(6)) == "y" * (2 << 20)


@pytest.mark.parametrize("how", ["stdin", "SIGTERM", "stdout"])
def test_it_ends_with_its_client(stage, how):
    stage.start_control_plane()
    stage.start_agent()
    pipe = Pipe(stage, face(stage.port), reading=how != "stdout")
    if how == "stdout":
        pipe.ask(0, "initialize", protocolVersion="2025-11-25", capabilities={})
        pipe.process.stdout.readline()
        pipe.process.stdout.close()
        pipe.ask(1, "ping")  # its answer finds nobody
    else:
        pipe.initialize()
        pipe.call(1, "count", id="left", ms=5000)
        stage.wait_begun("left")
        if how == "stdin":
            pipe.process.stdin.close()
        else:
            pipe.process.terminate()
    assert pipe.process.wait(5) == 0, pipe.logged()
    assert "stdio_ends" in pipe.log.read_text()


def test_a_client_that_reads_nothing_costs_no_memory(stage):
    stage.start_control_plane()
    stage.start_agent()
    pipe = Pipe(stage, face(stage.port), reading=False)
    pipe.ask(0, "initialize", protocolVersion="2025-11-25", capabilities={})
    pipe.process.stdout.readline()
    pipe.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    size, calls = 6_000_000, 12
    for number in range(1, calls + 1):
        pipe.call(number, "big", bytes=size)

    def resident():
        fields = Path("/proc", str(pipe.process.pid), "status").read_text().split("VmRSS:")[1].split()
        return int(fields[0]) * 1024

    most, until = 0, time.monotonic() + 4
    while time.monotonic() < until:
        most = max(most, resident())
        time.sleep(0.1)
    assert most < 64 << 20, f"{most >> 20} MiB"
    pipe.read()
    for number in range(1, calls + 1):
        assert len(text_of(pipe.answer(number, 120))) == size


def test_any_revision_and_surface(stage):
    stage.start_control_plane()
    stage.start_agent()
    for revision in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        pipe = Pipe(stage, face(stage.port, "/mcp"))
        assert pipe.initialize(revision)["protocolVersion"] == revision
        pipe.call(1, "search_tools", query="echo")
        assert "counting" in text_of(pipe.answer(1))
        pipe.end()
    host = [*face(1)[:2], "--host", "127.0.0.1", "--port", str(stage.port)]
    for options, tool in ((["--instance", "counting"], "echo"), (["--tools", "*.*.echo"], None)):
        pipe = Pipe(stage, [*host, *options])
        pipe.initialize()
        pipe.ask(1, "tools/list")
        names = [row["name"] for row in pipe.answer(1)["result"]["tools"]]
        assert tool in names if tool else len(names) == 1 and names[0].endswith("__echo")
    pipe = Pipe(stage, face(1)[:2], env={"CALLBOARD_URL": f"http://127.0.0.1:{stage.port}"})
    assert pipe.initialize()["serverInfo"]["name"] == "callboard"


def test_wrong_options_are_told_and_nothing_goes_to_stdout():
    for options in (["--url", "https://h/mcp"], ["--url", "http://h/mcp", "--port", "1"],
                    ["--url", "http://h/mcp/x", "--instance", "y"], ["--reconnect-budget", "soon"],
                    ["--instance", "a", "--tools", "b"]):
        ended = subprocess.run([BINARIES / "callboard", "mcp-stdio", *options], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=10)
        assert ended.returncode == 2 and ended.stdout == "" and ended.stderr, options


def test_a_client_that_comes_before_callboardd(stage):
    stage.start_control_plane()
    stage.control_plane.end()
    pipe = Pipe(stage, face(stage.port, "/mcp"))
    pipe.ask(0, "initialize", protocolVersion="2025-11-25", capabilities={})
    pipe.wait_logged("stdio_begins")
    time.sleep(1)
    stage.restart_control_plane()
    assert pipe.answer(0)["result"]["serverInfo"]["name"] == "callboard"
