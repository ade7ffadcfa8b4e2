"""Calls all tools of a list with the official Python client, and again when the list has changed; one JSON line a fact.

  selected.py URL

Ends when it has called two tools at once.
"""

import json
import sys

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


async def main(url):
    changed = anyio.Event()

    async def on_message(message):
        nonlocal changed
        root = getattr(message, "root", None)
        if isinstance(root, types.ToolListChangedNotification):
            changed.set()

    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write, message_handler=on_message) as session:
            hello = await session.initialize()
            tell("list_changed", hello.capabilities.tools.listChanged)
            while True:
                tools = (await session.list_tools()).tools
                results = [await session.call_tool(tool.name, {}) for tool in tools]
                ran = [result.content[0].text for result in results]
                tell("ran", ran)
                if len(ran) == 2:
                    break
                with anyio.fail_after(40):
                    await changed.wait()
                changed = anyio.Event()


anyio.run(main, *sys.argv[1:])
