"""Real DCCs behind one agent's registry folder: how each is installed, started and watched."""

import json
import os
import re
import subprocess
import time

from stage import BINARIES, ROOT, wait_until

BLENDER_MAIN = "from dcc_mcp_blender.blender_bootstrap import main; main(port=None)"
DEBIAN_BLENDER = """# Serves this Blender through the adapter and its main thread.
import sys
sys.path.insert(0, {site!r})
from dcc_mcp_blender.blender_bootstrap import main
main(port=None)
"""
# name: (installer and its options, tier)
INSTALLERS = {
    "openusd": (["install_openusd"], "light"),
    "openscad": (["install_openscad"], "light"),
    "blender": (["install_blender"], "full"),
    "blender-debian": (["install_blender", "--debian"], "full"),
}


class NotInstalled(Exception):
    """A DCC that cannot be had here; the text says why."""


def install(name):
    """The environment of a DCC."""
    command, _ = INSTALLERS[name]
    done = subprocess.run([ROOT / "tools" / command[0], *command[1:]], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=580, check=False)
    if done.returncode != 0:
        raise NotInstalled(f"{name}: {done.stderr.strip()[-400:]}")
    return done.stdout.strip().splitlines()[-1]


class Dccs:
    """DCC processes of one stage, found through one registry folder by one agent."""

    def __init__(self, stage):
        self.stage = stage
        self.registry = stage.folder / "registry"
        self.project = stage.folder / "project"
        self.registry.mkdir()
        self.project.mkdir()
        self.programs = {}

    def start_agent(self, **settings):
        stage = self.stage
        command = [BINARIES / "callboard-agent", "--control-plane", f"127.0.0.1:{stage.grpc_port}",
                   "--state-dir", stage.folder / "agent", "--registry-dir", self.registry,
                   "--log-level", "debug"]
        for key, value in settings.items():
            command += ["--set", f"{key.replace('__', '.')}={value}"]
        stage.agent = stage.start(command, "agent")
        stage.agent.wait_for("callboard-agent ready")

    def environment(self, name):
        home = self.stage.folder / f"{name}-home"
        home.mkdir(exist_ok=True)
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(("DCC_MCP_", "PYTHON"))}
        gateway = str(self.stage.port)
        env.update(HOME=str(home), TMPDIR=str(home), DCC_MCP_GATEWAY_REMOTE_PORT="0",
                   DCC_MCP_GATEWAY_PORT=gateway, DCC_MCP_REGISTRY_DIR=str(self.registry),
                   DCC_MCP_OPENSCAD_ALLOWED_ROOTS=str(self.project), DCC_MCP_OPENSCAD_PORT="0")
        for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
            env[f"XDG_{kind}_HOME"] = str(home / kind.lower())
        return env

    def command(self, name, venv):
        if name == "openusd":
            return [f"{venv}/bin/dcc-mcp-openusd", "--registry-dir", self.registry,
                    "--gateway-port", self.stage.port, "--project-dir", self.project]
        if name == "openscad":
            return [f"{venv}/bin/dcc-mcp-openscad"]
        if name == "blender":
            return [f"{venv}/bin/python", "-c", BLENDER_MAIN]
        script = self.stage.folder / "debian_blender.py"
        script.write_text(DEBIAN_BLENDER.format(site=f"{venv}/lib/python3.11/site-packages"))
        return ["/usr/bin/blender", "-b", "--factory-startup", "--python", script]

    def start(self, name):
        """Starts one DCC; does not wait for it."""
        venv = install(name)
        program = self.stage.start(self.command(name, venv), name, self.environment(name))
        self.programs[name] = program
        return program

    def rows(self):
        """The adapters' rows of living DCCs, without gateways."""
        try:
            rows = json.loads((self.registry / "services.json").read_text())
        except (OSError, ValueError):
            return []
        return [row for row in rows if row.get("dcc_type") != "__gateway__"]

    def wait_for_row(self, name, seconds=60):
        """(row, when it was first seen) of the DCC that was started under this name."""
        program = self.programs[name]

        def mine():
            assert program.running, f"{name} ended:\n{program.output()[-3000:]}"
            return next((row for row in self.rows() if row["pid"] == program.pid), None)

        return wait_until(mine, seconds, f"a registry row of {name}:\n{program.output()[-2000:]}"), \
            time.monotonic()


def instances(client):
    """list_instances as objects."""
    return client.call("list_instances").result["structuredContent"]["instances"]


def instance_of(client, pid):
    return next((row for row in instances(client) if row["pid"] == pid), None)


def wait_ready(client, pid, seconds=30):
    """The row of a process once it can be called."""
    def ready():
        row = instance_of(client, pid)
        return row if row and row["status"] in ("available", "busy") and row["tools"] > 0 else None

    return wait_until(ready, seconds, f"pid {pid} is listed and ready")


def load(client, instance, skill):
    """Loads a skill; an adapter that has just come up may find its skills a little later."""
    def loaded():
        answer = client.call("load_skill", {"skill_name": skill, "instance": instance}, timeout=60)
        return None if answer.failed else answer

    return wait_until(loaded, 15, f"{instance} loads {skill}", step=0.1)


def slug_of(client, row, tool):
    """The slug of a loaded tool of one seat."""
    def found():
        hits = client.call("search_tools", {"query": tool, "limit": 50})
        pattern = rf"\b[\w-]+\.{row['seat_id'][:8]}\.(?:\w+__)?{re.escape(tool)}\b"
        match = re.search(pattern, hits.text)
        return match[0] if match else None

    return wait_until(found, 10, f"'{tool}' of {row['instance']} is found", step=0.2)
