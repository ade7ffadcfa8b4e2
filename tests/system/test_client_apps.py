"""The clients that people use, each with its own script against a stage: what it negotiated, and that it connects, lists and calls."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import NEGOTIATED, need
from stage import ROOT
from tcp_proxy import TcpProxy

CLIENTS = Path(__file__).with_name("clients")


@pytest.fixture(scope="session")
def apps():
    """(python of client 2 and fastmcp, folder with node_modules)"""
    done = subprocess.run([ROOT / "tools" / "install_test_clients", "--apps"], timeout=580,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        need(f"client programs cannot be installed: {done.stderr.strip()[-400:]}")
    venv, modules = done.stdout.strip().splitlines()[-2:]
    return f"{venv}/bin/python", Path(modules)


@pytest.fixture
def url(stage):
    stage.start_control_plane()
    stage.start_agent()
    return f"http://127.0.0.1:{stage.port}/mcp"


def run(stage, command, seconds=50, **extra):
    """The output of a client in a home of its own; it must succeed."""
    home = stage.folder / "home"
    home.mkdir(exist_ok=True)
    env = {key: value for key, value in os.environ.items()
           if not re.search(r"API_KEY|TOKEN|PROXY|^CLAUDE|^ANTHROPIC|^GEMINI", key, re.IGNORECASE)}
    env.update(HOME=str(home), XDG_CONFIG_HOME=str(home / ".config"), NO_COLOR="1",
               DISABLE_TELEMETRY="1", DISABLE_AUTOUPDATER="1",
               CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", **extra)
    done = subprocess.run([str(part) for part in command], cwd=home, env=env, timeout=seconds,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def facts(output):
    lines = [line for line in output.splitlines() if line.startswith('{"fact"')]
    told = {entry["fact"]: entry["value"] for entry in map(json.loads, lines)}
    return told


def beside_modules(stage, modules, name):
    """A script of clients/, placed so that it finds its packages."""
    shutil.copy(CLIENTS / name, stage.folder / name)
    (stage.folder / "node_modules").symlink_to(modules / "node_modules")
    return stage.folder / name


def check(client, told, revisions):
    NEGOTIATED.append((client, told["revision"]))
    assert told["revision"] in revisions, told
    assert {"search_tools", "call_tool", "list_instances"} <= set(told["tools"])
    assert "counting" in told["text"]


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_typescript_sdk(stage, url, apps, kind):
    script = beside_modules(stage, apps[1], "app_session.mjs")
    check(f"TypeScript SDK {kind}", facts(run(stage, ["node", script, kind, url])), {"2025-11-25"})


def test_python_sdk_1(stage, url):
    told = facts(run(stage, [sys.executable, CLIENTS / "app_session.py", "v1", url]))
    check("Python mcp 1.30.0", told, {"2025-11-25"})


@pytest.fixture
def url_of_the_old_era(stage):
    stage.start_control_plane(bridge__modern="false")
    stage.start_agent()
    return f"http://127.0.0.1:{stage.port}/mcp"


@pytest.mark.parametrize("kind", ["v2", "fastmcp"])
def test_python_client_of_the_new_era_falls_back(stage, url_of_the_old_era, apps, kind):
    told = facts(run(stage, [apps[0], CLIENTS / "app_session.py", kind, url_of_the_old_era]))
    client = {"v2": "Python mcp 2.3.0", "fastmcp": "fastmcp 4.2.3"}[kind]
    check(f"{client}, bridge.modern off", told, {"2025-11-25"})


@pytest.mark.parametrize("kind", ["v2", "fastmcp"])
def test_python_client_of_the_new_era_speaks_it(stage, url, apps, kind):
    told = facts(run(stage, [apps[0], CLIENTS / "app_session.py", kind, url]))
    client = {"v2": "Python mcp 2.3.0", "fastmcp": "fastmcp 4.2.3"}[kind]
    check(client, told, {"2026-07-28"})


def test_mcp_remote_in_the_era_it_finds(stage, url, apps):
    script = beside_modules(stage, apps[1], "app_session.mjs")
    remote = apps[1] / "node_modules" / ".bin" / "mcp-remote"
    cable = TcpProxy(stage.port, keep=True)
    stage.on_close(cable.close)
    told = facts(run(stage, ["node", script, "stdio", "node", remote, f"http://127.0.0.1:{cable.port}/mcp",
                             "--transport", "http-only", "--protocol", "auto"]))
    check("mcp-remote 0.15.1 --protocol auto", told, {"2025-11-25", "2025-06-18"})
    # What the client on its pipe speaks is one thing, what it speaks to us another.
    sent = cable.sent().decode()
    posts = re.findall(r"POST /mcp HTTP.*?\r\n\r\n", sent, re.DOTALL)
    versions = {version for post in posts for version in re.findall(r"(?im)^mcp-protocol-version: *(\S+)", post)}
    assert len(posts) >= 2 and versions == {"2026-07-28"}, sent[:2000]
    assert '"method":"server/discover"' in sent and '"method":"tools/call"' in sent
    assert '"method":"initialize"' not in sent and "mcp-session-id" not in sent.lower()
    assert "session_opened" not in stage.control_plane.output()
    NEGOTIATED.append(("mcp-remote 0.15.1 --protocol auto, its own hop", versions.pop()))


def test_inspector_cli(stage, url, apps):
    inspector = apps[1] / "node_modules" / ".bin" / "mcp-inspector"
    base = [inspector, "--cli", url, "--transport", "http"]
    tools = json.loads(run(stage, [*base, "--method", "tools/list"]))["tools"]
    assert "call_tool" in [tool["name"] for tool in tools]
    output = run(stage, [*base, "--method", "tools/call", "--tool-name", "list_instances"])
    assert "counting" in output
    note_negotiated(stage, "Inspector CLI 0.15.0")


def note_negotiated(stage, client):
    """Notes the revision of the last session, as the control plane's log has it."""
    found = re.findall(r'session_opened .*?revision=(\S+)', stage.control_plane.output())
    assert found, f"the log tells no revision of {client}"
    NEGOTIATED.append((client, found[-1].strip('"')))


def test_mcp_remote(stage, url, apps):
    script = beside_modules(stage, apps[1], "app_session.mjs")
    remote = apps[1] / "node_modules" / ".bin" / "mcp-remote"
    told = facts(run(stage, ["node", script, "stdio", "node", remote, url, "--transport",
                             "http-only"]))
    check("mcp-remote 0.15.1", told, {"2025-11-25", "2025-06-18"})


def test_mcp_remote_over_http_sse(stage, url, apps):
    script = beside_modules(stage, apps[1], "app_session.mjs")
    remote = apps[1] / "node_modules" / ".bin" / "mcp-remote"
    told = facts(run(stage, ["node", script, "stdio", "node", remote, url.replace("/mcp", "/sse"),
                             "--transport", "sse-only"]))
    check("mcp-remote 0.15.1 over HTTP+SSE", told, {"2025-11-25", "2025-06-18"})


def test_claude_code_lists_the_server_as_connected(stage, url, apps):
    claude = apps[1] / "node_modules" / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
    run(stage, [claude, "mcp", "add", "--transport", "http", "--scope", "user", "callboard", url])
    output = run(stage, [claude, "mcp", "list"])
    assert re.search(r"callboard: .*Connected", output), output
    note_negotiated(stage, "Claude Code 2.1.197")


def test_gemini_cli_lists_the_server_as_connected(stage, url, apps):
    settings = stage.folder / "home" / ".gemini"
    settings.mkdir(parents=True)
    (settings / "settings.json").write_text(json.dumps({
        "security": {"folderTrust": {"enabled": False}},
        "mcpServers": {"callboard": {"url": url, "type": "http"}}}))
    gemini = apps[1] / "node_modules" / ".bin" / "gemini"
    output = run(stage, ["node", gemini, "mcp", "list"])
    assert re.search(r"callboard.*Connected", output), output
    note_negotiated(stage, "Gemini CLI 0.61.0")
