"""Calls of the official Python client on the stdin of a server that it starts; one JSON line a fact.

  stdio_steps.py STEPS COMMAND [ARGUMENT...]

STEPS is a file with a JSON list of [tool, arguments, file]: each call begins when there is such a file (or none is named).
Its result is told as "result", an error as "error" with its data.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


async def elicit(_context, params):
    tell("asked", params.message)
    return types.ElicitResult(action="accept", content={key: "Ada" for key in
                                                        params.requestedSchema["properties"]})


async def sample(_context, _params):
    return types.CreateMessageResult(role="assistant", model="none",
                                     content=types.TextContent(type="text", text="Paris"))


async def roots(_context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///scenes")])


async def on_progress(progress, _total, _message):
    tell("progress", progress)


async def main(steps, command, *arguments):
    async with stdio_client(StdioServerParameters(command=command, args=list(arguments))) as streams:
        async with ClientSession(*streams, elicitation_callback=elicit, sampling_callback=sample,
                                 list_roots_callback=roots) as session:
            hello = await session.initialize()
            tell("connected", {"server": hello.serverInfo.name, "revision": hello.protocolVersion})
            tell("tools", [tool.name for tool in (await session.list_tools()).tools])
            for tool, values, file in json.loads(Path(steps).read_text()):
                while file and not Path(file).exists():
                    await anyio.sleep(0.02)
                tell("begun", tool)
                try:
                    result = await session.call_tool(tool, values, timedelta(seconds=50), on_progress)
                    tell("result", "\n".join(getattr(block, "text", "") for block in result.content))
                except McpError as error:
                    tell("error", {"message": error.error.message, "data": error.error.data})
    tell("closed", True)


anyio.run(main, *sys.argv[1:])
