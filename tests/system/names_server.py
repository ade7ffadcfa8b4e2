#!/usr/bin/env python3
"""An MCP server whose tools are named in a file; stateless JSON over HTTP.

  names_server.py LABEL FILE PORT

FILE has a JSON array of tools, read anew for each tools/list. A call answers with "LABEL ran NAME" whatever it is, and
with the arguments as structured content.
"""

import json
import sys
from pathlib import Path

from counting_server import serve_http


class Server:
    def __init__(self, label, file):
        self._label = label
        self._file = Path(file)

    def on_notification(self, message):
        pass

    def answer(self, message, _notify):
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        result = self._result(message["method"], message.get("params") or {})
        if result is None:
            return reply | {"error": {"code": -32601, "message": message["method"]}}
        return reply | {"result": result}

    def _result(self, method, params):
        if method == "initialize":
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                    "serverInfo": {"name": self._label, "version": "1"}}
        if method == "tools/list":
            return {"tools": json.loads(self._file.read_text())}
        if method == "tools/call":
            text = f"{self._label} ran {params['name']}"
            return {"content": [{"type": "text", "text": text},
                                {"type": "resource_link", "uri": f"scene://{self._label}", "name": "scene"}],
                    "structuredContent": params.get("arguments") or {}}
        return {} if method == "ping" else None


if __name__ == "__main__":
    serve_http(Server(*sys.argv[1:3]), int(sys.argv[3]))
