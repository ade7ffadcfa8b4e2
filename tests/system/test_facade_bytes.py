"""What models' caches hold on to: the facade's list, searches and descriptions are the same bytes after restarts, and fit the list's schemas."""

import http.client
import json

import jsonschema


def raw_result(client, tool, arguments):
    """The bytes of the response, with an id that is always the same."""
    method, params = ("tools/list", {}) if tool is None else (
        "tools/call", {"name": tool, "arguments": arguments})
    connection = http.client.HTTPConnection(client.host, client.port, timeout=20)
    connection.request("POST", client.path, json.dumps({"jsonrpc": "2.0", "id": 1, "method": method,
                                                        "params": params}),
                       client._headers() | {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "application/json"
    body = response.read()
    connection.close()
    return body


def test_the_same_seats_are_the_same_bytes_after_restarts(stage):
    stage.start_control_plane()
    stage.start_registry_agent(["alpha", "beta", "gamma"])
    first = {}
    slug = stage.client("/mcp").call("search_tools", {"query": "count"}).result["structuredContent"][
        "hits"][0]["slug"]
    asked = [(None, {}), ("search_tools", {}), ("search_tools", {"query": "count its own runs"}),
             ("search_tools", {"query": "e", "limit": 5, "offset": 2}),
             ("search_tools", {"dcc_type": "beta"}), ("describe_tool", {"tool_slug": slug}),
             ("describe_tool", {"tool_slug": "alpha.00000000.x"})]

    def compare(when):
        client = stage.client("/mcp")
        for tool, arguments in asked:
            body = raw_result(client, tool, arguments)
            kept = first.setdefault(json.dumps([tool, arguments]), body)
            assert body == kept, f"{when}: {tool} {arguments}"

    compare("at first")
    compare("once more")
    stage.control_plane.kill()
    stage.restart_control_plane()
    stage.wait_for_seats(3)
    compare("after a kill of callboardd")
    stage.agent.kill()
    stage.control_plane.terminate()
    stage.restart_control_plane()
    stage.restart_agent(wait=False)
    stage.wait_for_seats(3)
    compare("after a restart of both")


def test_documents_fit_the_schemas_of_the_list(stage):
    stage.start_control_plane(bridge__envelope_after="500ms")
    stage.start_agent()
    client = stage.client("/mcp")
    schemas = {tool["name"]: tool.get("outputSchema") for tool in client.tools()}
    assert schemas.pop("call_tool") is None and all(schemas.values())

    def document(tool, **arguments):
        result = client.call(tool, arguments).result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        jsonschema.validate(result["structuredContent"], schemas[tool])
        return result["structuredContent"]

    slug = document("search_tools", query="count")["hits"][0]["slug"]
    document("describe_tool", tool_slug=slug)
    assert "error" in document("describe_tool", tool_slug="counting.00000000.x")
    document("list_instances")
    assert "error" in document("load_skill", skill_name="none", instance="nobody")
    job = client.call("call_tool", {"tool_slug": slug, "arguments": {"id": "job", "ms": 1500}})
    job_id = job.result["structuredContent"]["job_id"]
    assert document("jobs_get_status", job_id=job_id)["status"] == "running"
    assert document("jobs_cancel", job_id=job_id)["job_id"] == job_id
    document("jobs_wait", job_id=job_id, timeout_secs=0)
    assert "error" in document("jobs_wait", job_id="0" * 32)
