"""Bad input from clients: each mistake has a clear answer, and nobody else notices."""

import contextlib
import json
import socket
import time

import pytest

from mcp_http import McpClient

HEADERS = ("Host: 127.0.0.1\r\nContent-Type: application/json\r\n"
           "Accept: application/json, text/event-stream\r\n")


def exchange(port, data, seconds=10.0):
    """All that comes back for these bytes until the server closes or the time is over."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        got, end = b"", time.monotonic() + seconds
        with contextlib.suppress(TimeoutError, ConnectionError):
            while time.monotonic() < end:
                connection.settimeout(max(0.01, end - time.monotonic()))
                piece = connection.recv(65536)
                if not piece:
                    break
                got += piece
        return got


def post(port, body, session=None):
    """(status, body) of a POST of these very bytes."""
    body = body if isinstance(body, bytes) else body.encode()
    head = f"POST /mcp/counting HTTP/1.1\r\n{HEADERS}Connection: close\r\nContent-Length: {len(body)}\r\n"
    if session:
        head += f"Mcp-Session-Id: {session}\r\n"
    answer = exchange(port, head.encode() + b"\r\n" + body)
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest.decode()


def assert_well(client):
    """Another client's call, at once."""
    started = time.monotonic()
    assert client.call("echo", {"text": "well"}).text == "well"
    assert time.monotonic() - started < 1


@pytest.fixture
def served(stage):
    stage.start_control_plane()
    stage.start_agent()
    return stage


MALFORMED = [
    ("", -32700), ("{", -32700), ("nonsense", -32700), ('{"jsonrpc":"2.0","id":1,"method":"ping"} x', -32700),
    ('{"jsonrpc":"2.0","id":01,"method":"ping"}', -32700),
    (b'{"jsonrpc":"2.0","id":"\xff\xfe","method":"ping"}', -32700),
    (b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"ping"}', -32700),
    ('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + "[" * 200 + "]" * 200 + "}}", -32700),
    ("[" * 100000, -32700),
    ('{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}', -32600),
    ('{"jsonrpc":"2.0","id":1,"\\u0069d":2,"method":"ping"}', -32600),
    ('{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600), ('{"id":1,"method":"ping"}', -32600),
    ('{"jsonrpc":"2.0","id":1,"method":7}', -32600), ('{"jsonrpc":"2.0","id":1}', -32600),
    ('{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}', -32600),
    ("[]", -32600), ('"text"', -32600), ("17", -32600),
] + [('{"jsonrpc":"2.0","id":%s,"method":"ping"}' % value, -32600)
     for value in ("null", "true", "1.5", "1e3", "{}", "[1]")]


def test_malformed_messages_are_told_apart_and_touch_nobody(served):
    other = served.client()
    session = served.client().session
    for body, code in MALFORMED:
        status, text = post(served.port, body, session)
        assert (status, json.loads(text)["error"]["code"]) == (400, code), body[:80]
        assert json.loads(text)["id"] is None
        assert json.loads(text)["error"]["message"]
    assert_well(other)
    assert post(served.port, '{"jsonrpc":"2.0","id":1,"method":"ping"}', session)[0] == 200


IDS = ['"1"', "1", "0", "-1", '""', '"\u00fc\\u2028"', "9007199254740993", "18446744073709551616",
       '"' + "x" * 4000 + '"']


@pytest.mark.parametrize("method", ["ping", "tools/list", "tools/call"])
def test_fc_01_ids_of_every_type_come_back_as_they_were(served, method):
    session = served.client().session
    params = ',"params":{"name":"echo","arguments":{"text":"t"}}' if method == "tools/call" else ""
    for raw in IDS:
        status, text = post(served.port, '{"jsonrpc":"2.0","id":%s,"method":"%s"%s}'
                            % (raw, method, params), session)
        assert status == 200
        assert f'"id":{raw},' in text


def test_wrong_arguments_are_the_callers_error_and_never_reach_the_backend(served):
    session = served.client().session
    for arguments in ('{"id":7}', '{"ms":"x"}', "[]", "7", "null"):
        status, text = post(served.port, '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
                            '{"name":"count","arguments":%s}}' % arguments, session)
        message = json.loads(text)
        assert status == 200
        assert "error" in message or message["result"]["isError"], arguments
    assert served.events() == []


def test_unknown_ids_are_accepted_or_named(served):
    client = served.client()
    for message in ({"method": "notifications/cancelled", "params": {"requestId": 999}},
                    {"method": "notifications/cancelled", "params": {"requestId": "nobody"}},
                    {"method": "notifications/cancelled"},
                    {"method": "notifications/roots/list_changed"},
                    {"id": "cb-nobody", "result": {}}, {"id": 5, "error": {"code": 1, "message": "x"}}):
        status, _, body = client.post({"jsonrpc": "2.0", **message})
        assert status in (202, 404), (message, body)
    assert_well(client)
    with contextlib.closing(socket.create_connection(("127.0.0.1", served.port), 5)):
        status, text = post(served.port, '{"jsonrpc":"2.0","id":1,"method":"ping"}', "nobody")
    assert (status, json.loads(text)["error"]["code"]) == (404, -32001)
    answer = exchange(served.port, (
        f"GET /mcp/counting HTTP/1.1\r\n{HEADERS}Connection: close\r\nMcp-Session-Id: {client.session}\r\n"
        "Last-Event-ID: nonsense\r\n\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 400 ") and b"Last-Event-ID 'nonsense'" in answer


def test_oversize_bodies_and_heads_are_refused_before_they_are_read(served):
    other = served.client()
    started = time.monotonic()
    answer = exchange(served.port, f"POST /mcp HTTP/1.1\r\n{HEADERS}Content-Length: 17000000\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 413 ")
    answer = exchange(served.port, (f"POST /mcp HTTP/1.1\r\n{HEADERS}Transfer-Encoding: chunked\r\n\r\n"
                                    "1100000\r\n").encode() + b" " * 0x1100000)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")
    for head in ("X: " + "x" * 40000, "\r\n".join(f"X-{n}: {n}" for n in range(4000))):
        answer = exchange(served.port, f"GET /mcp HTTP/1.1\r\n{head}\r\n\r\n".encode())
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert exchange(served.port, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert time.monotonic() - started < 30
    assert_well(other)


def test_senders_of_a_byte_a_second_are_ended_and_cost_nobody_anything(served):
    other = served.client()
    head = f"POST /mcp HTTP/1.1\r\n{HEADERS}Content-Length: 100\r\n\r\n".encode()
    slow = [socket.create_connection(("127.0.0.1", served.port), 5) for _ in range(100)]
    started = time.monotonic()
    answers = {}
    sent = 0
    while len(answers) < len(slow) and time.monotonic() - started < 25:
        for number, connection in enumerate(slow):
            if number in answers:
                continue
            with contextlib.suppress(ConnectionError):
                connection.send(head[sent % len(head):][:1])
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                try:
                    answers[number] = connection.recv(4096)
                except ConnectionError:
                    answers[number] = b""
        sent += 1
        assert_well(other)
        time.sleep(1)
    for connection in slow:
        connection.close()
    assert len(answers) == len(slow), "each was ended within the header's time"
    assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in answers.values())
    assert 14 < time.monotonic() - started < 25


def test_closing_in_mid_body_leaves_nothing(served):
    other = served.client()
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", served.port), 5) as connection:
            connection.sendall(f"POST /mcp HTTP/1.1\r\n{HEADERS}Content-Length: 5000\r\n\r\n{{".encode())
    assert_well(other)


def test_cancelling_the_ids_of_another_session_does_nothing(served):
    """Ids and tokens that look like ours belong to their session all the same."""
    first, second = McpClient(served.port, "/mcp/counting"), McpClient(served.port, "/mcp/counting")
    first.initialize()
    second.initialize()
    running = first.start_call("count", {"id": "mine", "ms": 600})
    served.wait_begun("mine")
    for number in range(1, 5):
        assert second.notify("notifications/cancelled", {"requestId": number})[0] == 202
    assert running.result(10).text == "counted mine"
