"""One call of the official Python client, with all that comes before its result, and news after it; one JSON line a fact.

  follow.py URL|COMMAND TOOL JSON-ARGUMENTS FOLDER

COMMAND is a JSON list: a server on stdio, which has no session id to tell.
log and progress are told by their number, asked by the question, which is answered with its own number. When there is a file
FOLDER/news, the tool `feed` is called, and the client ends when the log message 0 has come on the stream of its session.
"""

import json
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


async def on_progress(progress, _total, _message):
    tell("progress", progress)


async def on_ask(_context, params):
    tell("asked", int(params.message))
    return types.ElicitResult(action="accept", content={"n": int(params.message)})


@asynccontextmanager
async def connect(server):
    if not server.startswith("["):
        async with streamablehttp_client(server) as streams:
            yield streams
    else:
        command, *arguments = json.loads(server)
        async with stdio_client(StdioServerParameters(command=command, args=arguments)) as streams:
            yield *streams, lambda: None


async def main(server, tool, arguments, folder):
    news = anyio.Event()

    async def on_log(params):
        if params.data["n"] == 0:
            return news.set()
        tell("log", params.data["n"])

    async with connect(server) as (read, write, session_id):
        async with ClientSession(read, write, logging_callback=on_log,
                                 elicitation_callback=on_ask) as session:
            await session.initialize()
            await session.set_logging_level("info")
            tell("connected", session_id())
            result = await session.call_tool(tool, json.loads(arguments), timedelta(seconds=90), on_progress)
            tell("result", json.loads(result.content[0].text))
            while not Path(folder, "news").exists():
                await anyio.sleep(0.05)
            await session.call_tool("feed", {"first": 0, "count": 1, "ms": 500})
            with anyio.fail_after(20):
                await news.wait()
            tell("news", session_id())


anyio.run(main, *sys.argv[1:])
