#!/usr/bin/env python3
"""An MCP server on stdio that breaks the rules on demand, and counts the ids it is sent.

Tools: raw (answers with bytes that no JSON library may touch), twice (answers two times), wrong_id (answers
an id nobody asked for, then the right one), silent (never answers), die (reports progress twice, then its
process ends), slow {text, ms}, ids (all request ids of calls so far).
"""

import json
import os
import sys
import threading
import time

RAW_RESULT = ('{"structuredContent":{"id":9007199254740993,"uid":1915883588174806058,'
              '"neg":-7108510333361982070,"max":18446744073709551615},'
              '"content":[{"type":"text","text":"{\\"id\\": 9007199254740993}"}],'
              '"x-vendor":{"z":1e400,"a":0.10,"m":[]}}')
NAMES = ("raw", "twice", "wrong_id", "silent", "die", "slow", "ids")
LOCK = threading.Lock()
IDS = []


def write(text):
    with LOCK:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def reply(number, result):
    write('{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(number), result))


def text_result(text):
    return json.dumps({"content": [{"type": "text", "text": text}]})


def call(message):
    params, number = message["params"], message["id"]
    arguments = params.get("arguments") or {}
    IDS.append(number)
    name = params["name"]
    if name == "raw":
        reply(number, RAW_RESULT)
    elif name == "twice":
        reply(number, text_result("first"))
        reply(number, text_result("second"))
    elif name == "wrong_id":
        reply("nobody asked", text_result("wrong"))
        reply(987654321, text_result("wrong"))
        reply(number, text_result("right"))
    elif name == "die":
        token = (params.get("_meta") or {}).get("progressToken")
        for step in (1, 2):
            write(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress",
                              "params": {"progressToken": token, "progress": step}}))
        time.sleep(0.3)
        os._exit(3)
    elif name == "slow":
        time.sleep(arguments["ms"] / 1000)
        reply(number, text_result(arguments["text"]))
    elif name == "ids":
        reply(number, text_result(json.dumps(IDS[:-1])))


def main():
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            reply(message["id"], json.dumps({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "rogue", "version": "1"}}))
        elif method == "tools/list":
            reply(message["id"], json.dumps({"tools": [
                {"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}))
        elif method == "ping":
            reply(message["id"], "{}")
        elif method == "tools/call":
            threading.Thread(target=call, args=(message,), daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()
