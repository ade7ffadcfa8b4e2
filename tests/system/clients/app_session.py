"""One session on the facade with a Python client: what was negotiated, the tools, one call; one JSON line a fact.

  app_session.py v1|v2|fastmcp URL | app_session.py v2-stdio COMMAND [ARGUMENT...]
"""

import json
import sys

import anyio


def tell(fact, value):
    print(json.dumps({"fact": fact, "value": value}), flush=True)


def tell_all(revision, tools, result):
    tell("revision", str(revision))
    tell("tools", [tool.name for tool in tools])
    tell("text", "\n".join(getattr(block, "text", "") for block in result.content))


async def main(kind, url, *arguments):
    if kind == "v1":
        from mcp import ClientSession
        from mcp.client.streamable_http import streamablehttp_client
        async with streamablehttp_client(url) as (read, write, _):
            async with ClientSession(read, write) as session:
                hello = await session.initialize()
                tell_all(hello.protocolVersion, (await session.list_tools()).tools,
                         await session.call_tool("list_instances", {}))
    elif kind in ("v2", "v2-stdio"):
        import mcp
        server = url if kind == "v2" else mcp.StdioServerParameters(command=url, args=list(arguments))
        async with mcp.Client(server) as client:
            tell_all(client.protocol_version, (await client.list_tools()).tools,
                     await client.call_tool("list_instances", {}))
    else:
        import fastmcp
        async with fastmcp.Client(url) as client:
            tell_all(client.protocol_version, await client.list_tools(),
                     await client.call_tool("list_instances", {}))


anyio.run(main, *sys.argv[1:])
