#!/usr/bin/env python3
"""An HTTP server that answers as a file says: whoever asks it for MCP must cope.

  refusing_server.py FILE

FILE has a status: with 401 or 403 every request is refused; 200: an MCP server with one session and the tool `echo`; 404: one
that has forgotten its session, and opens others; "stream": as 404, but a GET is answered with 200 and an empty event stream. It
prints its URL, then "METHOD STATUS MESSAGE-METHOD" of each request.
"""

import json
import sys
import uuid
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from counting_server import serve

SESSIONS = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, status, message=None, told="", **headers):
        body = b"" if message is None else json.dumps(message).encode()
        print(self.command, status, told, flush=True)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if message is not None:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refused(self, told):
        mode = Path(sys.argv[1]).read_text().strip()
        if mode in ("401", "403"):
            self.answer(int(mode), {"error": {"message": f"refused with {mode}"}}, told)
            return True
        if mode in ("404", "stream") and told != "initialize":
            if self.headers.get("Mcp-Session-Id") not in SESSIONS:
                self.answer(404, None, told)
                return True
        return False

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message.get("method", "")
        if self.refused(method):
            return
        if "id" not in message:
            return self.answer(202, None, method)
        results = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "refusing", "version": "1"}},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": self.headers.get("Mcp-Session-Id")}]},
        }
        headers = {}
        if method == "initialize":
            SESSIONS.add(session := uuid.uuid4().hex)
            headers["Mcp_Session_Id"] = session
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": results.get(method, {})},
                    method, **headers)

    def do_GET(self):
        if Path(sys.argv[1]).read_text().strip() == "stream":
            print("GET 200", flush=True)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            return
        if not self.refused(""):
            self.answer(405)

    def do_DELETE(self):
        SESSIONS.discard(self.headers.get("Mcp-Session-Id"))
        self.answer(200)

    def forget(self):
        SESSIONS.clear()

    def log_message(self, *_arguments):
        pass


if __name__ == "__main__":
    serve(Handler, 0)
