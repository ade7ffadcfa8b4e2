"""Backends that break the rules: the call ends with a clear answer, and the others go on."""

import contextlib
import json
import sys
import threading
import time
from pathlib import Path

import pytest

from rogue_server import RAW_RESULT
from stage import wait_until

ROGUE = Path(__file__).with_name("rogue_server.py")
ROGUE_HTTP = Path(__file__).with_name("rogue_http.py")


@pytest.fixture
def rogue(stage):
    stage.start_control_plane(budgets__quick_call="16s", budgets__heavy_call="17s")
    stage.start_agent(sys.executable, ROGUE, name="counting")
    return stage


def test_a_backend_that_answers_twice_is_heard_once(rogue):
    client = rogue.client()
    for _ in range(3):
        assert client.call("twice").text == "first"
    assert client.call("raw").result["structuredContent"]["id"] == 9007199254740993


def test_answers_to_ids_nobody_asked_reach_nobody(rogue):
    one, two = rogue.client(), rogue.client()
    waiting = one.start_call("slow", {"text": "mine", "ms": 500})
    assert two.call("wrong_id").text == "right"
    assert waiting.result(10).text == "mine"


def test_a_backend_that_never_answers_costs_its_budget_and_says_so(rogue):
    client = rogue.client()
    answer = client.call("silent", timeout=25)
    assert answer.failed
    assert 15 < answer.seconds < 20
    assert answer.error["data"]["reason"] == "run_budget_spent"
    assert answer.error["data"]["certainty"] == "running"


def test_fc_31_numbers_and_unknown_members_keep_their_text(rogue):
    client = rogue.client()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "raw"}}
    status, _, text = client.post(body)
    assert status == 200
    assert f'"result":{RAW_RESULT}' in text


def test_fc_02_equal_ids_of_two_sessions_stay_apart(rogue):
    a, b = rogue.client(), rogue.client()
    found = {}

    def ask(client, name, ms):
        _, headers, text = client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "slow", "arguments": {"text": name, "ms": ms}}})
        found[name] = text

    threads = [threading.Thread(target=ask, args=(a, "aaa", 1000)),
               threading.Thread(target=ask, args=(b, "bbb", 200))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found["aaa"].count('"text":"aaa"') + found["aaa"].count('"text": "aaa"') == 1
    assert "bbb" not in found["aaa"] and "aaa" not in found["bbb"]
    assert found["bbb"].count('"text":"bbb"') + found["bbb"].count('"text": "bbb"') == 1
    ids = json.loads(a.call("ids").text)
    assert len(ids) == 2 and len(set(map(json.dumps, ids))) == 2


def test_fc_39_a_backend_that_dies_in_mid_stream_ends_the_stream_with_an_error(rogue):
    client = rogue.client()
    started = time.monotonic()
    answer = client.call("die", progress=True, timeout=10)
    assert answer.progress == [1, 2]
    assert answer.error is not None and answer.resumes == 0
    assert "exit" in answer.text or "ended" in answer.text
    assert time.monotonic() - started < 3
    wait_until(lambda: not client.call("slow", {"text": "t", "ms": 0}).failed, 15, "the backend is back")


# -- the same on HTTP, old and new ---------------------------------------------------------------------


@pytest.fixture(params=["mcp", "sse"])
def rogue_http(stage, request):
    stage.start_control_plane(budgets__quick_call="16s", budgets__heavy_call="17s")
    server = stage.start([sys.executable, ROGUE_HTTP], "rogue")
    server.wait_for("/sse")
    url = next(url for url in server.output().split() if url.endswith(request.param))
    stage.start_agent(url, name="counting")
    stage.transport = request.param
    return stage


def still_works(stage):
    def works():
        with contextlib.suppress(Exception):
            return stage.client().call("fine", {"text": "next"}, timeout=3).text == "next"

    wait_until(works, 10, "the next call is answered", step=0.1)


def test_an_http_backend_that_answers_twice_is_heard_once(rogue_http):
    client = rogue_http.client()
    for _ in range(3):
        assert client.call("twice").text == "first"
    assert client.call("fine", {"text": "mine"}).text == "mine"


def test_an_http_backend_with_wrong_ids_is_heard_for_the_right_one(rogue_http):
    client = rogue_http.client()
    assert client.call("wrong_id").text == "right"
    assert client.call("fine", {"text": "mine"}).text == "mine"


@pytest.mark.parametrize("tool", ["cut", "cut_stream"])
def test_an_http_backend_that_closes_in_mid_body_is_told_at_once(rogue_http, tool):
    client = rogue_http.client()
    answer = client.call(tool, timeout=10)
    assert answer.failed and answer.seconds < 3
    assert answer.error["data"]["certainty"] == "unknown", answer.text
    assert "xxx" not in answer.text, "half an answer is no answer"
    still_works(rogue_http)


@pytest.mark.parametrize("tool", ["silent", "mute"])
def test_an_http_backend_that_never_answers_costs_its_budget_and_says_so(rogue_http, tool):
    if tool == "mute" and rogue_http.transport == "sse":
        tool = "silent"  # there the POST is answered in any case
    client = rogue_http.client()
    answer = client.call(tool, timeout=25)
    assert answer.failed and 15 < answer.seconds < 20
    assert answer.error["data"]["reason"] == "run_budget_spent"
    assert answer.error["data"]["certainty"] == "running"
    # Its one main thread may still be at it; what needs none is answered meanwhile.
    assert [tool["name"] for tool in client.tools()][0] == "fine"
