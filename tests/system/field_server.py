#!/usr/bin/env python3
"""An MCP server for field cases: odd texts, jobs, cancels obeyed and ignored, sudden death.

  field_server.py [--http PORT]

stdio, or HTTP where every answer is an event stream with lone CR line ends, "data:" without a blank
and a chunk border after each byte. Tools: odd {} answers ODD_TEXT, and tells it as progress first
if there is a token; job {id, count, ms} answers at once, then publishes count updates, one each ms;
obeys {} answers with an error when it is cancelled; ignores {ms} answers whatever is said; die {ms}
tells progress twice and ends the process, with all that runs in it, ms after the first such call;
slow {ms, text}; ask {method, ms} asks the client, takes that back after ms and answers with what
came; seen {} answers with the ids of all calls and of all cancels so far.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler

from counting_server import serve, serve_as_asked

ODD_TEXT = (
    "a\u2028b\u2029c\u0085d\re\nf\t\u0000\u007f\u200b\ufeff\u00a0\U0001f3ac"
    "\u201cquoted\u201d\\\"/"
)
TOOLS = ("odd", "job", "obeys", "ignores", "die", "slow", "ask", "seen")


class Server:
    def __init__(self, write):
        self.write = write  # one message to the client
        self.calls, self.cancels, self.answers = [], [], []
        self.cancelled = {}  # id -> Event
        self.doom = None
        self.lock = threading.Lock()

    def progress(self, message, step, text="", write=None):
        token = (message["params"].get("_meta") or {}).get("progressToken")
        if token is not None:
            (write or self.write)(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": step, "message": text},
                }
            )

    def publish(self, arguments):
        for n in range(1, arguments["count"] + 1):
            time.sleep(arguments["ms"] / 1000)
            self.write(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/$/dcc.jobUpdated",
                    "params": {"job_id": arguments["id"], "n": n},
                }
            )

    def die(self, seconds):
        with self.lock:
            if self.doom is None:
                self.doom = threading.Timer(seconds, os._exit, (3,))
                self.doom.start()

    def take(self, message, write=None):
        """The response to one message; None if it wants none."""
        write = write or self.write
        number, params = message.get("id"), message.get("params") or {}
        method = message.get("method")
        if method == "notifications/cancelled":
            self.cancels.append(params["requestId"])
            self.cancelled.setdefault(params["requestId"], threading.Event()).set()
        if method is None:
            self.answers.append(message)
        if method is None or number is None:
            return None
        reply = {"jsonrpc": "2.0", "id": number}
        if method == "initialize":
            reply["result"] = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "field", "version": "1"},
            }
        elif method == "ping":
            reply["result"] = {}
        elif method == "tools/list":
            reply["result"] = {
                "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            }
        elif method == "tools/call":
            self.calls.append(number)
            result = self.call(message, params["name"], params.get("arguments") or {}, write)
            if result is None:
                reply["error"] = {"code": -32800, "message": "cancelled by the client, as asked"}
            else:
                reply["result"] = {"content": [{"type": "text", "text": result}]}
        else:
            reply["error"] = {"code": -32601, "message": method}
        return reply

    def call(self, message, name, arguments, write):
        number = message["id"]
        if name == "odd":
            self.progress(message, 1, ODD_TEXT, write)
            return ODD_TEXT
        if name == "job":
            threading.Thread(target=self.publish, args=(arguments,), daemon=True).start()
            return json.dumps({"status": "pending", "job_id": arguments["id"]})
        if name == "obeys":
            self.cancelled.setdefault(number, threading.Event()).wait(30)
            return None
        if name == "ask":
            write(
                {
                    "jsonrpc": "2.0",
                    "id": f"ask-{number}",
                    "method": arguments["method"],
                    "params": {},
                }
            )
            time.sleep(arguments["ms"] / 1000)
            write(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": f"ask-{number}", "reason": "no longer needed"},
                }
            )
            time.sleep(arguments["ms"] / 1000)
            return json.dumps(self.answers)
        if name == "die":
            self.progress(message, 1)
            self.progress(message, 2)
            self.die(arguments["ms"] / 1000)
            time.sleep(60)
        if name == "seen":
            return json.dumps({"calls": self.calls[:-1], "cancels": self.cancels})
        time.sleep(arguments.get("ms", 0) / 1000)
        return arguments.get("text", name)


def serve_stdio():
    lock = threading.Lock()

    def write(message):
        if message is not None:
            with lock:
                sys.stdout.buffer.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
                sys.stdout.buffer.flush()

    server = Server(write)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=lambda m=message: write(server.take(m)), daemon=True).start()
        else:
            server.take(message)
    os._exit(0)


def serve_http(port):
    server = Server(lambda _message: None)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in message or "method" not in message:
                server.take(message)
                return self.plain(202)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.event(server.take(message, self.event))
            self.wfile.write(b"0\r\n\r\n")

        def event(self, message):
            for byte in b"data:" + json.dumps(message, ensure_ascii=False).encode() + b"\r\r":
                self.wfile.write(b"1\r\n" + bytes([byte]) + b"\r\n")
            self.wfile.flush()

        def plain(self, status):
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            self.plain(405)

        def log_message(self, *_arguments):
            pass

    serve(Handler, port)


if __name__ == "__main__":
    serve_as_asked(serve_stdio, serve_http)
