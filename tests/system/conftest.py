"""Fixtures of the system tests: a stage per test, and what a test may need that a machine may lack."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import black_hole  # noqa: E402
from stage import BINARIES, SHARED, Stage  # noqa: E402


FULL = os.environ.get("CALLBOARD_TEST_TIER") == "full"
NEGOTIATED = []  # (client, MCP revision), told at the end of a run


def pytest_terminal_summary(terminalreporter):
    for client, revision in NEGOTIATED:
        terminalreporter.write_line(f"negotiated by {client}: {revision}")


def need(reason):
    """Leaves a test out, by name; on CI only what a clone need not have may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"on CI this must be there: {reason}")
    pytest.skip(reason)


def need_full(what):
    """Leaves a test of the full tier out unless ./test --full runs."""
    if not FULL:
        pytest.skip(f"{what}: only with ./test --full")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.when == "call":
        item.failed = report.failed
    return report


@pytest.fixture
def stage(tmp_path, request):
    for program in ("callboardd", "callboard-agent", "callboard-bridge", "callboard"):
        if not (BINARIES / program).exists():
            pytest.fail(f"{BINARIES / program} is missing: tools/build release")
    made = Stage(tmp_path)
    yield made
    made.close()
    if getattr(request.node, "failed", False):
        print(made.logs())


@pytest.fixture
def silent_path(stage):
    """Three namespaces in a row whose router swallows packets on command; the stage closes it last."""
    reason = black_hole.unusable_because()
    if reason:
        need(reason)
    path = black_hole.SilentPath()
    stage.on_close(path.close)
    return path


@pytest.fixture
def hole(stage):
    """Makes a BlackHole before the stage's control plane; the stage closes it after its programs."""
    reason = black_hole.unusable_because()
    if reason:
        need(reason)

    def make():
        made = black_hole.BlackHole(stage.grpc_port)
        stage.on_close(made.close)
        return made

    return make


@pytest.fixture
def fixture_command():
    """The conformance fixture as a stdio server; a user's clone has no ../shared."""
    script = SHARED / "conformance" / "backend" / "fixture.mjs"
    if not script.exists():
        pytest.skip("conformance fixture: there is no ../shared/conformance")
    return ["node", str(script)]


@pytest.fixture
def node_modules():
    """Where tools/install_test_clients put the TypeScript client."""
    folder = os.environ.get("CALLBOARD_NODE_MODULES")
    if not folder:
        need("CALLBOARD_NODE_MODULES is not set: ./test sets it from tools/install_test_clients")
    return Path(folder) / "node_modules"
