"""Field cases that need real binaries; a test's name begins with the id of its case."""

import subprocess
import sys

import pytest

from stage import SHARED

HTTP_CHECK = SHARED / "field-cases" / "http_check.py"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/counting"])
def test_fc_01_03_05_25_26_27_28_http_check(stage, path):
    """All requests of the cases that can be sent as they are, to both surfaces."""
    if not HTTP_CHECK.exists():
        pytest.skip("field cases (http_check.py): there is no ../shared/field-cases")
    stage.start_control_plane()
    stage.start_agent()
    done = subprocess.run([sys.executable, HTTP_CHECK, "--base", f"http://127.0.0.1:{stage.port}",
                           "--path", path], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" requests, 0 failed\n")
