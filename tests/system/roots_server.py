#!/usr/bin/env python3
"""A server of the official Python SDK (Streamable HTTP, sessions) that asks for roots outside calls.

  roots_server.py --file FILE

Asks each client 0.3 s after its notifications/initialized, and again 1 s after each call of its tool
look {}. Appends what came: "initialized URI..." or "after URI...", with "error CODE" in place of the URIs.
"""

import argparse
import asyncio
import socket

import uvicorn
from mcp import McpError, types
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.session import ServerSession

tasks = set()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", required=True)
    options = parser.parse_args()

    async def ask(session, when, seconds):
        await asyncio.sleep(seconds)
        try:
            told = " ".join(str(root.uri) for root in (await session.list_roots()).roots)
        except McpError as error:
            told = f"error {error.error.code}"
        with open(options.file, "a", encoding="utf-8") as out:
            out.write(f"{when} {told}\n")

    def ask_later(session, when, seconds):
        task = asyncio.get_running_loop().create_task(ask(session, when, seconds))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    take_notification = ServerSession._received_notification

    async def take(session, notification):
        await take_notification(session, notification)
        if isinstance(notification.root, types.InitializedNotification):
            ask_later(session, "initialized", 0.3)

    ServerSession._received_notification = take
    server = FastMCP("roots")

    @server.tool()
    async def look(context: Context) -> str:
        ask_later(context.session, "after", 1)
        return "looked"

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
