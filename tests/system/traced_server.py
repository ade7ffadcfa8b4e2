#!/usr/bin/env python3
"""An MCP server whose one tool, trace, answers with the trace context it was called with; stdio, or HTTP with --http PORT."""

import json
from http.server import BaseHTTPRequestHandler

from counting_server import serve, serve_as_asked, serve_stdio

TOOLS = [{"name": "trace", "description": "Tells its trace context", "inputSchema": {"type": "object"}}]
NAMES = ("traceparent", "tracestate", "baggage")


class Server:
    def on_notification(self, _message):
        pass

    def answer(self, message, _notify, headers=None):
        """The response to one request; `headers` are those of HTTP."""
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": {}}
        params = message.get("params") or {}
        if message["method"] == "initialize":
            reply["result"] = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                               "serverInfo": {"name": "traced", "version": "1"}}
        elif message["method"] == "tools/list":
            reply["result"] = {"tools": TOOLS}
        elif message["method"] == "tools/call":
            meta = params.get("_meta") or {}
            seen = {"meta": {name: meta[name] for name in NAMES if name in meta},
                    "http": {name: headers[name] for name in NAMES if headers and name in headers}}
            reply["result"] = {"content": [{"type": "text", "text": json.dumps(seen)}]}
        return reply


def serve_http(server, port):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in message:
                self.reply(202, b"")
                return
            self.reply(200, json.dumps(server.answer(message, None, self.headers)).encode())

        def do_GET(self):
            self.reply(405, b"")

        do_DELETE = do_GET

        def reply(self, status, body):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    serve(Handler, port)


if __name__ == "__main__":
    serve_as_asked(lambda: serve_stdio(Server()), lambda port: serve_http(Server(), port))
