"""The official conformance suites through bridge, control plane and agent, against /mcp/fixture, and its clients' scenarios through an agent."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import need
from stage import BINARIES, SHARED

RUN = SHARED / "conformance" / "run.sh"
SUITE_TIMEOUT = 300
# How many scenarios each set has at least.
SCENARIOS = {"stable": 32, "2025-11-25": 33, "2026-07-28": 50}


def start_http_fixture(stage, *options):
    """The fixture as a Streamable HTTP server, with sessions unless `options` say otherwise; its URL."""
    server = stage.start(["node", SHARED / "conformance" / "backend" / "http.mjs", "--port", "0", *options],
                         "fixture")
    server.wait_for("/mcp")
    return next(word for word in server.output().split() if word.startswith("http://"))


def run_suite(*options):
    """The suite's exit code and what it printed."""
    suite = subprocess.run(["bash", RUN, *options], capture_output=True, text=True,
                           timeout=SUITE_TIMEOUT, check=False)
    print(suite.stdout[-4000:], suite.stderr[-1000:])
    return suite


def warnings_in(folder):
    """What the suite disliked without calling it a failure."""
    return [f"{file.parent.name}: {check['id']}: {check.get('errorMessage', '')}"
            for file in Path(folder).rglob("checks.json")
            for check in json.loads(file.read_text()) if check["status"] == "WARNING"]


def scenarios_in(summary):
    """How many scenarios have been run, as the last line says."""
    found = re.search(r"; (\d+) scenarios;", summary)
    assert found, summary
    return int(found[1])


def conforms(url, revision, folder):
    """No scenario fails or warns, scored or not; one that did may be run once more, alone."""
    done = run_suite("--url", url, "--rev", revision, "--out", folder)
    summary = done.stdout.strip().splitlines()[-1]
    assert scenarios_in(summary) >= SCENARIOS[revision], summary
    failed = [line.split()[1].rstrip(":") for line in done.stdout.splitlines() if line.startswith("FAIL ")]
    assert failed or done.returncode == 0, summary
    for scenario in failed:
        alone = run_suite("--url", url, "--rev", revision, "--scenario", scenario)
        assert alone.returncode == 0, f"{scenario} failed twice: {summary}"
    assert not warnings_in(folder)


@pytest.fixture
def suite(fixture_command):
    """The suite is installed."""
    if subprocess.run(["bash", RUN, "--install"], capture_output=True, timeout=SUITE_TIMEOUT,
                      check=False).returncode != 0:
        need("the conformance suite could not be installed")


def url_for_suite(stage, backend, bridge, **settings):
    """Where the fixture that `backend` starts is served at /mcp/fixture."""
    stage.start_control_plane(**settings)
    stage.start_agent(*backend, name="fixture")
    port = stage.port if bridge == "callboardd" else stage.start_bridge(**settings).port
    return f"http://localhost:{port}/mcp/fixture"


WAYS = [("stdio", "callboardd"), ("http", "callboardd"), ("http --reply sse", "callboardd"),
        ("stdio", "callboard-bridge")]


@pytest.mark.parametrize("backend, bridge", WAYS)
@pytest.mark.parametrize("revision", ["2025-11-25", "stable", "2026-07-28"])
def test_conformance_suite(stage, suite, fixture_command, revision, backend, bridge):
    transport, *options = backend.split()
    command = fixture_command if transport == "stdio" else [start_http_fixture(stage, *options)]
    conforms(url_for_suite(stage, command, bridge), revision, stage.folder / "suite")


def test_conformance_suite_where_the_new_era_is_not_served(stage, suite, fixture_command):
    url = url_for_suite(stage, fixture_command, "callboardd", bridge__modern="false")
    conforms(url, "2025-11-25", stage.folder / "suite")


# What a server without sessions and streams can do, as those of dcc-mcp are.
@pytest.mark.parametrize("scenario", ["tools-list", "tools-call-simple-text", "tools-call-image",
                                      "tools-call-audio", "tools-call-embedded-resource",
                                      "tools-call-mixed-content", "tools-call-error"])
def test_tools_of_a_backend_without_sessions(stage, suite, scenario):
    url = url_for_suite(stage, [start_http_fixture(stage, "--stateless", "--reply", "json")], "callboardd")
    folder = stage.folder / "suite"
    done = run_suite("--url", url, "--rev", "2025-11-25", "--scenario", scenario, "--out", folder)
    assert done.returncode == 0, done.stdout.strip().splitlines()[-1]
    assert scenarios_in(done.stdout.strip().splitlines()[-1]) == 1
    assert not warnings_in(folder)


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
    assert scenarios_in(done.stdout.strip().splitlines()[-1]) == 1
    assert not warnings_in(stage.folder / "suite")
