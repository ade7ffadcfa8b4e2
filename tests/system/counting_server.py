#!/usr/bin/env python3
"""An MCP server whose tools leave proof of every run; stdio, or stateless JSON over HTTP with --http PORT (0 picks a free one).

  counting_server.py --file FILE [--http PORT]

Tools: count {id, ms, bytes, gate} appends "begin ID TIME" to FILE, waits until there is a file `gate` (if
named, for 60 s at most), sleeps, appends "end ID TIME" and answers with `bytes` characters; big {bytes}; progress {steps, ms}, each step with its time as the message;
echo {text}; with fail: true the result says isError. It runs calls side by side, so that only its client's queue can keep them apart. Nothing is
cancelled, as in real DCCs; that a cancel has come is appended too ("cancelled ID TIME").
"""

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


def _schema(**properties):
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}


TOOLS = [
    {"name": "count", "description": "Counts its own runs in a file",
     "inputSchema": _schema(id="string", ms="integer", bytes="integer", gate="string")},
    {"name": "big", "description": "Answers with a text of so many bytes",
     "inputSchema": _schema(bytes="integer"), "annotations": {"readOnlyHint": True}},
    {"name": "progress", "description": "Reports progress step by step",
     "inputSchema": _schema(steps="integer", ms="integer")},
    {"name": "echo", "description": "Answers with its argument",
     "inputSchema": _schema(text="string"), "annotations": {"readOnlyHint": True}},
]


def pattern(size):
    """A text in which a lost, doubled or moved piece shows: numbered blocks of 16 characters."""
    blocks = "".join(f"{number:015d}|" for number in range(min(size // 16 + 1, 65536)))
    return (blocks * (size // len(blocks) + 1))[:size]


class Server:
    """The tools; `notify` sends a notification to the client, or is None where that is impossible."""

    def __init__(self, file):
        self._file = file
        self._calls = {}  # request id -> id of the count that runs

    def _note(self, event, call):
        # One write to a file opened for appending is atomic against other processes.
        with open(self._file, "a", encoding="utf-8") as out:
            out.write(f"{event} {call} {time.time():.6f}\n")

    def on_notification(self, message):
        if message["method"] == "notifications/cancelled":
            call = self._calls.get(message["params"]["requestId"])
            if call is not None:
                self._note("cancelled", call)

    def count(self, arguments, _notify):
        call = str(arguments.get("id", ""))
        self._note("begin", call)
        if "gate" in arguments:
            deadline = time.monotonic() + 60
            while not os.path.exists(arguments["gate"]) and time.monotonic() < deadline:
                time.sleep(0.01)
        time.sleep(arguments.get("ms", 0) / 1000)
        self._note("end", call)
        return pattern(arguments["bytes"]) if "bytes" in arguments else f"counted {call}"

    def big(self, arguments, _notify):
        return pattern(arguments["bytes"])

    def progress(self, arguments, notify):
        steps = arguments.get("steps", 1)
        for step in range(1, steps + 1):
            time.sleep(arguments.get("ms", 0) / 1000)
            notify(step, steps)
        return f"{steps} steps"

    def echo(self, arguments, _notify):
        return arguments.get("text", "")

    def answer(self, message, notify):
        """The response to one request."""
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        params = message.get("params") or {}
        method = message["method"]
        if method == "initialize":
            wanted = params.get("protocolVersion")
            reply["result"] = {
                "protocolVersion": wanted if wanted in REVISIONS else REVISIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "counting", "version": "1"},
            }
        elif method == "ping":
            reply["result"] = {}
        elif method == "tools/list":
            reply["result"] = {"tools": TOOLS}
        elif method == "tools/call" and any(t["name"] == params.get("name") for t in TOOLS):
            token = (params.get("_meta") or {}).get("progressToken")

            def report(step, total):
                if token is not None:
                    notify({"jsonrpc": "2.0", "method": "notifications/progress",
                            "params": {"progressToken": token, "progress": step, "total": total,
                                       "message": f"{time.time():.6f}"}})

            arguments = params.get("arguments") or {}
            if "id" in arguments:
                self._calls[message["id"]] = str(arguments["id"])
            text = getattr(self, params["name"])(arguments, report)
            self._calls.pop(message["id"], None)
            reply["result"] = {"content": [{"type": "text", "text": text}]}
            if arguments.get("fail"):
                reply["result"]["isError"] = True
        else:
            reply["error"] = {"code": -32601, "message": f"unknown: {method}"}
        return reply


def serve_stdio(server):
    lock = threading.Lock()

    def write(message):
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=lambda m=message: write(server.answer(m, write)),
                             daemon=True).start()
        elif "method" in message:
            server.on_notification(message)
    os._exit(0)  # the client is gone: no tool outlives it


def serve_http(server, port):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in message:
                server.on_notification(message)
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if (message.get("params") or {}).get("name") == "progress":
                self.stream(message)
                return
            body = json.dumps(server.answer(message, lambda _note: None)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def stream(self, message):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True

            def write(event):
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                self.wfile.flush()

            write(server.answer(message, write))

        def do_GET(self):
            self.send_response(405)
            self.send_header("Allow", "POST")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_DELETE = do_GET

        def log_message(self, *_arguments):
            pass

    serve(Handler, port)


def serve(handler, port):
    """Serves HTTP for ever, and prints where."""
    ThreadingHTTPServer.request_queue_size = 64
    listener = ThreadingHTTPServer(("127.0.0.1", port), handler)
    listener.daemon_threads = True
    print(f"http://127.0.0.1:{listener.server_address[1]}/mcp", flush=True)
    listener.serve_forever()


def serve_as_asked(on_stdio, on_http):
    """Over stdio, or with --http PORT over HTTP."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int)
    options = parser.parse_args()
    if options.http is None:
        on_stdio()
    else:
        on_http(options.http)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", required=True)
    parser.add_argument("--http", type=int)
    options = parser.parse_args()
    if options.http is None:
        serve_stdio(Server(options.file))
    else:
        serve_http(Server(options.file), options.http)


if __name__ == "__main__":
    main()
