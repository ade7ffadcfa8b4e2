"""A session of 2026-07-28 with the official Python client: what it was asked and what it was told; one JSON line a fact.

  modern_session.py URL
"""

import json
import sys

import anyio
import mcp
from mcp import types


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


def text_of(result):
    return "\n".join(getattr(block, "text", "") for block in result.content)


async def elicit(_context, params):
    tell("asked", params.message)
    return types.ElicitResult(action="accept", content={"response": "blue"})


async def sample(_context, params):
    tell("sampled", params.messages[0].content.text)
    return types.CreateMessageResult(role="assistant", model="none",
                                     content=types.TextContent(type="text", text="Paris"))


async def main(url):
    async with mcp.Client(url, elicitation_callback=elicit, sampling_callback=sample) as client:
        tell("revision", str(client.protocol_version))
        tell("tools", [tool.name for tool in (await client.list_tools()).tools])
        tell("text", text_of(await client.call_tool("test_simple_text", {})))
        seen = []

        async def on_progress(progress, total, message):
            seen.append([progress, total, message])

        await client.call_tool("test_tool_with_progress", {}, progress_callback=on_progress)
        tell("progress", seen)
        tell("resource", (await client.read_resource("test://static-text")).contents[0].text)
        tell("prompt", (await client.get_prompt("test_simple_prompt")).messages[0].content.text)
        tell("elicited", text_of(await client.call_tool("test_elicitation", {"message": "Colour?"})))
        tell("answered", text_of(await client.call_tool("test_sampling", {"prompt": "Capital?"})))


anyio.run(main, sys.argv[1])
