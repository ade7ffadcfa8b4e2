#!/usr/bin/env python3
"""An MCP server on stdio whose tool asks its user in mid-call, in the way of either era.

  asking_server.py --file FILE --era old|new

confirm {id, gate}: appends "begin ID TIME" to FILE, waits until there is a file `gate`, asks for a
colour, and says what was answered; an error it appends, too ("refused ID TIME"). old: a request of
its own (elicitation/create). new (2026-07-28): it requires input, twice, and each time gets the
request once more with the answer and its requestState.
"""

import argparse
import json
import os
import sys
import threading
import time

MODERN = "2026-07-28"
TOOLS = [{"name": "confirm", "description": "Asks for a colour",
          "inputSchema": {"type": "object", "properties": {"id": {"type": "string"},
                                                           "gate": {"type": "string"}}}}]
SCHEMA = {"type": "object", "properties": {"colour": {"type": "string"}}}


def question(message):
    return {"mode": "form", "message": message, "requestedSchema": SCHEMA}


def said(text):
    return {"content": [{"type": "text", "text": text}]}


class Server:
    def __init__(self, file, era):
        self._file = file
        self._era = era
        self._lock = threading.Lock()
        self._asked = {}  # id of a request of ours -> [event, message that answers it]

    def write(self, message):
        with self._lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def ask(self, params):
        event = threading.Event()
        with self._lock:
            number = f"ask-of-server-{len(self._asked)}"
            self._asked[number] = [event, None]
        self.write({"id": number, "method": "elicitation/create", "params": params})
        event.wait()
        return self._asked[number][1]

    def on_answer(self, message):
        entry = self._asked.get(message["id"])
        if entry:
            entry[1] = message
            entry[0].set()

    def note(self, event, arguments):
        with open(self._file, "a", encoding="utf-8") as out:
            out.write(f"{event} {arguments.get('id', '')} {time.time():.6f}\n")

    def begin(self, arguments):
        self.note("begin", arguments)
        while not os.path.exists(arguments["gate"]):
            time.sleep(0.01)

    def confirm(self, params):
        arguments = params["arguments"]
        if self._era == "old":
            self.begin(arguments)
            answer = self.ask(question("Which colour?"))
            if "error" in answer:
                self.note("refused", arguments)
            return said("answered " + json.dumps(answer.get("result")))
        state, responses = params.get("requestState"), params.get("inputResponses") or {}
        if state is None:
            self.begin(arguments)
            return {"resultType": "input_required", "requestState": "first",
                    "inputRequests": {"colour": {"method": "elicitation/create",
                                                 "params": question("Which colour?")}}}
        colour = responses["colour"]["content"]["colour"]
        if state == "first":
            return {"resultType": "input_required", "requestState": "second " + colour,
                    "inputRequests": {"colour": {"method": "elicitation/create",
                                                 "params": question("And which other?")}}}
        return {"resultType": "complete", **said(f"{state}, then {colour}")}

    def answer(self, message):
        method, params = message["method"], message.get("params") or {}
        reply = {"id": message["id"]}
        if method == "initialize":
            reply["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                               "serverInfo": {"name": "asking", "version": "1"}}
        elif method == "server/discover" and self._era == "new":
            reply["result"] = {"resultType": "complete", "capabilities": {"tools": {}},
                               "supportedVersions": [MODERN, "2025-11-25"],
                               "ttlMs": 0, "cacheScope": "private"}
        elif method == "tools/list":
            reply["result"] = {"resultType": "complete", "tools": TOOLS, "ttlMs": 0,
                               "cacheScope": "private"}
        elif method == "ping":
            reply["result"] = {}
        elif method == "tools/call":
            reply["result"] = self.confirm(params)
        else:
            reply["error"] = {"code": -32601, "message": f"unknown: {method}"}
        self.write(reply)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", required=True)
    parser.add_argument("--era", choices=("old", "new"), required=True)
    options = parser.parse_args()
    server = Server(options.file, options.era)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=server.answer, args=(message,), daemon=True).start()
        elif "id" in message:
            server.on_answer(message)
    os._exit(0)  # the client is gone


if __name__ == "__main__":
    main()
