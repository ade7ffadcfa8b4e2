"""One call of the tool `look` with the official Python client, which then waits until it is told to end; one JSON line a fact.

  roots_session.py URL roots|sampling FILE

Declares that capability alone. Tells each time that it is asked for roots, and ends when there is FILE.
"""

import json
import sys
from pathlib import Path

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


async def sample(_context, _params):
    return types.CreateMessageResult(role="assistant", model="none",
                                     content=types.TextContent(type="text", text="Paris"))


async def roots(_context):
    tell("asked", "roots")
    return types.ListRootsResult(roots=[types.Root(uri="file:///scenes")])


async def main(url, capability, file):
    able = {"list_roots_callback": roots} if capability == "roots" else {"sampling_callback": sample}
    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write, **able) as session:
            tell("connected", (await session.initialize()).protocolVersion)
            tell("result", (await session.call_tool("look", {})).content[0].text)
            while not Path(file).exists():
                await anyio.sleep(0.02)
    tell("closed", True)


anyio.run(main, *sys.argv[1:])
