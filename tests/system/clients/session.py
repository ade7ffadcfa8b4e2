"""The same session as session.mjs with the official Python client.

  session.py URL all | session.py URL call TOOL JSON-ARGUMENTS
"""

import json
import sys
import time
from datetime import timedelta

import anyio
from mcp import ClientSession, types

from transport import connected


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


def text_of(result):
    return "\n".join(getattr(block, "text", "") for block in result.content)


async def one_call(session, tool, arguments):
    async def on_progress(progress, _total, _message):
        tell("progress", progress)

    result = await session.call_tool(tool, arguments, timedelta(seconds=50), on_progress)
    tell("result", text_of(result))


async def cancelled_call(session):
    """A call that is cancelled by notification, as a program does it that lost interest."""
    # The number that the session is going to give to its next request.
    number = session._request_id
    started = time.monotonic()
    outcome = {"ms": None}

    async def call():
        try:
            # A cancelled request gets no response, so the wait ends by the client's own time-out.
            await session.call_tool("slow_compute", {"seconds": 2}, timedelta(seconds=1))
        except Exception as error:
            outcome.update(ms=round((time.monotonic() - started) * 1000), message=str(error))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.sleep(0.6)
        await session.send_notification(types.ClientNotification(types.CancelledNotification(
            params=types.CancelledNotificationParams(requestId=number, reason="enough"))))
    tell("cancelled", outcome)


async def everything(session):
    tell("tools", [tool.name for tool in (await session.list_tools()).tools])
    tell("text", text_of(await session.call_tool("test_simple_text", {})))
    seen = []

    async def on_progress(progress, total, message):
        seen.append([progress, total, message])

    await session.call_tool("test_tool_with_progress", {}, None, on_progress)
    tell("progress", seen)
    await cancelled_call(session)
    tell("after", text_of(await session.call_tool("test_simple_text", {})))


async def main(url, what, tool="", arguments="{}"):
    async with connected(url) as (read, write, session_id):
        async with ClientSession(read, write) as session:
            hello = await session.initialize()
            tell("connected", {"server": hello.serverInfo.name, "revision": hello.protocolVersion,
                               "session": bool(session_id())})
            if what == "call":
                await one_call(session, tool, json.loads(arguments))
            else:
                await everything(session)
    tell("closed", True)


anyio.run(main, *sys.argv[1:])
