"""Starts the real binaries for a test on free ports, in folders of its own, and ends them by pid."""

import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

from mcp_http import McpClient

ROOT = Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build" / "release" / "bin"
SHARED = Path(os.environ.get("CALLBOARD_SHARED", ROOT.parent / "shared"))
COUNTING_SERVER = Path(__file__).with_name("counting_server.py")


def wait_until(condition, seconds, what, step=0.01):
    """The first true value of condition(); an AssertionError that says `what` did not happen."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(step)


def descendants(pid):
    """Pids of the living children, grandchildren, ... of a process."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(entry)] = int(fields[1])
    found, level = [], {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        found += sorted(level)
    return found


def command_line(pid):
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


class Program:
    """One started program with its output in a file."""

    def __init__(self, command, log, env=None):
        self.command = [str(part) for part in command]
        self.log = Path(log)
        with open(log, "ab") as output:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, start_new_session=True,
                                            env=env)

    @property
    def pid(self):
        return self.process.pid

    @property
    def running(self):
        return self.process.poll() is None

    def output(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, text, seconds=15, count=1):
        def seen():
            assert self.running, f"{self.command[0]} ended ({self.process.returncode}):\n{self.output()[-3000:]}"
            return self.output().count(text) >= count

        wait_until(seen, seconds, f"'{text}' from {self.command[0]}:\n{self.output()[-3000:]}")

    def signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        """SIGKILL of this process alone, as the kernel's memory killer does it."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self, seconds=15):
        """SIGTERM; the exit status."""
        self.process.terminate()
        return self.process.wait(seconds)

    def end(self):
        """Ends it and all that it started, whatever state they are in."""
        doomed = [self.pid, *descendants(self.pid)] if self.running else []
        if self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.signal(signal.SIGCONT)
                self.terminate(5)
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                if pid == self.pid and not self.running:
                    continue
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)


class Stage:
    """callboardd and agents of one test."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.runs = self.folder / "runs.txt"
        self.control_plane = None
        self.agent = None
        self.port = 0
        self.grpc_port = 0
        self._programs = []
        self._closers = []
        self._stoppers = []
        self._settings = {}

    # -- programs ----------------------------------------------------------------------------------

    def start(self, command, name, env=None):
        program = Program(command, self.folder / f"{name}.log", env)
        self._programs.append(program)
        return program

    def start_control_plane(self, **settings):
        """settings: section__key="value"."""
        self._settings = settings
        state = self.folder / "callboardd"
        state.mkdir(exist_ok=True)
        ports = state / "ports.json"
        ports.unlink(missing_ok=True)
        command = [BINARIES / "callboardd", "--host", "127.0.0.1", "--port", self.port,
                   "--grpc-port", self.grpc_port, "--state-dir", state, "--log-level", "debug"]
        for key, value in settings.items():
            command += ["--set", f"{key.replace('__', '.')}={value}"]
        before = self.control_plane.output().count("callboardd ready") if self.control_plane else 0
        self.control_plane = self.start(command, "callboardd")
        self.control_plane.wait_for("callboardd ready", count=before + 1)
        found = json.loads(ports.read_text())
        self.port, self.grpc_port = found["http"], found["grpc"]
        return self.control_plane

    def start_bridge(self, name="bridge", port=0, control_plane=None, wait=True, **settings):
        """A bridge of its own on the stage's control plane; .port is where it serves."""
        state = self.folder / name
        state.mkdir(exist_ok=True)
        ports = state / "ports.json"
        ports.unlink(missing_ok=True)
        command = [BINARIES / "callboard-bridge", "--control-plane",
                   control_plane or f"127.0.0.1:{self.grpc_port}", "--host", "127.0.0.1", "--port", port,
                   "--state-dir", state, "--log-level", "debug"]
        for key, value in settings.items():
            command += ["--set", f"{key.replace('__', '.')}={value}"]
        bridge = self.start(command, name)
        if wait:
            wait_until(ports.exists, 15, f"{name} is ready:\n{bridge.output()[-2000:]}")
            bridge.port = json.loads(ports.read_text())["http"]
        return bridge

    def second_control_plane(self, **settings):
        """Another callboardd with a folder of its own, as a stage that has no agent."""
        folder = self.folder / "second"
        folder.mkdir(exist_ok=True)
        other = Stage(folder)
        self.on_close(other.close)
        other.start_control_plane(**settings)
        return other

    def restart_control_plane(self):
        """Once more on the same ports, with the same folder and settings."""
        return self.start_control_plane(**self._settings)

    def start_agent(self, *backend, address=None, name="counting", wrap=None, wait=True, **settings):
        """backend: a command, or one URL; without any the counting server on stdio. settings as above."""
        address = address or f"127.0.0.1:{self.grpc_port}"
        command = [BINARIES / "callboard-agent", "--control-plane", address,
                   "--state-dir", self.folder / "agent", "--name", name, "--log-level", "debug"]
        for key, value in settings.items():
            command += ["--set", f"{key.replace('__', '.')}={value}"]
        backend = backend or (sys.executable, COUNTING_SERVER, "--file", self.runs)
        if len(backend) == 1 and str(backend[0]).startswith("http"):
            command += ["--url", backend[0]]
        else:
            command += ["--", *backend]
        self.agent = self.start(wrap(command) if wrap else command, "agent")
        if wait:
            self.wait_for_seats(1)
        return self.agent

    def start_registry_agent(self, names, address=None, apps=None, command=None):
        """An agent that finds one HTTP server for each name through a registry folder.

        apps: {name: its DCC}, by default the name; command(name): by default a counting server's.
        """
        registry = self.folder / "registry"
        (registry / "locks").mkdir(parents=True)
        rows = []
        for name in names:
            counting = [sys.executable, COUNTING_SERVER, "--file", self.folder / f"{name}.txt",
                        "--http", 0]
            server = self.start(command(name) if command else counting, name)
            server.wait_for("/mcp")
            instance = str(uuid.uuid4())
            sentinel = registry / "locks" / f"{name}-{instance}.lock"
            held = open(sentinel, "w")
            fcntl.flock(held, fcntl.LOCK_EX)  # as a live adapter does
            self.on_close(held.close)
            now = {"secs_since_epoch": int(time.time()), "nanos_since_epoch": 0}
            rows.append({"schema_version": 1, "dcc_type": (apps or {}).get(name, name), "instance_id": instance,
                         "host": "127.0.0.1", "port": int(server.output().rsplit(":", 1)[1].split("/")[0]),
                         "version": "1", "pid": server.pid, "sentinel_path": str(sentinel),
                         "metadata": {}, "registered_at": now, "last_heartbeat": now,
                         "status": "available"})
        (registry / "services.json").write_text(json.dumps(rows))
        self.agent = self.start([BINARIES / "callboard-agent", "--control-plane",
                                 address or f"127.0.0.1:{self.grpc_port}", "--state-dir",
                                 self.folder / "agent", "--registry-dir", registry, "--log-level",
                                 "debug"], "agent")
        self.wait_for_seats(len(names))

    def restart_agent(self, wait=True):
        self.agent = self.start(self.agent.command, "agent")
        if wait:
            self.wait_for_seats(1)
        return self.agent

    def backend_pid(self, needle="counting_server"):
        """The pid of the stdio child."""
        return wait_until(
            lambda: next((pid for pid in descendants(self.agent.pid) if needle in command_line(pid)), 0),
            10, f"a child of the agent with {needle} in its command line")

    def on_close(self, action):
        self._closers.append(action)

    def on_stop(self, action):
        """Runs before the programs are ended."""
        self._stoppers.append(action)

    def close(self):
        for action in reversed(self._stoppers):
            action()
        for program in reversed(self._programs):
            program.end()
        for action in reversed(self._closers):
            action()

    def logs(self):
        """The end of every log, for the report of a failed test."""
        parts = []
        for log in sorted(self.folder.glob("*.log")):
            text = log.read_text(errors="replace")
            parts.append(f"----- {log.name}\n{text[-6000:]}")
        return "\n".join(parts)

    # -- looking -----------------------------------------------------------------------------------

    def get(self, path, port=None, timeout=5):
        """(status, parsed body) of a GET, or (0, None) when nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()

    def live_seats(self):
        return (self.get("/v1/readyz")[1] or {}).get("live_instance_count", 0)

    def wait_for_seats(self, count, seconds=15):
        """Seats that can be called: live, well, and with their tools known."""
        wait_until(lambda: (self.get("/v1/readyz")[1] or {}).get("ready_instance_count", 0) >= count,
                   seconds, f"{count} ready seats")

    def client(self, path="/mcp/counting", port=None):
        """A client with a session; by default on the counting server's own tools."""
        client = McpClient(port or self.port, path)
        client.initialize()
        return client

    def events(self, file=None):
        """[(begin, end or cancelled, id, time)] as the counting server wrote them."""
        file = file or self.runs
        if not file.exists():
            return []
        lines = (line.split() for line in file.read_text().splitlines())
        return [(event, call, float(when)) for event, call, when in lines]

    def begun(self, call):
        """How often the tool has begun to run for this id."""
        return sum(1 for event, other, _ in self.events() if (event, other) == ("begin", call))

    def wait_begun(self, call, seconds=10):
        wait_until(lambda: self.begun(call), seconds, f"the tool runs for '{call}'", step=0.002)


def port_is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
