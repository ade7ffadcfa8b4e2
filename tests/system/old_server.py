#!/usr/bin/env python3
"""The counting server over HTTP+SSE of 2024-11-05, or over plain HTTP on an address of choice.

  old_server.py --file FILE [--host 127.0.0.1] [--transport sse|http] [--cut SECONDS]

Prints its URL. sse: GET /sse opens the stream and names /messages?sessionId=...; answers and progress come
there; a POST to /sse is answered with 405. --cut ends each stream after so long.
"""

import argparse
import json
import queue
import socket
import threading
import time
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from counting_server import Server


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host, handler):
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), handler)


def make_handler(server, transport, cut):
    sessions = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def plain(self, status, body=b"", kind="text/plain"):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if transport != "sse" or self.path != "/sse":
                return self.plain(405)
            session, events = uuid.uuid4().hex, queue.Queue()
            sessions[session] = events
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.close_connection = True
            self.event("endpoint", f"/messages?sessionId={session}")
            end = time.monotonic() + cut
            while time.monotonic() < end:
                try:
                    self.event("message", json.dumps(events.get(timeout=min(0.1, cut))))
                except queue.Empty:
                    pass
            del sessions[session]

        def event(self, name, data):
            self.wfile.write(f"event: {name}\r\ndata: {data}\r\n\r\n".encode())
            self.wfile.flush()

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if transport == "http":
                if "id" not in message:
                    server.on_notification(message)
                    return self.plain(202)
                body = json.dumps(server.answer(message, lambda _note: None)).encode()
                return self.plain(200, body, "application/json")
            path, _, query = self.path.partition("?")
            if path != "/messages":
                return self.plain(405)
            events = sessions.get(urllib.parse.parse_qs(query).get("sessionId", [""])[0])
            if events is None:
                return self.plain(404, b"no such session")
            self.plain(202, b"Accepted")
            if "id" in message and "method" in message:
                threading.Thread(target=lambda: events.put(server.answer(message, events.put)),
                                 daemon=True).start()
            elif "method" in message:
                server.on_notification(message)

        def log_message(self, *_arguments):
            pass

    return Handler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--transport", choices=["sse", "http"], default="sse")
    parser.add_argument("--cut", type=float, default=3600)
    options = parser.parse_args()
    handler = make_handler(Server(options.file), options.transport, options.cut)
    listener = Listener(options.host, handler)
    path = "sse" if options.transport == "sse" else "mcp"
    print(f"port {listener.server_address[1]} path /{path}", flush=True)
    listener.serve_forever()


if __name__ == "__main__":
    main()
