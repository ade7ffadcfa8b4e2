"""What backends ask across the eras: clients of 2026-07-28 whose older backend asks in mid-call, and URLs both ways; each is answered once, under its own key."""

import json
import sys
from pathlib import Path

import pytest

from mcp_http import McpClient, connection_closed
from stage import wait_until
from test_eras import NAMESPACE, messages, post

SCRIPTED_SERVER = Path(__file__).with_name("scripted_server.py")
ABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
SIGN = {"mode": "url", "url": "https://studio.example/sign?shot=sq010", "message": "Sign in"}

# What is asked, and what is answered to it.
ASKS = {
    "folders": {"method": "roots/list"},
    "form": {"method": "elicitation/create", "params": {
        "message": "Which frame?",
        "requestedSchema": {"type": "object", "properties": {"frame": {"type": "integer"}}}}},
    "model": {"method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "A name?"}}], "maxTokens": 9}},
}
ANSWERS = {
    "roots/list": {"roots": [{"uri": "file:///scenes", "name": "scenes"}]},
    "elicitation/create": {"action": "accept", "content": {"frame": 1001}},
    "sampling/createMessage": {"role": "assistant", "model": "none",
                               "content": {"type": "text", "text": "Ada"}},
}
# What may ask: its params, and how the backend answers with what it was told.
REQUESTS = {
    "tools/call": ({"name": "asks", "arguments": {"z": 1, "a": 2}},
                   '{"content":[{"type":"text","text":"$answers"}]}'),
    "prompts/get": ({"name": "asks", "arguments": {"shot": "sq010"}},
                    '{"messages":[{"role":"user","content":{"type":"text","text":"$answers"}}]}'),
    "resources/read": ({"uri": "scene://asks"}, '{"contents":[{"uri":"scene://asks","text":"$answers"}]}'),
}


def start_scripted(stage, script, **settings):
    """The scripted server as seat `scripted`."""
    rewrite(stage, script)
    return stage.start_agent(sys.executable, SCRIPTED_SERVER, stage.folder / "script.json", "--log",
                             stage.folder / "wire.log", name="scripted", **settings)


def rewrite(stage, script):
    part = stage.folder / "script.part"
    part.write_text(json.dumps(script))
    part.rename(stage.folder / "script.json")


def received(stage, method):
    """The requests of that method that the backend has got."""
    lines = map(json.loads, (stage.folder / "wire.log").read_text().splitlines())
    return [message for message in lines if message.get("method") == method]


def request(stage, method, params, capabilities=ABLE, **more):
    """(status, message) of a request of 2026-07-28."""
    meta = {NAMESPACE + "clientCapabilities": capabilities}
    connection, response = post(stage.port, method, {**params, **more, "_meta": meta}, "/mcp/scripted",
                                params.get("name", params.get("uri")))
    with connection_closed(connection):
        if response.getheader("Content-Type") == "application/json":
            return response.status, json.loads(response.read())
        return response.status, [message for message in messages(response) if "id" in message][-1]


def told_of(message):
    """What the backend says it was answered: {name: response}."""
    result = message["result"]
    if "messages" in result:
        return json.loads(result["messages"][0]["content"]["text"])
    return json.loads((result.get("content") or result["contents"])[0]["text"])


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("names", [["folders"], ["folders", "form"], ["form", "model", "folders"]],
                         ids="-".join)
def test_what_an_older_backend_asks_at_once_is_answered_one_by_one(stage, method, names):
    params, result = REQUESTS[method]
    stage.start_control_plane()
    start_scripted(stage, {method: [{"ask": {name: ASKS[name] for name in names}}, {"result": result}]})
    _, message = request(stage, method, params)
    answered, shown = [], {}
    while message["result"]["resultType"] == "input_required":
        asked = message["result"]["inputRequests"]
        assert asked and not set(asked) & set(answered), "what is answered is not asked again"
        for key, ask in asked.items():
            assert shown.setdefault(key, ask) == ask, "what is not answered is asked again as it was"
        key = sorted(asked)[-1]
        answered.append(key)
        assert len(answered) <= len(names)
        # A key that nobody has asked for counts for nothing.
        _, message = request(stage, method, params, requestState=message["result"]["requestState"],
                             inputResponses={key: ANSWERS[asked[key]["method"]], "ask-99": {"roots": []}})
    assert message["result"]["resultType"] == "complete"
    assert told_of(message) == {name: {"result": ANSWERS[ASKS[name]["method"]]} for name in names}
    assert sorted(ask["method"] for ask in shown.values()) == sorted(ASKS[name]["method"] for name in names)
    assert len(received(stage, method)) == 1, "it has run once"


@pytest.mark.parametrize("ends", ["with a late result", "never"])
def test_a_parked_call_whose_budget_is_spent_has_its_outcome_then_its_state_expires(stage, ends):
    stage.start_control_plane(budgets__connect="300ms", budgets__heartbeat="500ms", budgets__link_read_idle="1500ms",
                              budgets__queue="3s", budgets__quick_call="2s", budgets__heavy_call="2s",
                              budgets__upper_wait_margin="2s")
    params, result = REQUESTS["tools/call"]
    late_result = [{"result": result}] if ends == "with a late result" else []
    start_scripted(stage, {
        "tools/call asks": [{"ask": {"form": ASKS["form"]}}, *late_result],
        "tools/call next": '{"content":[{"type":"text","text":"served"}]}'}, queue__silence_max="1s")
    _, asked = request(stage, "tools/call", params)
    (key, _), = asked["result"]["inputRequests"].items()
    late = {"requestState": asked["result"]["requestState"],
            "inputResponses": {key: ANSWERS["elicitation/create"]}}

    def backend_answer():
        lines = map(json.loads, (stage.folder / "wire.log").read_text().splitlines())
        return next((line for line in lines if "method" not in line), None)

    answer = wait_until(backend_answer, 20, "what the backend asked is answered when the budget is spent")
    assert "the call that led to this request is over" in answer["error"]["message"]
    # What nobody has been told yet may still be the tool's own answer.
    _, told = request(stage, "tools/call", params, **late)
    if ends == "never":
        assert told["error"]["data"]["reason"] == "run_budget_spent", told
        assert told["error"]["data"]["certainty"] == "running"
    else:
        assert "error" in told or told_of(told) == {"form": {"error": answer["error"]}}, told

    def expired():
        _, told = request(stage, "tools/call", params, **late)
        return told.get("error", {}).get("code") == -32602 and told

    told = wait_until(expired, 20, "the state expires", step=0.2)
    assert "expired" in told["error"]["message"]
    assert len(received(stage, "tools/call")) == 1, "it has run once"

    def served():
        _, told = request(stage, "tools/call", {"name": "next", "arguments": {}})
        return told.get("result", {}).get("content") == [{"type": "text", "text": "served"}]

    wait_until(served, 20, "the seat is free again")


# ---- URLs --------------------------------------------------------------------------------------


def test_a_url_that_an_older_backend_requires_is_asked_of_a_client_of_the_new_era(stage):
    stage.start_control_plane()
    required = {"code": -32042, "message": "sign in first",
                "data": {"elicitations": [{**SIGN, "elicitationId": "e-7"}]}}
    start_scripted(stage, {"tools/call sign": [{"error": json.dumps(required)}]})
    params = {"name": "sign", "arguments": {}}
    _, asked = request(stage, "tools/call", params)
    assert asked["result"]["resultType"] == "input_required"
    assert asked["result"]["inputRequests"] == {"url-1": {"method": "elicitation/create", "params": SIGN}}
    assert "requestState" not in asked["result"], "the call is over"
    for capabilities in ({}, {"elicitation": {}}, {"elicitation": {"form": {}}}):
        status, refused = request(stage, "tools/call", params, capabilities)
        assert (status, refused["error"]["code"]) == (400, -32021), refused
        assert refused["error"]["data"]["requiredCapabilities"] == {"elicitation": {"url": {}}}
    ran = len(received(stage, "tools/call"))
    _, declined = request(stage, "tools/call", params, inputResponses={"url-1": {"action": "decline"}})
    assert declined["result"]["isError"] is True
    assert len(received(stage, "tools/call")) == ran, "the backend is not asked again"
    rewrite(stage, {"tools/call sign": '{"content":[{"type":"text","text":"signed in"}]}'})
    _, done = request(stage, "tools/call", params, inputResponses={"url-1": {"action": "accept"}})
    assert done["result"]["content"][0]["text"] == "signed in"
    last = received(stage, "tools/call")[-1]["params"]
    assert "inputResponses" not in last and last["name"] == "sign"


MODERN_ONLY = {
    "initialize": [{"error": '{"code":-32602,"message":"per-request _meta is missing"}'}],
    "server/discover": '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
                       '"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":'
                       '{"name":"scripted","version":"1"}}}',
    "tools/list": '{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"sign",'
                  '"inputSchema":{"type":"object"}}]}',
    "subscriptions/listen": None,
    "tools/call sign": json.dumps({"resultType": "input_required", "requestState": "state-1", "inputRequests": {
        "u": {"method": "elicitation/create", "params": SIGN}}}),
    "tools/call sign again": '{"resultType":"complete","content":[{"type":"text","text":"signed in"}]}',
}


@pytest.fixture
def modern_only(stage):
    """A stage whose backend speaks 2026-07-28 alone and requires a URL."""
    stage.start_control_plane()
    start_scripted(stage, MODERN_ONLY)
    return stage


def client_with(stage, capabilities):
    client = McpClient(stage.port, "/mcp/scripted")
    client.initialize(capabilities=capabilities)
    return client


def test_a_url_that_a_backend_of_the_new_era_requires_is_asked_of_an_older_client(modern_only):
    client = client_with(modern_only, {"elicitation": {"form": {}, "url": {}}})
    call = client.start_call("sign")
    ask, = wait_until(lambda: list(call.answer.notifications), 20, "the client is asked")
    name = ask["params"].pop("elicitationId")
    assert name and ask["params"] == SIGN and ask["method"] == "elicitation/create"
    status, _, _ = client.post({"jsonrpc": "2.0", "id": ask["id"], "result": {"action": "accept"}})
    assert status == 202
    answer = call.result(20)
    assert answer.text == "signed in" and "resultType" not in answer.result
    first, second = [got["params"] for got in received(modern_only, "tools/call")]
    assert "inputResponses" not in first
    assert second["inputResponses"] == {"u": {"action": "accept"}}
    assert second["requestState"] == "state-1"


@pytest.mark.parametrize("capabilities", [{}, {"roots": {}}, {"elicitation": {}}, {"elicitation": {"form": {}}}],
                         ids=json.dumps)
def test_an_older_client_that_opens_no_urls_gets_the_error_that_names_them(modern_only, capabilities):
    client = client_with(modern_only, capabilities)
    answer = client.call("sign")
    assert answer.notifications == []
    assert answer.error["code"] == -32042, answer.error
    elicitation, = answer.error["data"]["elicitations"]
    assert elicitation.pop("elicitationId")
    assert elicitation == SIGN
    assert len(received(modern_only, "tools/call")) == 1
