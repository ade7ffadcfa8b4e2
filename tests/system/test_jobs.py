"""Calls of the facade that take longer than their clients: jobs, and what people are told meanwhile."""

import http.client
import json
import time

import pytest

from conftest import FULL
from mcp_http import McpClient
from stage import wait_until


def facade(stage, **settings):
    """A client of the facade, and the slug of the counting server's `count`."""
    stage.start_control_plane(**({"bridge__envelope_after": "2s"} | settings))
    stage.start_agent()
    client = McpClient(stage.port)
    client.initialize()
    hits = client.call("search_tools", {"query": "count"}).result["structuredContent"]["hits"]
    slug = next(hit["slug"] for hit in hits if hit["slug"].endswith(".count"))
    return client, slug


def document(answer):
    return answer.result["structuredContent"]


def test_a_long_call_becomes_a_job_that_ends_and_runs_once(stage):
    client, slug = facade(stage)
    answer = client.call("call_tool", {"tool_slug": slug, "arguments": {"id": "a", "ms": 5000}})
    assert 1.9 < answer.seconds < 3.5
    job = document(answer)
    assert (job["status"], answer.result["isError"]) == ("running", False)
    assert json.loads(answer.result["content"][0]["text"]) == job
    assert job["next_step"] == {"tool": "jobs_wait", "arguments": {"job_id": job["job_id"]}}

    # A wait is never longer than what makes a job of a call.
    waited = document(client.call("jobs_wait", {"job_id": job["job_id"]}))
    assert (waited["status"], waited["timed_out"]) == ("running", True)
    ended = document(client.call("jobs_wait", {"job_id": job["job_id"]}))
    assert (ended["status"], ended["tool"], ended["certainty"]) == ("completed", "count", "finished")
    assert stage.begun("a") == 1

    # Nobody else sees it.
    other = McpClient(stage.port)
    other.initialize()
    answer = other.call("jobs_get_status", {"job_id": "00" * 16})
    assert answer.failed and "no job" in answer.text


def test_a_job_in_the_queue_is_cancelled_before_it_starts(stage):
    client, slug = facade(stage)
    running = client.start_call("call_tool", {"tool_slug": slug, "arguments": {"id": "one", "ms": 6000}})
    stage.wait_begun("one")
    queued = document(client.call("call_tool", {"tool_slug": slug, "arguments": {"id": "two", "ms": 1}}))
    assert queued["status"] == "pending"
    document(client.call("jobs_cancel", {"job_id": queued["job_id"]}))
    wait_until(lambda: document(client.call("jobs_get_status", {"job_id": queued["job_id"]}))["status"]
               == "cancelled", 5, "the job is cancelled", step=0.1)
    assert document(running.result(10))["status"] == "running"
    wait_until(lambda: any(event == "end" for event, _, _ in stage.events()), 10, "the other has ended")
    time.sleep(0.5)
    assert stage.begun("two") == 0


def test_whoever_asks_follows_the_states_of_a_call(stage):
    client, slug = facade(stage)
    first = client.start_call("call_tool", {"tool_slug": slug, "arguments": {"id": "one", "ms": 1500}})
    stage.wait_begun("one")
    connection = http.client.HTTPConnection("127.0.0.1", stage.port, timeout=10)
    body = {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": {
        "name": "call_tool", "arguments": {"tool_slug": slug, "arguments": {"id": "two", "ms": 1000}},
        "_meta": {"progressToken": "p"}}}  # with a token it does not become a job
    connection.request("POST", "/mcp", json.dumps(body), {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
        "Mcp-Session-Id": client.session, "x-agent-status": "events"})
    response = connection.getresponse()
    lines = response.read().decode().splitlines()
    connection.close()
    assert response.headers["x-agent-status"] == "queued"
    told = [json.loads(data.removeprefix("data: ")) for event, data in zip(lines, lines[1:])
            if event == "event: x-agent-status"]
    states = [status["state"] for status in told]
    assert states[0] == "queued" and states[-1] == "success", told
    assert "waiting" in states and told[0]["ahead"] == 1 and told[0]["message"]
    assert lines.index("event: x-agent-status") < len(lines) - 3, "before the response"
    assert not first.result(10).failed


@pytest.mark.parametrize("by", ["meta", "header"])
def test_fc_36_a_timeout_leaves_a_receipt(stage, by):
    """A tool of 20 s and a deadline of 5 s in the full tier; 4 s and 1 s else."""
    seconds, deadline = (20, 5) if FULL else (4, 1)
    client, slug = facade(stage, bridge__envelope_after=f"{deadline}s")
    other = McpClient(stage.port)
    other.initialize()
    plain = client._headers

    def call(name, key=None, wait=40, progress=False):
        meta = {"callboard/idempotency-key": key} if key and by == "meta" else {}
        client._headers = lambda: plain() | ({"Idempotency-Key": key} if key and by == "header" else {})
        return client.call("call_tool", {"tool_slug": slug, "arguments": {
            "id": name, "ms": seconds * 1000}}, timeout=wait, meta=meta, progress=progress)

    # The gateway's answer in time: it carries the job's id and says that the work goes on.
    first = call("told", "key-1")
    assert deadline - 0.2 < first.seconds < deadline + 1.5
    job = document(first)
    assert (job["status"], first.result["isError"]) == ("running", False)
    assert "goes on" in job["message"] or "running" in job["message"], job
    for _ in range(2):
        again = document(call("told", "key-1"))
        assert again["job_id"] == job["job_id"], "the repetition attaches to the same job"
    ended = document(wait_until(lambda: next((
        answer for answer in [client.call("jobs_wait", {"job_id": job["job_id"]}, timeout=40)]
        if document(answer)["status"] != "running"), None), 60, "the job ends"))
    assert (ended["status"], ended["job_id"]) == ("completed", job["job_id"])
    assert ended["result"]["content"][0]["text"] == "counted told"
    later = document(client.call("jobs_get_status", {"job_id": job["job_id"]}))
    assert later["result"] == ended["result"]
    assert call("told", "key-1").text == "counted told", "the key has the outcome as long as the receipt"
    assert stage.begun("told") == 1

    # The client's own deadline: it hangs up, and what it repeats attaches to what runs.
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            call("hung-up", "key-2", wait=deadline, progress=True)
    assert call("hung-up", "key-2", progress=True).text == "counted hung-up"
    assert seconds - 0.2 < time.monotonic() - started < seconds + 2
    assert stage.begun("hung-up") == 1

    # Without a key nobody but the caller repeats anything, whether it has hung up or waits.
    with pytest.raises(TimeoutError):
        call("lone", wait=deadline, progress=True)
    stage.wait_begun("lone")
    wait_until(lambda: any((event, name) == ("end", "lone") for event, name, _ in stage.events()),
               seconds + 5, "the tool has ended")
    time.sleep(1)
    assert stage.begun("lone") == 1


def test_fc_12_a_deadline_that_is_over_is_reported_with_the_job(stage):
    client, slug = facade(stage)
    answer = client.call("call_tool", {"tool_slug": slug, "arguments": {"id": "slow", "ms": 3000}},
                         meta={"dcc": {"timeout_ms": 1000}})
    assert 0.9 < answer.seconds < 2
    data = answer.error["data"]
    assert (data["kind"], data["certainty"]) == ("timed_out", "running")
    assert answer.error["message"] == "no answer within 1000 ms; the tool is still at work"
    job = document(client.call("jobs_get_status", {"job_id": data["call_id"]}))
    assert (job["job_id"], job["tool"]) == (data["call_id"], "count")
    wait_until(lambda: any(event == "end" for event, _, _ in stage.events()), 5, "the tool has ended")
    assert stage.begun("slow") == 1
