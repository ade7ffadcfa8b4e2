"""The official conformance suites through bridge, control plane and agent, against /mcp/fixture."""

import subprocess

import pytest

from conftest import need
from stage import SHARED

SUITE_TIMEOUT = 300


def start_http_fixture(stage):
    """The fixture as a Streamable HTTP server with sessions; its URL."""
    server = stage.start(["node", SHARED / "conformance" / "backend" / "http.mjs", "--port", "0"],
                         "fixture")
    server.wait_for("/mcp")
    return next(word for word in server.output().split() if word.startswith("http://"))


@pytest.mark.parametrize("backend, bridge", [("stdio", "callboardd"), ("http", "callboardd"),
                                             ("stdio", "callboard-bridge")])
@pytest.mark.parametrize("revision", ["2025-11-25", "stable"])
def test_conformance_suite(stage, fixture_command, revision, backend, bridge):
    run = SHARED / "conformance" / "run.sh"
    if subprocess.run(["bash", run, "--install"], capture_output=True, timeout=SUITE_TIMEOUT,
                      check=False).returncode != 0:
        need("the conformance suite could not be installed")
    stage.start_control_plane()
    command = fixture_command if backend == "stdio" else [start_http_fixture(stage)]
    stage.start_agent(*command, name="fixture")
    port = stage.port if bridge == "callboardd" else stage.start_bridge().port
    suite = subprocess.run(
        ["bash", run, "--url", f"http://localhost:{port}/mcp/fixture", "--rev", revision],
        capture_output=True, text=True, timeout=SUITE_TIMEOUT, check=False)
    print(suite.stdout[-4000:], suite.stderr[-1000:])
    assert suite.returncode == 0, suite.stdout.strip().splitlines()[-1]
