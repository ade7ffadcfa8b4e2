#!/usr/bin/env python3
"""An MCP server on stdio whose tools tell numbered events of each kind, for tests that cut what carries them.

  event_server.py

tell {count, ms, asks}: for n from 1 to count, one each ms, a log message and (if there is a token) progress, both n;
where n is a multiple of asks, first a question to the client (elicitation), whose answer is waited for. It answers with the
answers. feed {first, count, ms}: answers at once; then, and so outside any call, so many log messages, one each ms.
"""

import json
import os
import sys
import threading
import time
from concurrent.futures import Future

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("tell", "feed")]
QUESTION = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Server:
    def __init__(self):
        self._lock = threading.Lock()
        self._asked = {}  # request id -> Future

    def write(self, message):
        with self._lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def notify(self, method, params):
        self.write({"method": method, "params": params})

    def log(self, n):
        self.notify("notifications/message", {"level": "info", "logger": "events", "data": {"n": n}})

    def ask(self, call, n):
        """The content of the client's answer."""
        number = f"{call}-{n}"
        answer = self._asked[number] = Future()
        self.write({"id": number, "method": "elicitation/create",
                    "params": {"message": str(n), "requestedSchema": QUESTION}})
        return answer.result(60).get("content")

    def tell(self, call, arguments, token):
        answers = []
        for n in range(1, arguments["count"] + 1):
            time.sleep(arguments["ms"] / 1000)
            if arguments.get("asks") and n % arguments["asks"] == 0:
                answers.append(self.ask(call, n))
            self.log(n)
            if token is not None:
                self.notify("notifications/progress",
                            {"progressToken": token, "progress": n, "total": arguments["count"]})
        return json.dumps(answers)

    def feed(self, _call, arguments, _token):
        def run():
            for n in range(arguments["first"], arguments["first"] + arguments["count"]):
                time.sleep(arguments["ms"] / 1000)
                self.log(n)

        threading.Thread(target=run, daemon=True).start()
        return "begun"

    def answer(self, message):
        number, method, params = message["id"], message["method"], message.get("params") or {}
        if method == "initialize":
            result = {"protocolVersion": params["protocolVersion"],
                      "capabilities": {"tools": {}, "logging": {}},
                      "serverInfo": {"name": "events", "version": "1"}}
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "tools/call":
            tool = {"tell": self.tell, "feed": self.feed}[params["name"]]
            token = (params.get("_meta") or {}).get("progressToken")
            text = tool(number, params.get("arguments") or {}, token)
            result = {"content": [{"type": "text", "text": text}]}
        else:  # ping, logging/setLevel
            result = {}
        self.write({"id": number, "result": result})

    def take(self, message):
        if "method" in message and "id" in message:
            threading.Thread(target=self.answer, args=(message,), daemon=True).start()
        elif "method" not in message:
            self._asked.pop(message["id"]).set_result(message.get("result") or {})


def main():
    server = Server()
    for line in sys.stdin:
        server.take(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
