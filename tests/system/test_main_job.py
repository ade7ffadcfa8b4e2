"""The main job as a user starts it: ./run, OpenUSD found through the facade, its skill loaded, a stage on disk."""

import json
import re

import pytest

from mcp_http import McpClient
from stage import ROOT, wait_until

TOOL = re.compile(r"\bopenusd\.[0-9a-f]{8}\.(?:openusd_stage__)?create_stage\b")


@pytest.fixture
def run(stage):
    """./run in a state folder of the test, on free ports."""
    program = stage.start([ROOT / "run", "--port", 0, "--grpc-port", 0, "--state-dir",
                           stage.folder / "state"], "run")
    program.wait_for("Ctrl-C stops everything", 180)
    stage.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/mcp", program.output())[1])
    return program


def test_openusd_is_found_loaded_and_called_through_the_facade(stage, run):
    client = McpClient(stage.port)
    client.initialize()
    advertised = [tool["name"] for tool in client.tools()]
    assert set(advertised) >= {"search_tools", "describe_tool", "call_tool", "list_instances",
                               "load_skill"}
    assert not [name for name in advertised if "stage" in name]  # never a backend's own tools

    instances = client.call("list_instances")
    assert "openusd" in instances.text

    # Not loaded yet: the search finds the skill and says what to do.
    found = client.call("search_tools", {"query": "create a new OpenUSD stage"})
    assert not found.failed, found.text
    assert "openusd-stage" in found.text
    assert "load_skill" in found.text

    loaded = client.call("load_skill", {"skill_name": "openusd-stage"}, timeout=40)
    assert not loaded.failed, loaded.text

    found = client.call("search_tools", {"query": "create_stage"})
    slug = TOOL.search(found.text)
    assert slug, found.text

    described = client.call("describe_tool", {"tool_slug": slug[0]})
    assert "stage_file" in described.text

    target = stage.folder / "state" / "project" / "hello.usda"
    wrong = client.call("call_tool", {"tool_slug": slug[0], "arguments": {}})
    assert wrong.failed and "stage_file" in wrong.text  # refused before it reaches the seat
    created = client.call("call_tool", {"tool_slug": slug[0],
                                        "arguments": {"stage_file": str(target)}}, timeout=60)
    assert not created.failed, created.text
    assert target.read_text().startswith("#usda 1.0")
    assert client.delete() in (200, 204)


def test_printed_curl_line_works_as_it_stands(stage, run):
    line = re.search(r"^curl .*$", run.output(), re.MULTILINE)[0]
    program = stage.start(["bash", "-c", line], "curl")
    wait_until(lambda: not program.running, 10, "curl has ended")
    assert program.process.returncode == 0
    assert json.loads(program.output())["result"]["protocolVersion"] == "2025-11-25"
    assert re.search(rf"^claude mcp add --transport http callboard http://127\.0\.0\.1:{stage.port}/mcp$",
                     run.output(), re.MULTILINE)
