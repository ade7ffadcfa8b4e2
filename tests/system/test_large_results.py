"""Results over 64 KiB that are kept with the receipt: whole after a kill, for jobs, tasks, keys and late ones."""

import json

from counting_server import pattern
from mcp_http import McpClient
from stage import wait_until
from test_jobs import document, facade
from test_tasks import call, ended, start

LARGE = 5_000_000


def text_of(result):
    return result["content"][0]["text"]


def kept(stage):
    """Bodies that are whole."""
    return [path for path in stage.folder.rglob("*.body") if ".bodies" in path.parent.name]


def test_a_job_with_a_large_result_is_fetched_whole_after_a_kill(stage):
    client, slug = facade(stage)
    gate = stage.folder / "gate"
    job = document(client.call("call_tool", {"tool_slug": slug, "arguments": {
        "id": "a", "gate": str(gate), "bytes": LARGE}}))
    assert job["status"] == "running"
    gate.touch()
    wait_until(lambda: kept(stage), 20, "the result is kept", step=0.05)
    stage.control_plane.kill()
    stage.restart_control_plane()
    answer = client.call("jobs_get_status", {"job_id": job["job_id"]})
    told = document(answer)
    assert (told["status"], text_of(told["result"])) == ("completed", pattern(LARGE))
    assert json.loads(answer.result["content"][0]["text"]) == told
    waited = document(client.call("jobs_wait", {"job_id": job["job_id"]}))
    assert waited["result"] == told["result"]
    assert stage.begun("a") == 1


def test_a_task_with_a_large_result_is_fetched_whole_after_a_kill_and_by_another_bridge(stage):
    start(stage)
    other = stage.start_bridge(bridge__modern="true")
    gate = stage.folder / "gate"
    made = call(stage.port, "count", {"id": "a", "gate": str(gate), "bytes": LARGE})
    gate.touch()
    over = ended(stage.port, made["taskId"])
    assert (over["status"], text_of(over["result"])) == ("completed", pattern(LARGE))
    assert over["result"]["resultType"] == "complete"
    stage.control_plane.kill()
    stage.restart_control_plane()
    assert ended(stage.port, made["taskId"]) == over
    assert ended(other.port, made["taskId"]) == over


def test_a_kill_while_the_result_is_on_its_way_loses_nothing(stage):
    client, slug = facade(stage)
    gate = stage.folder / "gate"
    job = document(client.call("call_tool", {"tool_slug": slug, "arguments": {
        "id": "a", "gate": str(gate), "bytes": 40_000_000}}))
    gate.touch()
    wait_until(lambda: list(stage.folder.rglob("*.part")) or kept(stage), 20, "a part is here", step=0.002)
    stage.control_plane.kill()
    stage.restart_control_plane()

    def whole():
        told = document(client.call("jobs_wait", {"job_id": job["job_id"]}, timeout=60))
        return told.get("result")

    assert text_of(wait_until(whole, 60, "the result is here", step=0.2)) == pattern(40_000_000)
    assert stage.begun("a") == 1


def test_a_late_large_result_is_told_as_late(stage):
    client, slug = facade(stage)
    gate = stage.folder / "gate"
    answer = client.call("call_tool", {"tool_slug": slug, "arguments": {
        "id": "a", "gate": str(gate), "bytes": 1_000_000}}, meta={"dcc": {"timeout_ms": 1000}})
    call_id = answer.error["data"]["call_id"]
    gate.touch()

    def late():
        told = document(client.call("jobs_get_status", {"job_id": call_id}))
        return told if told.get("late") and "result" in told else None

    told = wait_until(late, 20, "its late result", step=0.1)
    assert text_of(told["result"]) == pattern(1_000_000)
