"""How a session of the official Python client reaches a URL: Streamable HTTP, or HTTP+SSE where its path says so."""

from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client


@asynccontextmanager
async def connected(url):
    """(read, write, session_id); session_id() is None where the transport has none."""
    if urlsplit(url).path.startswith("/sse"):
        async with sse_client(url) as (read, write):
            yield read, write, lambda: None
    else:
        async with streamablehttp_client(url) as streams:
            yield streams
