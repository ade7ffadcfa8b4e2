"""The official conformance suites through bridge, control plane and agent, against /mcp/fixture, and its clients' scenarios through an agent."""

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import need
from stage import BINARIES, SHARED

RUN = SHARED / "conformance" / "run.sh"
SUITE_TIMEOUT = 300


def start_http_fixture(stage):
    """The fixture as a Streamable HTTP server with sessions; its URL."""
    server = stage.start(["node", SHARED / "conformance" / "backend" / "http.mjs", "--port", "0"],
                         "fixture")
    server.wait_for("/mcp")
    return next(word for word in server.output().split() if word.startswith("http://"))


def run_suite(*options):
    """The suite's exit code and what it printed."""
    suite = subprocess.run(["bash", RUN, *options], capture_output=True, text=True,
                           timeout=SUITE_TIMEOUT, check=False)
    print(suite.stdout[-4000:], suite.stderr[-1000:])
    return suite


@pytest.fixture
def suite(fixture_command):
    """The suite is installed."""
    if subprocess.run(["bash", RUN, "--install"], capture_output=True, timeout=SUITE_TIMEOUT,
                      check=False).returncode != 0:
        need("the conformance suite could not be installed")


def stage_for_suite(stage, fixture_command, backend, bridge, **settings):
    """The port where the fixture is served at /mcp/fixture."""
    stage.start_control_plane(**settings)
    command = fixture_command if backend == "stdio" else [start_http_fixture(stage)]
    stage.start_agent(*command, name="fixture")
    return stage.port if bridge == "callboardd" else stage.start_bridge(**settings).port


WAYS = [("stdio", "callboardd"), ("http", "callboardd"), ("stdio", "callboard-bridge")]


@pytest.mark.parametrize("backend, bridge", WAYS)
@pytest.mark.parametrize("revision", ["2025-11-25", "stable", "2026-07-28"])
def test_conformance_suite(stage, suite, fixture_command, revision, backend, bridge):
    port = stage_for_suite(stage, fixture_command, backend, bridge)
    done = run_suite("--url", f"http://localhost:{port}/mcp/fixture", "--rev", revision)
    assert done.returncode == 0, done.stdout.strip().splitlines()[-1]


def test_conformance_suite_where_the_new_era_is_not_served(stage, suite, fixture_command):
    port = stage_for_suite(stage, fixture_command, "stdio", "callboardd", bridge__modern="false")
    done = run_suite("--url", f"http://localhost:{port}/mcp/fixture", "--rev", "2025-11-25")
    assert done.returncode == 0, done.stdout.strip().splitlines()[-1]


# Those that are not about authorization or skills.
CLIENT_SCENARIOS = {
    "2025-11-25": ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry",
                   "json-schema-2020-12-preservation"],
    "2026-07-28": ["tools_call", "request-metadata", "http-standard-headers", "http-custom-headers",
                   "http-invalid-tool-headers", "sep-2322-client-request-state",
                   "json-schema-ref-no-deref", "json-schema-2020-12-preservation"],
}


@pytest.mark.parametrize("revision, scenario",
                         [(revision, name) for revision, names in CLIENT_SCENARIOS.items()
                          for name in names])
def test_agent_as_the_client_of_the_suite(stage, suite, revision, scenario):
    stage.start_control_plane()
    driver = Path(__file__).with_name("clients") / "suite_client.py"
    command = [sys.executable, driver, stage.port, stage.grpc_port, BINARIES / "callboard-agent",
               stage.folder]
    done = run_suite("--client", " ".join(map(str, command)), "--rev", revision, "--scenario", scenario,
                     "--out", stage.folder / "suite")
    if done.returncode != 0:
        print((stage.folder / "suite" / "run.log").read_text()[-6000:])
    assert done.returncode == 0, done.stdout.strip().splitlines()[-1]
