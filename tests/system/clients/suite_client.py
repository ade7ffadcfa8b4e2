"""Drives one client scenario of the conformance suite through Callboard: an agent with the suite's server as its only backend, and a client on /mcp/NAME.

  suite_client.py PORT GRPC_PORT AGENT FOLDER URL

The suite starts it with its URL at the end and says in the environment which scenario it is.
"""

import base64
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

NAMESPACE = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
HEADER_SAFE = {chr(code) for code in range(0x20, 0x7f)}


class Peer:
    """A client of one revision that answers whatever it is asked by the defaults of its form."""

    def __init__(self, url, revision):
        self.url, self.revision, self.session, self.next_id = url, revision, None, 0

    def modern(self):
        return self.revision == MODERN

    def send(self, message, headers=None):
        """The messages of the answer, as they come."""
        told = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                **(headers or {})}
        if self.session:
            told["Mcp-Session-Id"] = self.session
        request = urllib.request.Request(self.url, json.dumps(message).encode(), told)
        try:
            response = urllib.request.urlopen(request, timeout=40)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            self.session = response.headers.get("Mcp-Session-Id", self.session)
            if "event-stream" not in response.headers.get("Content-Type", ""):
                body = response.read()
                return [json.loads(body)] if body else []
            found = []
            for line in response:
                if line.startswith(b"data: ") and line[6:].strip():
                    found.append(json.loads(line[6:]))
                    if found[-1].get("method") and "id" in found[-1]:
                        self.answer(found[-1])
            return found

    def answer(self, asked):
        self.send({"jsonrpc": "2.0", "id": asked["id"],
                   "result": self.reply(asked["method"], asked.get("params", {}))})

    @staticmethod
    def reply(method, params):
        if method == "roots/list":
            return {"roots": []}
        if method == "sampling/createMessage":
            return {"role": "assistant", "model": "none", "content": {"type": "text", "text": "ok"}}
        properties = params.get("requestedSchema", {}).get("properties", {})
        plain = {"boolean": True, "string": "text", "integer": 1, "number": 1.5}
        return {"action": "accept",
                "content": {name: schema.get("default", plain.get(schema.get("type")))
                            for name, schema in properties.items()}}

    def ask(self, method, params=None, headers=None):
        self.next_id += 1
        params = dict(params or {})
        told = {"MCP-Protocol-Version": self.revision} if self.modern() else {}
        if self.modern():
            params["_meta"] = {NAMESPACE + "protocolVersion": MODERN,
                               NAMESPACE + "clientInfo": {"name": "suite-client", "version": "1"},
                               NAMESPACE + "clientCapabilities": {
                                   "elicitation": {"form": {}}, "sampling": {}, "roots": {}}}
            told["Mcp-Method"] = method
            name = params.get("name", params.get("uri"))
            if method in ("tools/call", "prompts/get", "resources/read"):
                told["Mcp-Name"] = mirrored(name)
        number = self.next_id
        found = self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params},
                          {**told, **(headers or {})})
        return next(message for message in found if message.get("id") == number)

    def initialize(self):
        if self.modern():
            return self.ask("server/discover")
        answer = self.ask("initialize", {
            "protocolVersion": self.revision, "clientInfo": {"name": "suite-client", "version": "1"},
            "capabilities": {"elicitation": {}, "sampling": {}, "roots": {}}})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def call(self, tool, arguments, between=None):
        """A tool call with as many rounds as it wants."""
        headers = {}
        if self.modern():
            for name, schema in tool.get("inputSchema", {}).get("properties", {}).items():
                if "x-mcp-header" in schema and arguments.get(name) is not None:
                    value = arguments[name]
                    text = value if isinstance(value, str) else json.dumps(value)
                    headers["Mcp-Param-" + schema["x-mcp-header"]] = mirrored(text)
        params = {"name": tool["name"], "arguments": arguments}
        for _ in range(10):
            answer = self.ask("tools/call", params, headers)
            result = answer.get("result", {})
            if result.get("resultType") != "input_required":
                return answer
            if between:
                between()
            params = {"name": tool["name"], "arguments": arguments, "inputResponses": {
                key: self.reply(request["method"], request.get("params", {}))
                for key, request in result.get("inputRequests", {}).items()}}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise SystemExit(f"{tool['name']} asks for ever")


def mirrored(text):
    if set(text) <= HEADER_SAFE and text == text.strip():
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def made_up(schema):
    """Arguments that a schema of simple types takes."""
    plain = {"string": "text", "number": 2, "integer": 3, "boolean": True, "object": {}, "array": []}
    return {name: plain.get(of.get("type"), "text")
            for name, of in schema.get("properties", {}).items() if name in schema.get("required", [])}


def drive(peer, context):
    tools = {tool["name"]: tool for tool in peer.ask("tools/list")["result"]["tools"]}
    if context.get("toolCalls"):
        for call in context["toolCalls"]:
            # Null is no value of the schema's types; what has none is left out.
            given = {name: value for name, value in call["arguments"].items() if value is not None}
            print(call["name"], peer.call(tools[call["name"]], given))
        return
    rich = tools.get("json_schema_2020_12_tool")
    for name, tool in tools.items():
        arguments = made_up(tool.get("inputSchema", {}))
        if name == "json_schema_echo":
            arguments = {"schema": rich["inputSchema"]}
        elif tool is rich:
            continue
        unrelated = next((other for other in tools if other.endswith("_unrelated")), None)
        between = (lambda: peer.call(tools[unrelated], {})) if unrelated else None
        print(name, peer.call(tool, arguments, between))
    for method, read, key, member in [("resources/list", "resources/read", "resources", "uri"),
                                      ("prompts/list", "prompts/get", "prompts", "name")]:
        for entry in peer.ask(method).get("result", {}).get(key, []):
            print(entry, peer.ask(read, {member: entry[member]}))


def main(port, grpc_port, agent, folder, url):
    name = "suite-" + uuid.uuid4().hex[:8]
    state = Path(folder) / name
    with open(Path(folder) / f"{name}.log", "wb") as log:
        program = subprocess.Popen(
            [agent, "--control-plane", f"127.0.0.1:{grpc_port}", "--state-dir", state, "--name", name,
             "--log-level", "debug", "--url", url],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}/mcp/{name}"
        # The seat is there, and its tools are known.
        for _ in range(300):
            if "result" in Peer(url, MODERN).ask("tools/list"):
                break
            time.sleep(0.1)
        peer = Peer(url, os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", MODERN))
        print(peer.initialize())
        drive(peer, json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")))
    finally:
        program.terminate()
        program.wait(10)


main(*sys.argv[1:])
