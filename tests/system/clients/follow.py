"""One call of the official Python client, with all that comes before its result, and news after it; one JSON line a fact.

  follow.py URL TOOL JSON-ARGUMENTS FOLDER

log and progress are told by their number, asked by the question, which is answered with its own number. When there is a file
FOLDER/news, the tool `feed` is called, and the client ends when the log message 0 has come on the stream of its session.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


async def on_progress(progress, _total, _message):
    tell("progress", progress)


async def on_ask(_context, params):
    tell("asked", int(params.message))
    return types.ElicitResult(action="accept", content={"n": int(params.message)})


async def main(url, tool, arguments, folder):
    news = anyio.Event()

    async def on_log(params):
        if params.data["n"] == 0:
            return news.set()
        tell("log", params.data["n"])

    async with streamablehttp_client(url) as (read, write, session_id):
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
