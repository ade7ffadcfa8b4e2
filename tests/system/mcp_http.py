"""An MCP client on bare HTTP, for tests that must see and control every request, event and time."""

import http.client
import json
import socket
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

REVISION = "2025-11-25"


class Refused(Exception):
    """An HTTP answer that is no success."""

    def __init__(self, status, body):
        super().__init__(f"HTTP {status}: {body[:400]}")
        self.status = status
        self.body = body


@dataclass
class Answer:
    """How one request ended: the response, what came before it, and how long that took."""

    message: dict
    notifications: list = field(default_factory=list)
    arrivals: list = field(default_factory=list)  # wall-clock times of the notifications
    event_ids: list = field(default_factory=list)
    seconds: float = 0.0
    resumes: int = 0

    @property
    def error(self):
        return self.message.get("error")

    @property
    def result(self):
        return self.message.get("result")

    @property
    def failed(self):
        """An error of either kind: of JSON-RPC, or isError."""
        return self.error is not None or bool(self.result.get("isError"))

    @property
    def text(self):
        """All that a person would read of it, structured parts included."""
        if self.error is not None:
            return json.dumps(self.error)
        parts = [block.get("text", "") for block in self.result.get("content", [])]
        if "structuredContent" in self.result:
            parts.append(json.dumps(self.result["structuredContent"]))
        return "\n".join(parts)

    @property
    def progress(self):
        return [note["params"]["progress"] for note in self.notifications
                if note["method"] == "notifications/progress"]


@dataclass
class Event:
    type: str = ""
    id: str = ""
    retry: int = 0
    data: str = ""


def read_events(response):
    """The events of an SSE body, until it ends; raises OSError or HTTPException if it is cut."""
    event = Event()
    while True:
        line = response.readline()
        if not line:
            return
        line = line.decode().rstrip("\r\n")
        if not line:
            if event != Event():
                yield event
            event = Event()
        elif line.startswith("data:"):
            event.data += line[5:].removeprefix(" ")
        elif line.startswith("event:"):
            event.type = line[6:].strip()
        elif line.startswith("id:"):
            event.id = line[3:].strip()
        elif line.startswith("retry:"):
            event.retry = int(line[6:])


class McpClient:
    """One session. Each request has a connection of its own; a cut stream is resumed by Last-Event-ID."""

    def __init__(self, port, path="/mcp", host="127.0.0.1"):
        self.host, self.port, self.path = host, port, path
        self.session = None
        self._next_id = 0
        self._lock = threading.Lock()

    # -- one HTTP exchange -------------------------------------------------------------------------

    def _headers(self):
        headers = {"Accept": "application/json, text/event-stream"}
        if self.session is not None:
            headers["Mcp-Session-Id"] = self.session
            headers["MCP-Protocol-Version"] = REVISION
        return headers

    def _open(self, method, body, headers, timeout):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.request(method, self.path, body, headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def post(self, message, timeout=10.0):
        """Sends one message; (status, headers, body) of a plain answer."""
        headers = self._headers() | {"Content-Type": "application/json"}
        connection, response = self._open("POST", json.dumps(message), headers, timeout)
        with connection_closed(connection):
            return response.status, response.headers, response.read().decode()

    # -- MCP ---------------------------------------------------------------------------------------

    def initialize(self, timeout=10.0, capabilities=None):
        answer = self.request("initialize", {
            "protocolVersion": REVISION, "capabilities": capabilities or {},
            "clientInfo": {"name": "system-test", "version": "1"}}, timeout)
        status, _, body = self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, timeout)
        if status != 202:
            raise Refused(status, body)
        return answer.result

    def tools(self):
        """All tools, page by page."""
        found, cursor = [], None
        while True:
            answer = self.request("tools/list", {"cursor": cursor} if cursor else {})
            found += answer.result["tools"]
            cursor = answer.result.get("nextCursor")
            if not cursor:
                return found

    def call(self, tool, arguments=None, timeout=30.0, progress=False, meta=None, answer=None):
        """tools/call, to its end; raises TimeoutError when there is none in time."""
        params = {"name": tool, "arguments": arguments or {}}
        if meta or progress:
            params["_meta"] = dict(meta or {})
        return self.request("tools/call", params, timeout, progress, answer)

    def start_call(self, *arguments, **keywords):
        """call() in a thread of its own; a Future, whose .answer has what has come so far."""
        future = Future()
        future.answer = Answer({})

        def run():
            try:
                future.set_result(self.call(*arguments, answer=future.answer, **keywords))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def notify(self, method, params):
        return self.post({"jsonrpc": "2.0", "method": method, "params": params})

    def delete(self):
        connection, response = self._open("DELETE", None, self._headers(), 10)
        with connection_closed(connection):
            response.read()
            return response.status

    def listen(self, on_event, timeout=60):
        """The session's own stream: a thread hands on its events until it ends, or the connection is closed."""
        connection, response = self._open("GET", None, self._headers(), timeout)
        assert response.status == 200, response.read()

        def read():
            try:
                for event in read_events(response):
                    on_event(event)
            except (OSError, http.client.HTTPException, ValueError, AttributeError):
                pass  # cut or closed

        threading.Thread(target=read, daemon=True).start()
        return connection

    def next_id(self):
        with self._lock:
            self._next_id += 1
            return self._next_id

    def request(self, method, params, timeout=10.0, progress=False, answer=None):
        number = self.next_id()
        if progress:
            params["_meta"]["progressToken"] = f"token-{number}"
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        started = time.monotonic()
        answer = answer or Answer({})
        headers = self._headers() | {"Content-Type": "application/json"}
        if not self._exchange("POST", body, headers, number, answer, started + timeout):
            self._resume(number, answer, started + timeout)
        answer.seconds = time.monotonic() - started
        return answer

    def _exchange(self, method, body, headers, number, answer, deadline):
        """True when the response has come; False when a stream that can be resumed was cut."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer to request {number}; notifications: {answer.notifications}")
        connection, response = self._open(method, body, headers, left)
        with connection_closed(connection):
            if response.status != 200:
                raise Refused(response.status, response.read().decode())
            if method == "POST" and response.headers.get("Mcp-Session-Id"):
                self.session = response.headers["Mcp-Session-Id"]
            if not response.headers["Content-Type"].startswith("text/event-stream"):
                answer.message = json.loads(response.read())
                return True
            try:
                for event in read_events(response):
                    if event.id:
                        answer.event_ids.append(event.id)
                    if not event.data or event.type not in ("", "message"):
                        continue
                    message = json.loads(event.data)
                    if message.get("id") == number and "method" not in message:
                        answer.message = message
                        return True
                    answer.notifications.append(message)
                    answer.arrivals.append(time.time())
                    # A stream that talks may still be one that never ends.
                    connection.sock.settimeout(max(0.01, deadline - time.monotonic()))
            except TimeoutError:
                raise TimeoutError(f"no answer to request {number} in time; "
                                   f"notifications: {answer.notifications}") from None
            except (OSError, http.client.HTTPException):
                if not answer.event_ids:
                    raise
            return False

    def _resume(self, number, answer, deadline):
        while True:
            if not answer.event_ids:
                raise ConnectionError(f"the stream of request {number} ended without answer or event id")
            headers = self._headers() | {"Last-Event-ID": answer.event_ids[-1]}
            answer.resumes += 1
            try:
                if self._exchange("GET", None, headers, number, answer, deadline):
                    return
            except (ConnectionError, http.client.HTTPException):
                pass  # the bridge is away for a moment
            time.sleep(0.1)


class connection_closed:
    """Closes an HTTPConnection at the end of a with block, whatever it still holds."""

    def __init__(self, connection):
        self._connection = connection

    def __enter__(self):
        return self._connection

    def __exit__(self, *_error):
        self._connection.close()
