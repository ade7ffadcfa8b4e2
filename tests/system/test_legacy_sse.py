"""HTTP+SSE of MCP 2024-11-05 in front of the bridge: the official clients, and bare HTTP for what no client shows."""

import http.client
import json
import queue
import signal
import sys
import threading

import pytest

from mcp_http import read_events
from stage import wait_until
from test_client_apps import CLIENTS, facts, run
from test_clients import client_command, run_to_end, values  # noqa: F401
from test_clients import facts as told_facts
from tcp_proxy import TcpProxy


class SseClient:
    """One stream of HTTP+SSE on bare HTTP; its events are read by a thread."""

    def __init__(self, port, path="/sse", revision="2024-11-05"):
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._connection.request("GET", path, headers={"Accept": "text/event-stream"})
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self._events = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        first = self._events.get(timeout=20)
        assert first.type == "endpoint", first
        self.messages = first.data
        self._revision = revision

    def _read(self):
        try:
            for event in read_events(self._response):
                self._events.put(event)
        except (OSError, ValueError, http.client.HTTPException):
            pass
        self._events.put(None)

    def close(self):
        self._connection.sock.shutdown(2)

    def post(self, message):
        """(status, body) of the POST."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("POST", self.messages, json.dumps(message),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def next(self, timeout=30):
        """The next message; None when the stream has ended."""
        event = self._events.get(timeout=timeout)
        if event is None or event.type == "close":
            return None
        assert (event.type, event.id) == ("message", "")
        return json.loads(event.data)

    def begin(self, number, method, params=None):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        assert self.post(message) == (202, "")

    def ask(self, number, method, params=None):
        """The response to a request before which nothing else comes."""
        self.begin(number, method, params)
        message = self.next()
        assert message["id"] == number, message
        return message

    def initialize(self):
        answer = self.ask(0, "initialize", {"protocolVersion": self._revision, "capabilities": {},
                                            "clientInfo": {"name": "t", "version": "1"}})
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})[0] == 202
        return answer["result"]


@pytest.fixture
def opened(stage):
    """A client with a session on the counting server's own tools."""
    stage.start_control_plane()
    stage.start_agent()
    client = SseClient(stage.port, "/sse/counting")
    client.initialize()
    return client


def test_official_client_over_http_sse(stage, client_command, fixture_command):  # noqa: F811
    stage.start_control_plane(budgets__connect="500ms", budgets__heartbeat="500ms",
                              budgets__link_read_idle="1500ms", budgets__quick_call="5s",
                              budgets__heavy_call="5s")
    stage.start_agent(*fixture_command, name="fixture", queue__silence_max="1s")
    program = stage.start([*client_command, f"http://127.0.0.1:{stage.port}/sse/fixture", "all"],
                          "client")
    run_to_end(program)
    told = dict(told_facts(program))
    assert told["connected"]["revision"] == "2025-11-25"
    assert told["connected"]["session"] is False
    assert {"test_simple_text", "test_tool_with_progress", "slow_compute"} <= set(told["tools"])
    assert told["text"] == "This is a simple text response for testing."
    # The TypeScript client hears no progress that comes in one piece with the result.
    assert told["progress"][:2] == [[0, 100, "Completed step 0 of 100"],
                                    [50, 100, "Completed step 50 of 100"]]
    assert told["cancelled"]["ms"] > 500
    assert told["after"] == "This is a simple text response for testing."
    assert told["closed"] is True


def test_client_is_asked_over_http_sse(stage, fixture_command):
    stage.start_control_plane()
    stage.start_agent(*fixture_command, "--modern-only", name="fixture")
    told = facts(run(stage, [sys.executable, CLIENTS / "asked_session.py",
                             f"http://127.0.0.1:{stage.port}/sse/fixture"]))
    assert told["revision"] == "2025-11-25"
    assert told["simple_text"] == "This is a simple text response for testing."
    assert told["input_required_result_elicitation"] == "Hello, Ada!"
    assert told["resource"] == "This is the content of the static text resource."


def test_facade_and_its_revision(stage):
    stage.start_control_plane()
    stage.start_agent()
    client = SseClient(stage.port)
    assert client.initialize()["protocolVersion"] == "2024-11-05"
    tools = client.ask(1, "tools/list")["result"]["tools"]
    assert "call_tool" in [tool["name"] for tool in tools]
    found = client.ask(2, "tools/call", {"name": "search_tools", "arguments": {"query": "echo"}})
    hits = json.loads(found["result"]["content"][0]["text"])["hits"]
    slug = next(hit["slug"] for hit in hits if hit["slug"].endswith(".echo"))
    answer = client.ask(3, "tools/call", {"name": "call_tool", "arguments": {
        "tool_slug": slug, "arguments": {"text": "hello"}}})
    assert answer["result"]["content"][0]["text"] == "hello"


def test_calls_run_side_by_side_on_one_stream(opened):
    # Large answers come in pieces; no other message stands in the middle of one.
    sizes = {1: 3_000_000, 2: 10, 3: 1_000_000, 4: 200_000}
    for number, size in sizes.items():
        opened.begin(number, "tools/call", {"name": "big", "arguments": {"bytes": size}})
    opened.begin(5, "ping")
    answers = {}
    while len(answers) < 5:
        message = opened.next()
        answers[message["id"]] = message["result"]
    assert answers.pop(5) == {}
    assert {number: len(result["content"][0]["text"]) for number, result in answers.items()} == sizes


def test_end_of_the_stream_ends_the_session_and_cancels_no_call(stage, opened):
    gate = stage.folder / "gate"
    opened.begin(1, "tools/call", {"name": "count", "arguments": {"id": "a", "gate": str(gate)}})
    stage.wait_begun("a")
    opened.close()
    wait_until(lambda: opened.post({"jsonrpc": "2.0", "id": 2, "method": "ping"})[0] == 404, 20,
               "the session is unknown")
    gate.touch()
    wait_until(lambda: ("end", "a") in [event[:2] for event in stage.events()], 20,
               "the call ends")
    assert ("cancelled", "a") not in [event[:2] for event in stage.events()]
    # A new stream is a new session.
    again = SseClient(stage.port, "/sse/counting")
    again.initialize()
    answer = again.ask(1, "tools/call", {"name": "echo", "arguments": {"text": "x"}})
    assert answer["result"]["content"][0]["text"] == "x"


def test_calls_end_before_the_stream_does_when_the_program_ends(stage, opened):
    gate = stage.folder / "gate"
    opened.begin(1, "tools/call", {"name": "count", "arguments": {"id": "a", "gate": str(gate)}})
    stage.wait_begun("a")
    stage.control_plane.signal(signal.SIGTERM)
    wait_until(lambda: opened.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})[0] == 503,
               20, "new requests are refused")
    gate.touch()
    message = opened.next()
    while message["id"] == 2:  # taken before the end was begun
        message = opened.next()
    assert message["result"]["content"][0]["text"] == "counted a"
    assert opened.next() is None


def test_calls_of_a_stream_outlive_the_control_plane(stage):
    stage.start_control_plane()
    stage.start_agent()
    bridge = stage.start_bridge()
    client = SseClient(bridge.port, "/sse/counting")
    client.initialize()
    # Its stream is open, so the control plane keeps it: progress was told.
    client.begin(1, "tools/call", {"name": "progress", "arguments": {"steps": 40, "ms": 100},
                                   "_meta": {"progressToken": "p"}})
    assert client.next()["method"] == "notifications/progress"
    stage.control_plane.kill()
    stage.restart_control_plane()
    message = client.next()
    while "method" in message:
        message = client.next()
    assert message["id"] == 1
    assert message["result"]["content"][0]["text"] == "40 steps"


def test_a_cut_stream_is_not_resumed_but_opened_anew(stage):
    stage.start_control_plane()
    stage.start_agent()
    cable = TcpProxy(stage.port)
    stage.on_close(cable.close)
    client = SseClient(cable.port, "/sse/counting")
    client.initialize()
    assert cable.cut() >= 1
    assert client.next() is None
    again = SseClient(cable.port, "/sse/counting")
    assert again.messages != client.messages
    again.initialize()
    assert again.ask(1, "ping")["result"] == {}


def test_batches_are_taken_on_mcp_alone(stage, opened):
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]
    status, body = opened.post(batch)
    assert status == 400
    assert json.loads(body)["error"]["code"] == -32600
