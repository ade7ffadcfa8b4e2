#!/usr/bin/env python3
"""Many event streams at once from one process; prints what they saw as JSON at the end of their time.

  sse_crowd.py --host H --port P --streams N --seconds S [--sessions FILE] listen
  sse_crowd.py --host H --port P --streams N --seconds S [--every-ms 100] progress

listen: N sessions on /mcp with one GET stream each, all silent but for heartbeats. FILE keeps the
sessions for another run. Prints opened, dropped, how many heartbeats each stream has had, and in seconds
the silences before them, and those that last at the end.
progress: N calls of the counting server's tool `progress`, each on a session of its own. Prints the
latencies of the events, and by how much a timer of this process was late meanwhile, in seconds.
"""

import argparse
import asyncio
import http.client
import json
import re
import sys
import time
from pathlib import Path

REVISION = "2025-11-25"
HEARTBEAT = b": ping"
TICK = 0.01
MESSAGE = re.compile(rb'"message":"([0-9.]+)"')


def open_sessions(options, path):
    """Session ids, from the file if it has enough."""
    if options.sessions and Path(options.sessions).exists():
        return json.loads(Path(options.sessions).read_text())
    connection = http.client.HTTPConnection(options.host, options.port, timeout=30)
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "crowd", "version": "1"}}})
    ids = []
    for _ in range(options.streams):
        connection.request("POST", path, body, {"Content-Type": "application/json",
                                                "Accept": "application/json, text/event-stream"})
        response = connection.getresponse()
        response.read()
        ids.append(response.headers["Mcp-Session-Id"])
    connection.close()
    if options.sessions:
        Path(options.sessions).write_text(json.dumps(ids))
    return ids


async def send(options, method, path, session, body=b""):
    reader, writer = await asyncio.open_connection(options.host, options.port)
    head = (f"{method} {path} HTTP/1.1\r\nHost: {options.host}:{options.port}\r\n"
            f"Accept: application/json, text/event-stream\r\nMcp-Session-Id: {session}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")
    writer.write(head.encode() + body)
    status = await reader.readline()
    assert b" 200 " in status, status
    return reader, writer


async def listen(options, session, seen, opened):
    reader, _writer = await send(options, "GET", "/mcp", session)
    await reader.readuntil(b": listening\n\n")
    seen["opened"] += 1
    if seen["opened"] == options.streams:
        opened.set()
        print("open", flush=True)
    mine = {"beats": 0, "last": time.monotonic()}
    seen["streams"].append(mine)
    while True:
        piece = await reader.read(4096)
        now = time.monotonic()
        if not piece:
            seen["dropped"] += 1
            return
        # A priming event, which comes once at the beginning, is no heartbeat.
        if HEARTBEAT in piece:
            mine["beats"] += 1
            seen["gaps"].append(now - mine["last"])
        mine["last"] = now


async def progress(options, session, seen, _opened):
    steps = int(options.seconds * 1000 / options.every_ms)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "progress", "arguments": {"steps": steps, "ms": options.every_ms},
        "_meta": {"progressToken": "t"}}}).encode()
    reader, writer = await send(options, "POST", "/mcp/counting", session, body)
    events = 0
    while True:
        line = await reader.readline()
        if not line:
            seen["dropped"] += 1
            return
        sent = MESSAGE.search(line)
        if sent:
            events += 1
            seen["latencies"].append(time.time() - float(sent[1]))
        elif b'"result"' in line:
            break
    seen["finished"] += events == steps
    writer.close()


async def watch_itself(seen):
    """What no server can be blamed for."""
    while True:
        due = time.monotonic() + TICK
        await asyncio.sleep(TICK)
        seen["late"].append(max(0.0, time.monotonic() - due))


async def run(options):
    path = "/mcp" if options.mode == "listen" else "/mcp/counting"
    sessions = open_sessions(options, path)
    seen = {"opened": 0, "dropped": 0, "finished": 0, "gaps": [], "latencies": [], "late": [], "streams": []}
    opened = asyncio.Event()
    one = listen if options.mode == "listen" else progress
    tasks = [asyncio.create_task(one(options, session, seen, opened)) for session in sessions]
    if options.mode == "listen":
        await asyncio.wait_for(opened.wait(), 60)
        await asyncio.sleep(options.seconds)
        now = time.monotonic()
        seen["tails"] = [now - stream["last"] for stream in seen["streams"]]
        seen["beats"] = [stream["beats"] for stream in seen["streams"]]
    else:
        watching = asyncio.create_task(watch_itself(seen))
        await asyncio.wait_for(asyncio.gather(*tasks), options.seconds * 3 + 30)
        watching.cancel()
    del seen["streams"]
    print(json.dumps(seen), flush=True)
    # Until it is killed: streams that nobody closes.
    if options.mode == "listen":
        await asyncio.sleep(3600)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--sessions")
    parser.add_argument("--every-ms", type=int, default=100)
    parser.add_argument("mode", choices=["listen", "progress"])
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
