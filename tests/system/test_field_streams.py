"""Field cases about streams: who gets which message, in which order, and how a stream ends."""

import contextlib
import http.client
import itertools
import json
import re
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from field_server import ODD_TEXT
from mcp_http import connection_closed, read_events
from stage import wait_until
from tcp_proxy import TcpProxy

FIELD_SERVER = Path(__file__).with_name("field_server.py")


@pytest.fixture
def field(stage):
    """The field server on stdio as seat `field`; it runs calls side by side."""
    stage.start_control_plane()
    stage.start_agent(
        sys.executable,
        FIELD_SERVER,
        name="field",
        queue__main_in_flight="128",
        queue__main_depth="600",
    )
    return stage


def field_client(stage):
    return stage.client("/mcp/field")


class Listener:
    """The GET stream of a session through an intermediary, read in a thread until it ends."""

    def __init__(self, stage, client, after=None):
        self._proxy = TcpProxy(stage.port)
        stage.on_close(self._proxy.close)
        self.reset = self._proxy.cut
        headers = client._headers() | {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = after
        self.connection = http.client.HTTPConnection("127.0.0.1", self._proxy.port, timeout=60)
        self.connection.request("GET", client.path, None, headers)
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.events, self.comments, self.ended = [], [], False
        if self.status == 200:
            threading.Thread(target=self._read, daemon=True).start()
        else:
            self.body = self.response.read().decode()

    def _read(self):
        # As a proxy in between would, it keeps the comments too.
        readline = self.response.readline

        def noting():
            line = readline()
            if line.startswith(b":"):
                self.comments.append(line[1:].strip().decode())
            return line

        self.response.readline = noting
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            for event in read_events(self.response):
                self.events.append(event)
            self.ended = True

    def updates(self):
        """The numbers of the job updates that have come."""
        messages = [json.loads(event.data) for event in list(self.events) if event.data]
        return [
            message["params"]["n"]
            for message in messages
            if message["method"] == "notifications/$/dcc.jobUpdated"
        ]


def raw_call(stage, client, number, name, arguments, progress=False):
    """The bytes of the whole answer, from the status line to the end of the connection."""
    params = {"name": name, "arguments": arguments}
    if progress:
        params["_meta"] = {"progressToken": f"t{number}"}
    body = json.dumps(
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    ).encode()
    headers = "".join(f"{key}: {value}\r\n" for key, value in client._headers().items())
    with socket.create_connection(("127.0.0.1", stage.port), 30) as connection:
        connection.sendall(
            f"POST {client.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Connection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


# -- one answer to one caller --------------------------------------------


def test_fc_02_equal_ids_in_flight_at_once_reach_their_own_sessions(field):
    a, b = field_client(field), field_client(field)
    listening = Listener(field, a)
    found, order = {}, []

    def ask(client, text, ms):
        answer = raw_call(field, client, 1, "slow", {"text": text, "ms": ms}).decode()
        order.append(text)
        found[text] = answer

    threads = [
        threading.Thread(target=ask, args=case) for case in ((a, "aaa", 1000), (b, "bbb", 200))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert order == ["bbb", "aaa"], "both were at work at once"
    for mine, other in (("aaa", "bbb"), ("bbb", "aaa")):
        assert found[mine].count(mine) == 1 and other not in found[mine]
        assert re.search(r'"id":1\b', found[mine])
    ids = json.loads(a.call("seen").text)["calls"]
    assert len(ids) == 2 and len(set(map(json.dumps, ids))) == 2
    assert not listening.ended, "the second client did not end the stream of the first"
    assert b.call("slow", {"text": "still here"}).text == "still here"


def test_fc_17_progress_of_many_calls_is_complete_and_in_order(field):
    """32 calls at once over one agent stream, each with 200 progress messages."""
    field.agent.terminate()
    field.start_agent(name="field", queue__main_in_flight="32")
    client = field_client(field)
    calls = [
        client.start_call("progress", {"steps": 200, "ms": 5}, progress=True, timeout=50)
        for _ in range(32)
    ]
    for call in calls:
        answer = call.result(55)
        assert answer.text == "200 steps"
        assert answer.progress == list(range(1, 201))
        assert len({note["params"]["progressToken"] for note in answer.notifications}) == 1


# -- cancel --------------------------------------------------------------


@pytest.mark.parametrize("tool", ["obeys", "ignores"])
def test_fc_29_a_cancel_has_one_outcome_whether_the_backend_obeys_or_not(field, tool):
    client = field_client(field)
    body = {
        "jsonrpc": "2.0",
        "id": "c",
        "method": "tools/call",
        "params": {"name": tool, "arguments": {"ms": 4000, "text": "too late"}},
    }
    found = []
    thread = threading.Thread(
        target=lambda: found.append((client.post(body, 30), time.monotonic()))
    )
    thread.start()
    time.sleep(1)
    asked = time.monotonic()
    assert (
        client.notify("notifications/cancelled", {"requestId": "c", "reason": "changed my mind"})[0]
        == 202
    )
    thread.join(10)
    (status, _, text), when = found[0]
    assert status == 200 and when - asked < 2
    assert text.count('"result"') + text.count('"error"') <= 1
    assert "too late" not in text
    seen = json.loads(client.call("seen").text)
    assert seen["cancels"] == seen["calls"][:1], "the backend is told with its own id"
    time.sleep(max(0, asked + 4 - time.monotonic()))  # the late answer has come by now
    assert client.call("slow", {"text": "after"}).text == "after"
    assert field.agent.running and field.control_plane.running


def test_a_backend_that_takes_its_own_request_back_cancels_it_at_the_client(field):
    """Under the id of the request the client was sent; an answer all the same is dropped."""
    client = field_client(field)
    client.session = None
    answer = client.request(
        "initialize",
        {
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "asked", "version": "1"},
        },
    )
    assert answer.result and client.notify("notifications/initialized", {})[0] == 202
    answer = client.call("ask", {"method": "roots/list", "ms": 500}, timeout=20)
    ask, cancelled = answer.notifications
    assert ask["method"] == "roots/list" and ask["id"].startswith("ask-")
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"] == {"reason": "no longer needed", "requestId": ask["id"]}
    assert json.loads(answer.text) == []
    status, _, _ = client.post({"jsonrpc": "2.0", "id": ask["id"], "result": {"roots": []}})
    assert status in (202, 404)
    assert client.call("slow", {"text": "after"}).text == "after"


# -- how a stream ends ---------------------------------------------------


def test_fc_39_a_hundred_streams_end_with_an_error_when_their_backend_dies(field):
    def open_files():
        return len(list(Path("/proc", str(field.control_plane.pid), "fd").iterdir()))

    clients = [field_client(field) for _ in range(10)]
    before = open_files()
    answers = []
    threads = [
        threading.Thread(
            target=lambda n=n: answers.append(
                raw_call(field, clients[n % 10], n, "die", {"ms": 4000}, progress=True)
            )
        )
        for n in range(100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 100
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.count(b"HTTP/1.1") == 1
        assert answer.endswith(b"0\r\n\r\n"), answer[-200:]
        data = re.findall(rb"data: (\{.*\})\n", answer)
        messages = [json.loads(line) for line in data]
        assert [m["params"]["progress"] for m in messages[:-1]] == [1, 2]
        assert "exit status 3" in messages[-1]["error"]["message"]
    assert field.control_plane.running and field.agent.running

    def works():
        with contextlib.suppress(Exception):
            return field_client(field).call("slow", {"text": "again"}, timeout=5).text == "again"

    wait_until(works, 20, "the backend is back", step=0.2)
    wait_until(lambda: open_files() <= before + 5, 10, "the connections are closed", step=0.2)


# -- the text of events --------------------------------------------------


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_fc_20_odd_characters_arrive_as_they_were_sent(stage, transport):
    stage.start_control_plane()
    if transport == "stdio":
        stage.start_agent(sys.executable, FIELD_SERVER, name="field")
    else:
        server = stage.start([sys.executable, FIELD_SERVER, "--http", 0], "field")
        server.wait_for("/mcp")
        stage.start_agent(server.output().split()[0], name="field")
    client = field_client(stage)
    plain = raw_call(stage, client, 1, "odd", {})
    assert b"Content-Type: application/json" in plain
    assert json.loads(plain.partition(b"\r\n\r\n")[2])["result"]["content"][0]["text"] == ODD_TEXT

    streamed = raw_call(stage, client, 2, "odd", {}, progress=True)
    assert b"Content-Type: text/event-stream" in streamed
    body = streamed.partition(b"\r\n\r\n")[2]
    for forbidden in ("\u2028", "\u2029", "\u0085"):
        assert forbidden.encode() not in body
    lines = [line for line in body.split(b"\n") if line.startswith(b"data: {")]
    assert not any(b"\r" in line for line in lines)
    progress, answer = [json.loads(line.removeprefix(b"data: ")) for line in lines]
    assert progress["params"]["message"] == ODD_TEXT
    assert answer["result"]["content"][0]["text"] == ODD_TEXT


# -- listen streams ------------------------------------------------------


def test_fc_04_a_second_listen_stream_takes_over_and_gets_what_follows(field):
    client = field_client(field)
    first = Listener(field, client)
    assert first.status == 200
    running = client.start_call("slow", {"ms": 5000, "text": "kept"})
    client.call("job", {"id": "j", "count": 40, "ms": 100})
    wait_until(lambda: len(first.updates()) >= 5, 5, "the first stream has five updates")
    second = Listener(field, client)
    assert second.status == 200
    wait_until(lambda: first.ended, 2, "the gateway ends the first in order")
    wait_until(
        lambda: len(first.updates()) + len(second.updates()) >= 40, 10, "all updates have come"
    )
    both = first.updates() + second.updates()
    assert both == list(range(1, 41)), "every message went to one stream only"
    assert len(second.updates()) > 5
    assert running.result(15).text == "kept"
    assert field.agent.running and field.live_seats() == 1


def test_fc_41_a_listen_stream_goes_on_where_it_was_cut(field):
    """A job publishes updates 1 to 30; the connection is reset at 10 and taken up again later."""
    client = field_client(field)
    other = field_client(field)
    elsewhere = Listener(field, other)
    first = Listener(field, client)
    client.call("job", {"id": "j", "count": 30, "ms": 300})
    wait_until(lambda: len(first.updates()) >= 10, 10, "ten updates")
    first.reset()
    seen = first.updates()
    last = [event.id for event in first.events if event.id][-1]
    time.sleep(1.5)  # five more meanwhile
    second = Listener(field, client, last)
    assert second.status == 200
    wait_until(
        lambda: seen + second.updates() == list(range(1, 31)), 15, "the rest, in order, none twice"
    )
    assert second.updates()[0] == seen[-1] + 1

    ids = [event.id for event in first.events + second.events if event.data]
    assert len(ids) == len(set(ids)) and {name.split(".")[0] for name in ids} == {"0"}
    # 2025-11-25: the stream begins with an id, no data, and the time to wait.
    assert first.events[0].id and not first.events[0].data and first.events[0].retry > 0

    # Another stream of the session carries its own call only.
    streamed = client.call("odd", progress=True)
    assert {name.split(".")[0] for name in streamed.event_ids} != {"0"}
    assert len({name.split(".")[0] for name in streamed.event_ids}) == 1
    assert second.updates() == list(range(seen[-1] + 1, 31))
    assert elsewhere.updates() == list(range(1, 31)), "each session has events of its own"
    second.reset()

    garbage = Listener(field, client, "garbage")
    assert garbage.status == 400 and "garbage" in garbage.body


def test_fc_41_the_stream_of_a_call_begins_with_an_id_and_the_time_to_wait(field):
    """As the session's own does; 2025-11-25."""
    client = field_client(field)

    def first_of(method, body=None, after=None, events=1):
        headers = client._headers() | {"Content-Type": "application/json"}
        if after is not None:
            headers["Last-Event-ID"] = after
        connection, response = client._open(method, body, headers, 20)
        with connection_closed(connection):
            assert response.headers["Content-Type"] == "text/event-stream"
            return list(itertools.islice(read_events(response), events))

    def is_priming(event):
        return event.id and not event.data and event.retry > 0

    bodies = {
        progress: json.dumps(
            {
                "jsonrpc": "2.0",
                "id": f"p-{progress}",
                "method": "tools/call",
                "params": {"name": "slow", "arguments": {"ms": 1500}, "_meta": meta},
            }
        )
        for progress, meta in (("with a token", {"progressToken": "t"}), ("without", {}))
    }
    names = set()
    for progress, body in bodies.items():
        priming = first_of("POST", body)[0]
        assert is_priming(priming), f"{progress}: {priming}"
        names.add(priming.id.split(".")[0])
        *_, answer = first_of("GET", after=priming.id, events=9)
        assert json.loads(answer.data)["id"] == f"p-{progress}", "that id leads to the answer"
        assert answer.id.split(".")[0] == priming.id.split(".")[0]
    assert len(names) == 2 and "0" not in names
    own = first_of("GET")[0]
    assert is_priming(own) and own.id.split(".")[0] == "0"


def test_fc_41_what_is_no_longer_kept_is_told_first(stage):
    stage.start_control_plane(limits__replay_events_max="16", limits__replay_disk_bytes_max="4KiB")
    stage.start_agent(sys.executable, FIELD_SERVER, name="field")
    client = field_client(stage)
    first = Listener(stage, client)
    client.call("job", {"id": "j", "count": 1, "ms": 1})
    wait_until(lambda: first.updates() == [1], 5, "one update")
    first.reset()
    last = [event.id for event in first.events if event.id][-1]
    client.call("job", {"id": "j", "count": 100, "ms": 2})
    time.sleep(1.5)
    late = Listener(stage, client, last)
    assert late.status == 200
    wait_until(lambda: late.updates()[-1:] == [100], 5, "the newest update")
    lost = next(int(comment.split()[1]) for comment in late.comments if comment.startswith("gap"))
    assert lost + len(late.updates()) == 100
    assert late.updates() == list(range(lost + 1, 101)) and len(late.updates()) < 60


def test_fc_41_older_clients_never_get_empty_data(field):
    client = field_client(field)
    client.session = None
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "old", "version": "1"},
        },
    }
    _, headers, _ = client.post(body)
    client.session = headers["Mcp-Session-Id"]
    plain = client._headers
    client._headers = lambda: plain() | {"MCP-Protocol-Version": "2025-06-18"}
    listening = Listener(field, client)
    raw = raw_call(field, client, 2, "odd", {}, progress=True)
    wait_until(lambda: listening.comments, 5, "the stream's first bytes")
    assert b"data: \n" not in raw and b"data:\n" not in raw and b"\ndata: {" in raw
    assert [event for event in listening.events if not event.data and event.id] == []
