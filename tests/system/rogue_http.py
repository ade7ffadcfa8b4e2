#!/usr/bin/env python3
"""An MCP server on HTTP that breaks the rules on demand.

Streamable HTTP with sessions at /mcp, and HTTP+SSE at /sse; prints both URLs. Tools: fine {text};
twice (answers two times); wrong_id (answers ids nobody asked for, then the right one); silent
(never answers, and its stream stays open); mute (not one byte); cut (the connection ends in
mid-body); cut_stream (the event stream ends in mid-event); no_answer (it ends in order, with
nothing in it); aborts (HTTP 400 with an error that names a session). What is asked at /mcp is printed: "GET", "call TOOL".
"""

import json
import queue
import threading
import time
import uuid
from http.server import ThreadingHTTPServer

from plain_http import PlainHandler

TOOLS = ("fine", "twice", "wrong_id", "silent", "mute", "cut", "cut_stream", "no_answer",
         "aborts")


def result(number, text):
    return {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": text}]}}


def plain_answer(message):
    """The response to what is no tools/call."""
    params = message.get("params") or {}
    results = {
        "initialize": {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "rogue", "version": "1"},
        },
        "tools/list": {
            "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        },
        "ping": {},
    }
    return {"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}


def answers(message):
    """What is answered to a call, one after the other."""
    name, number = message["params"]["name"], message["id"]
    if name == "fine":
        return [result(number, (message["params"].get("arguments") or {}).get("text", "fine"))]
    if name == "twice":
        return [result(number, "first"), result(number, "second")]
    if name == "wrong_id":
        return [
            result("nobody asked", "wrong"),
            result(987654321, "wrong"),
            result(number, "right"),
        ]
    return []


class Handler(PlainHandler):
    streams = {}  # HTTP+SSE: session -> queue of bytes to write, None to end

    def open_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    @staticmethod
    def event(message, kind="message"):
        data = message if isinstance(message, str) else json.dumps(message)
        return f"event: {kind}\ndata: {data}\n\n".encode()

    def do_GET(self):
        if self.path == "/mcp":
            print("GET", flush=True)
        if self.path != "/sse":
            return self.plain(405 if self.path == "/mcp" else 404)
        session = uuid.uuid4().hex
        waiting = self.streams[session] = queue.Queue()
        self.open_stream()
        self.wfile.write(self.event(f"/messages?{session}", "endpoint"))
        while (piece := waiting.get()) is not None:
            self.wfile.write(piece)
            self.wfile.flush()
        del self.streams[session]

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/mcp":
            return self.streamable(message)
        if not self.path.startswith("/messages?"):
            return self.plain(405)
        self.old(message, self.streams.get(self.path.partition("?")[2]))

    def old(self, message, stream):
        if stream is None:
            return self.plain(404)
        self.plain(202)
        if "id" not in message or "method" not in message:
            return
        if message["method"] != "tools/call":
            return stream.put(self.event(plain_answer(message)))
        for answer in answers(message):
            stream.put(self.event(answer))
        if message["params"]["name"].startswith("cut"):
            stream.put(self.event(result(message["id"], "x" * 1000))[:300])
            stream.put(None)

    def streamable(self, message):
        if "id" not in message or "method" not in message:
            return self.plain(202)
        if message["method"] != "tools/call":
            body = json.dumps(plain_answer(message)).encode()
            return self.plain(200, body, Content_Type="application/json", Mcp_Session_Id="rogue-1")
        name = message["params"]["name"]
        print(f"call {name}", flush=True)
        if name == "mute":
            time.sleep(3600)
        if name == "aborts":
            error = {"code": -32000, "message": "render session aborted"}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
            return self.plain(400, body, Content_Type="application/json")
        if name == "cut":
            body = json.dumps(result(message["id"], "x" * 1000)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:300])
            self.close_connection = True
            return
        self.open_stream()
        for answer in answers(message):
            self.wfile.write(self.event(answer))
        if name == "cut_stream":
            self.wfile.write(self.event(result(message["id"], "x" * 1000))[:300])
        while name == "silent":
            self.wfile.write(b": still here\n\n")
            self.wfile.flush()
            time.sleep(1)

    do_DELETE = lambda self: self.plain(200)  # noqa: E731


def main():
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    base = f"http://127.0.0.1:{listener.server_address[1]}"
    print(f"{base}/mcp {base}/sse", flush=True)
    threading.Thread(target=listener.serve_forever).start()


if __name__ == "__main__":
    main()
