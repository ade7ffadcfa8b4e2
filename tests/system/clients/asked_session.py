"""A session of 2025-11-25 with the official Python client that a backend of 2026-07-28 asks; one JSON line a fact.

  asked_session.py URL
"""

import json
import sys

import anyio
from mcp import ClientSession, types

from transport import connected


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


def text_of(result):
    return "\n".join(getattr(block, "text", "") for block in result.content)


ANSWERS = {"name": "Ada", "color": "blue", "ok": True}


async def elicit(_context, params):
    wanted = params.requestedSchema["properties"]
    return types.ElicitResult(action="accept", content={key: ANSWERS[key] for key in wanted})


async def sample(_context, _params):
    return types.CreateMessageResult(role="assistant", model="none",
                                     content=types.TextContent(type="text", text="Paris"))


async def roots(_context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///scenes")])


async def main(url):
    async with connected(url) as (read, write, _):
        async with ClientSession(read, write, elicitation_callback=elicit, sampling_callback=sample,
                                 list_roots_callback=roots) as session:
            tell("revision", (await session.initialize()).protocolVersion)
            tell("tools", [tool.name for tool in (await session.list_tools()).tools])
            for tool in ("simple_text", "input_required_result_elicitation",
                         "input_required_result_multiple_inputs",
                         "input_required_result_multi_round",
                         "input_required_result_list_roots"):
                tell(tool, text_of(await session.call_tool(f"test_{tool}", {})))
            resource = await session.read_resource("test://static-text")
            tell("resource", resource.contents[0].text)


anyio.run(main, sys.argv[1])
