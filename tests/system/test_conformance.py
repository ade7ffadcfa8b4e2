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


def run_suite(port, revision, *more):
    """The suite's exit code and what it printed."""
    run = SHARED / "conformance" / "run.sh"
    suite = subprocess.run(
        ["bash", run, "--url", f"http://localhost:{port}/mcp/fixture", "--rev", revision, *more],
        capture_output=True, text=True, timeout=SUITE_TIMEOUT, check=False)
    print(suite.stdout[-4000:], suite.stderr[-1000:])
    return suite


def stage_for_suite(stage, fixture_command, backend, bridge, **settings):
    """The port where the fixture is served at /mcp/fixture."""
    run = SHARED / "conformance" / "run.sh"
    if subprocess.run(["bash", run, "--install"], capture_output=True, timeout=SUITE_TIMEOUT,
                      check=False).returncode != 0:
        need("the conformance suite could not be installed")
    stage.start_control_plane(**settings)
    command = fixture_command if backend == "stdio" else [start_http_fixture(stage)]
    stage.start_agent(*command, name="fixture")
    return stage.port if bridge == "callboardd" else stage.start_bridge(**settings).port


WAYS = [("stdio", "callboardd"), ("http", "callboardd"), ("stdio", "callboard-bridge")]


@pytest.mark.parametrize("backend, bridge", WAYS)
@pytest.mark.parametrize("revision", ["2025-11-25", "stable"])
def test_conformance_suite(stage, fixture_command, revision, backend, bridge):
    port = stage_for_suite(stage, fixture_command, backend, bridge)
    suite = run_suite(port, revision)
    assert suite.returncode == 0, suite.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("revision, backend, bridge",
                         [("2026-07-28", *way) for way in WAYS] + [("2025-11-25", *WAYS[0])])
def test_conformance_suite_where_both_eras_are_served(stage, fixture_command, revision, backend, bridge):
    port = stage_for_suite(stage, fixture_command, backend, bridge, bridge__modern="true")
    suite = run_suite(port, revision)
    assert suite.returncode == 0, suite.stdout.strip().splitlines()[-1]
