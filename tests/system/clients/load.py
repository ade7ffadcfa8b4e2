"""Several sessions of the official Python client in one process, which call side by side what a test writes for each round.

  load.py FOLDER '{"NAME": "URL", ...}'

FOLDER/round-N.json is {"NAME": [[CALL, TOOL, ARGUMENTS], ...]}, N from 1; FOLDER/stop ends all. One JSON line a fact:
connected, open (a call's stream has its first event id), result, closed.
"""

import hashlib
import json
import sys
from datetime import timedelta
from pathlib import Path

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.message import ClientMessageMetadata


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


def told_text(text):
    """The text itself, or what proves it."""
    return text if len(text) <= 100 else hashlib.sha256(text.encode()).hexdigest()


async def one_call(session, call, tool, arguments):
    opened = False

    async def on_token(_token):
        nonlocal opened
        if not opened:
            opened = True
            tell("open", call)

    request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
    try:
        result = await session.send_request(
            types.ClientRequest(request), types.CallToolResult, timedelta(seconds=90),
            ClientMessageMetadata(on_resumption_token_update=on_token))
        tell("result", [call, told_text("\n".join(getattr(block, "text", "") for block in result.content))])
    except Exception as error:
        tell("result", [call, f"failed: {error}"])


async def one_session(name, url, folder):
    async with streamablehttp_client(url) as (read, write, session_id):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tell("connected", [name, session_id()])
            number = 1
            while True:
                plan = folder / f"round-{number}.json"
                while not plan.exists() and not (folder / "stop").exists():
                    await anyio.sleep(0.02)
                if not plan.exists():
                    break
                async with anyio.create_task_group() as group:
                    for call, tool, arguments in json.loads(plan.read_text())[name]:
                        group.start_soon(one_call, session, call, tool, arguments)
                number += 1
            tell("closed", [name, session_id()])


async def main(folder, sessions):
    async with anyio.create_task_group() as group:
        for name, url in json.loads(sessions).items():
            group.start_soon(one_session, name, url, Path(folder))


anyio.run(main, *sys.argv[1:])
