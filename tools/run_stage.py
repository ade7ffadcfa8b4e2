#!/usr/bin/env python3
"""Starts callboardd, callboard-agent and a DCC (or one MCP server) as children, tells how to use them, and stops them all."""

import argparse
import ctypes
import errno
import fcntl
import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARIES = ROOT / "build" / "release" / "bin"
HOST = "127.0.0.1"
READY_SECONDS = 20  # for callboardd and the agent
SEAT_SECONDS = 60   # for the DCC or the server to appear in the list
# How long each child has after SIGTERM before SIGKILL.
STOP_SECONDS = {"openusd": 5, "blender": 5, "callboard-agent": 10, "callboardd": 10}
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)

BLENDER_MAIN = "from dcc_mcp_blender.blender_bootstrap import main; main(port=None)"

INITIALIZE = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    '"capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}'
)


class StageError(Exception):
    """Something that keeps the stage from running; the text is for the user."""


class StopRequested(Exception):
    """SIGINT or SIGTERM has come."""


class Child:
    """One program in a session of its own, with its output in a log file."""

    def __init__(self, name, command, log, env=None, cwd=None):
        self.name = name
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
                env=env,
                cwd=cwd,
            )

    @property
    def pid(self):
        return self.process.pid

    def exit_text(self):
        """None while it runs, else how it ended, in words."""
        code = self.process.poll()
        if code is None:
            return None
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with status {code}"

    def last_lines(self, count=15):
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join("    " + line for line in text[-count:]) or "    (it wrote nothing)"

    def stop(self, seconds):
        """SIGTERM, then SIGKILL for what is left of its process group."""
        if self.process.poll() is None:
            _signal_group(self.pid, signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                say(f"{self.name} did not stop within {seconds} s; it is killed")
        _signal_group(self.pid, signal.SIGKILL)
        self.process.wait()


def _die_with_parent():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _signal_group(pid, number):
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def say(text):
    print(text, flush=True)


def children_of(parent):
    """Pids whose parent is `parent`, zombies included."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_text(errors="replace")
        except OSError:
            continue
        # pid (name) state ppid ...; the name may hold anything, so from its last parenthesis on.
        if int(stat.rpartition(")")[2].split()[1]) == parent:
            found.append(int(entry))
    return found


def reap_orphans(known, kill):
    """Ends (if `kill`) and reaps what children left behind; returns how many are still there."""
    left = [pid for pid in children_of(os.getpid()) if pid not in known]
    remaining = 0
    for pid in left:
        if kill:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                remaining += 1
        except ChildProcessError:
            pass
    return remaining


def check_port(port, what, option):
    """Refuses a port that somebody else has, in words that help."""
    if port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise StageError(
                    f"port {port} ({what}) on {HOST} is in use by another program; "
                    f"stop it, or choose another with {option} N ({option} 0 picks a free one)"
                ) from None
            raise StageError(f"port {port} ({what}) cannot be used: {error.strerror}") from None


def get_json(port, path):
    """The JSON body of a GET, or None if there is no such answer now."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Stage:
    """All programs of one run, started and stopped in order."""

    def __init__(self, options):
        self.options = options
        self.state = options.state_dir
        self.children = []
        self.port = 0
        self.grpc_port = 0
        self.dcc = "blender" if options.blender else "openusd"
        self.venv = None  # Python environment of the DCC
        self.stop_signals = 0
        self._lock = None

    # -- preparing ---------------------------------------------------------------------------------

    def prepare(self):
        for program in ("callboardd", "callboard-agent"):
            if not (BINARIES / program).exists():
                raise StageError(f"{BINARIES / program} is missing; ./run builds it")
        command = self.options.command
        if command and shutil.which(command[0]) is None:
            raise StageError(f"cannot run '{command[0]}': there is no such program")
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StageError(
                f"state folder {self.state} cannot be written ({error.strerror}); "
                "choose another with --state-dir DIR") from None
        self._take_lock()
        if self.options.name is None:
            self.venv = self._install_dcc()
        check_port(self.options.port, "MCP over HTTP", "--port")
        check_port(self.options.grpc_port, "gRPC", "--grpc-port")
        # Rows of a run that was killed would be dead seats of this one.
        shutil.rmtree(self.registry, ignore_errors=True)
        self.registry.mkdir()

    @property
    def logs(self):
        return self.state / "logs"

    @property
    def registry(self):
        return self.state / "registry"

    def _take_lock(self):
        self._lock = open(self.state / "run.lock", "a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.seek(0)
            raise StageError(
                f"another run (pid {self._lock.read().strip() or 'unknown'}) uses the state folder "
                f"{self.state}; stop it, or choose another with --state-dir DIR") from None
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()

    def _install_dcc(self):
        installer = subprocess.Popen([ROOT / "tools" / f"install_{self.dcc}"], stdout=subprocess.PIPE,
                                     stdin=subprocess.DEVNULL, text=True, start_new_session=True)
        try:
            while installer.poll() is None:
                self._pause(0.05)
        finally:
            _signal_group(installer.pid, signal.SIGKILL)
            lines = installer.communicate()[0].splitlines()
        if installer.returncode != 0:
            raise StageError(f"{self.dcc} could not be installed (see above); "
                             "./run --name NAME -- CMD... serves a server of your own")
        return Path(lines[-1])

    # -- starting ----------------------------------------------------------------------------------

    def start(self):
        self._start_callboardd()
        self._start_agent()
        if self.options.name is None:
            self._start_dcc()
        self._wait_for_seat()

    def _start(self, name, command, env=None, cwd=None):
        child = Child(name, command, self.logs / f"{name}.log", env, cwd)
        self.children.append(child)
        return child

    def _start_callboardd(self):
        ports_file = self.state / "callboardd" / "ports.json"
        ports_file.parent.mkdir(exist_ok=True)
        ports_file.unlink(missing_ok=True)
        command = [BINARIES / "callboardd", "--host", HOST, "--port", str(self.options.port),
                   "--grpc-port", str(self.options.grpc_port), "--state-dir", ports_file.parent]
        for setting in self.options.set:
            command += ["--set", setting]
        child = self._start("callboardd", command)
        self._wait_for_line(child, "callboardd ready")
        ports = json.loads(ports_file.read_text())
        self.port, self.grpc_port = ports["http"], ports["grpc"]
        say(f"callboardd       MCP {HOST}:{self.port}, gRPC {HOST}:{self.grpc_port}")

    def _start_agent(self):
        options = self.options
        command = [BINARIES / "callboard-agent", "--control-plane", f"{HOST}:{self.grpc_port}",
                   "--state-dir", self.state / "agent"]
        for setting in options.agent_set:
            command += ["--set", setting]
        if options.name is None:
            command += ["--registry-dir", self.registry]
        elif options.url:
            command += ["--name", options.name, "--url", options.url]
        else:
            command += ["--name", options.name, "--", *options.command]
        child = self._start("callboard-agent", command)
        self._wait_for_line(child, "callboard-agent ready")
        say(f"callboard-agent  linked, serves {self._served()}")

    def _served(self):
        options = self.options
        if options.name is None:
            return f"the registry {self.registry}"
        return f"'{options.name}': {options.url or shlex.join(options.command)}"

    def _start_dcc(self):
        name, venv = self.dcc, self.venv
        home, project = self.state / f"{name}-home", self.state / "project"
        home.mkdir(exist_ok=True)
        project.mkdir(exist_ok=True)
        env = {key: value for key, value in os.environ.items() if not key.startswith("DCC_MCP_")}
        env.update(HOME=str(home), DCC_MCP_GATEWAY_REMOTE_PORT="0",
                   DCC_MCP_GATEWAY_PORT=str(self.port), DCC_MCP_REGISTRY_DIR=str(self.registry),
                   XDG_CACHE_HOME=str(home / "cache"), XDG_CONFIG_HOME=str(home / "config"),
                   XDG_DATA_HOME=str(home / "data"), XDG_STATE_HOME=str(home / "state"),
                   TMPDIR=str(home))
        if name == "blender":
            command = [venv / "bin" / "python", "-c", BLENDER_MAIN]
        else:
            command = [venv / "bin" / "dcc-mcp-openusd", "--registry-dir", self.registry,
                       "--gateway-port", str(self.port), "--project-dir", project]
        self._start(name, command, env=env, cwd=project)
        say(f"{name:16} started, project folder {project}")

    # -- waiting -----------------------------------------------------------------------------------

    def _wait_for_line(self, child, text):
        deadline = time.monotonic() + READY_SECONDS
        while text not in child.log.read_text(errors="replace"):
            self.check_alive()
            if time.monotonic() > deadline:
                raise StageError(f"{child.name} is not ready after {READY_SECONDS} s; "
                                 f"its last lines ({child.log}):\n{child.last_lines()}")
            self._pause(0.02)

    def _wait_for_seat(self):
        deadline = time.monotonic() + SEAT_SECONDS
        while True:
            ready = get_json(self.port, "/v1/readyz") or {}
            if ready.get("ready_instance_count", 0) >= 1:
                return
            self.check_alive()
            if time.monotonic() > deadline:
                agent = self.children[1]
                say(f"nothing is served yet after {SEAT_SECONDS} s; the stage waits on. "
                    f"Last lines of {agent.log}:\n{agent.last_lines()}")
                return
            self._pause(0.05)

    def _pause(self, seconds):
        if self.stop_signals:
            raise StopRequested
        time.sleep(seconds)

    def check_alive(self):
        """Raises if callboardd or the agent has ended; tells of a DCC that has."""
        for child in list(self.children):
            ended = child.exit_text()
            if ended is None:
                continue
            report = f"{child.name} {ended}; its last lines ({child.log}):\n{child.last_lines()}"
            if child.name in ("callboardd", "callboard-agent"):
                raise StageError(report)
            say(f"{report}\nThe stage goes on without it.")
            child.stop(0)
            self.children.remove(child)

    def watch(self):
        """Until a signal comes."""
        while True:
            self.check_alive()
            reap_orphans({child.pid for child in self.children}, kill=False)
            self._pause(0.2)

    # -- telling and stopping ----------------------------------------------------------------------

    def tell(self):
        url = f"http://{HOST}:{self.port}/mcp"
        say("")
        say(f"MCP endpoint: {url}")
        if self.options.name is not None:
            say(f"Only '{self.options.name}', under its own tool names: {url}/{self.options.name}")
        say("")
        say(f"curl -s {url} -H 'Content-Type: application/json' "
            f"-H 'Accept: application/json, text/event-stream' -d '{INITIALIZE}'")
        say(f"claude mcp add --transport http callboard {url}")
        say(f"{BINARIES / 'callboard'} ps --address {HOST}:{self.grpc_port}")
        say("")
        say(f"Logs: {self.logs}. Ctrl-C stops everything.")

    def stop(self):
        """The last started first; afterwards no descendant is left."""
        for child in reversed(self.children):
            child.stop(STOP_SECONDS[child.name] if self.stop_signals < 2 else 0)
        deadline = time.monotonic() + 5
        while reap_orphans(set(), kill=True) and time.monotonic() < deadline:
            time.sleep(0.02)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="./run",
        usage="./run [options] [--blender]\n       ./run [options] --name NAME -- COMMAND [ARGUMENT...]\n"
              "       ./run [options] --name NAME --url URL",
        description="Runs callboardd and callboard-agent on this machine. Without --name they serve "
                    "OpenUSD through its dcc-mcp adapter; with --name exactly that MCP server: a "
                    "stdio program after --, or a Streamable HTTP server at --url.")
    state_home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    parser.add_argument("--name", help="name of the one MCP server to serve")
    parser.add_argument("--blender", action="store_true",
                        help="serve Blender 5 (headless, 374 MB to install once) and not OpenUSD")
    parser.add_argument("--url", help="its Streamable HTTP endpoint, http://...")
    parser.add_argument("--port", type=port_number, default=9765,
                        help="HTTP port for MCP clients [9765]; 0 picks a free one")
    parser.add_argument("--grpc-port", type=port_number, default=9766,
                        help="gRPC port for agents and programs [9766]; 0 picks a free one")
    parser.add_argument("--state-dir", type=Path, default=state_home / "callboard" / "stage",
                        help="folder for everything a run writes [%(default)s]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of callboardd, for example budgets.heavy_call=60s")
    parser.add_argument("--agent-set", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of callboard-agent, for example queue.main_in_flight=16 for a "
                             "server that runs calls side by side")
    own, command = arguments, []
    if "--" in arguments:
        split = arguments.index("--")
        own, command = arguments[:split], arguments[split + 1:]
    options = parser.parse_args(own)
    options.command = command
    options.state_dir = options.state_dir.absolute()
    if options.blender and options.name is not None:
        parser.error("--blender serves Blender; --name serves a server of your own: give one of them")
    if options.name is None and (command or options.url):
        parser.error("a server needs --name NAME")
    if options.name is not None and bool(command) == bool(options.url):
        parser.error("--name needs either --url URL or -- COMMAND")
    return options


def port_number(text):
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is no port; give 0 to 65535")
    return int(text)


def main(arguments):
    stage = Stage(parse_arguments(arguments))

    def on_signal(_number, _frame):
        stage.stop_signals += 1

    # Set also where SIGINT came in ignored (a background job of a script).
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup stays what it is
        signal.signal(signal.SIGHUP, on_signal)
    # What children leave behind becomes ours to reap.
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    status = 0
    try:
        stage.prepare()
        stage.start()
        stage.tell()
        stage.watch()
    except StopRequested:
        say("\nstopping")
    except StageError as error:
        print(f"run: {error}", file=sys.stderr, flush=True)
        status = 1
    finally:
        stage.stop()
    if status == 0:
        say("stopped; nothing is left running")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
