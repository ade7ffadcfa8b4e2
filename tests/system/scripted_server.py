#!/usr/bin/env python3
"""An MCP server on stdio that answers as a file says, byte for byte, and asks its client.

  scripted_server.py FILE [--log LOG]

FILE is a JSON object, read anew for each request. A key is a method, or a method and what the request names ("tools/call scale",
"resources/read scene://a", "tools/list 8" for a cursor), with " again" if it brings inputResponses. It leads to the raw text of
the result, to null (never answered), or to a list of steps:
  {"say": TEXT}       a line of its own; "$id" in it is the request's id, "$token" its progress token, or null
  {"ask": {ID: {"method": .., "params": ..}}}   requests to the client, all at once; their answers are waited for
  {"result": TEXT}, {"error": TEXT}   the answer; "$answers" in it is the text of all that was answered, {ID: RESPONSE}, inside a JSON string
What FILE does not name gets the usual answers of 2025-11-25, or -32601. Each line that comes in is appended to LOG.
"""

import argparse
import json
import os
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

INITIALIZE = ('{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},'
              '"serverInfo":{"name":"scripted","version":"1"}}')
USUAL = {"initialize": INITIALIZE, "ping": "{}", "tools/list": '{"tools":[]}'}


class Server:
    def __init__(self, file):
        self._file = Path(file)
        self._lock = threading.Lock()
        self._asked = {}  # id -> Future

    def write(self, line):
        with self._lock:
            sys.stdout.buffer.write(line.encode() + b"\n")
            sys.stdout.buffer.flush()

    def script_of(self, method, params):
        """What stands in the file for a request, or what is usual, or "" for what nobody knows."""
        script = USUAL | json.loads(self._file.read_text())
        named = params.get("name") or params.get("uri") or params.get("cursor") or ""
        key = f"{method} {named}".strip() + (" again" if "inputResponses" in params else "")
        return script[key] if key in script else script.get(method, "")

    def answer(self, message):
        params = message.get("params") or {}
        number = json.dumps(message["id"])
        steps = self.script_of(message["method"], params)
        if steps == "":
            steps = [{"error": '{"code":-32601,"message":"unknown"}'}]
        elif isinstance(steps, str):
            steps = [{"result": steps}]
        token = json.dumps((params.get("_meta") or {}).get("progressToken"))
        answers = {}
        for step in steps or []:
            (kind, what), = step.items()
            if kind == "say":
                self.write(what.replace("$id", number).replace("$token", token))
            elif kind == "ask":
                answers |= self.ask(message["id"], what)
            else:
                told = json.dumps(json.dumps(answers))[1:-1]
                self.write(f'{{"jsonrpc":"2.0","id":{number},"{kind}":{what.replace("$answers", told)}}}')

    def ask(self, call, requests):
        """{ID: what the client answered}; the ids on the wire are those of the file with the call's before them."""
        asked = {name: Future() for name in requests}
        for name, request in requests.items():
            self._asked[f"{call}-{name}"] = asked[name]
        for name, request in requests.items():
            self.write(json.dumps({"jsonrpc": "2.0", "id": f"{call}-{name}", **request}))
        return {name: future.result(120) for name, future in asked.items()}

    def take(self, message):
        if "method" in message and "id" in message:
            threading.Thread(target=self.answer, args=(message,), daemon=True).start()
        elif "id" in message:
            answered = self._asked.pop(message["id"], None)
            if answered is not None:
                answered.set_result({key: message[key] for key in ("result", "error") if key in message})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--log")
    options = parser.parse_args()
    server = Server(options.file)
    for line in sys.stdin:
        if options.log:
            with open(options.log, "a", encoding="utf-8") as log:
                log.write(line)
        server.take(json.loads(line))
    os._exit(0)  # the client is gone


if __name__ == "__main__":
    main()
