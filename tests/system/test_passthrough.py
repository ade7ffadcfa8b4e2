"""What passes between clients and a seat: nothing changed on the way, nothing mixed up, each told once a change."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from mcp_http import REVISION, McpClient, connection_closed
from stage import wait_until

WATCHED = "test://watched-resource"

# As clients may write them: order, numbers, escapes, blanks and members that nobody has heard of.
REQUESTS = {
    "a call": ("tools/call", '{"zeta":{"b":1,"a":2},"name":"json_schema_2020_12_tool","arguments":{"z":1.0,"a":1e3,'
               '"big":12345678901234567890,"small":-0.0,"t":"\\u00e9\\u2028\\/","name":"  n  ","deep":[[[{"":null}]]]},'
               '"_meta":{"studio.example/shot":["sq010",10.50]}}'),
    "an image": ("tools/call", '{"name":"test_image_content","arguments":{}}'),
    "several contents": ("tools/call", '{"arguments":{},"name":"test_multiple_content_types"}'),
    "an error of the tool": ("tools/call", '{"name":"test_error_handling"}'),
    "resources": ("resources/list", '{"studio":1.0}'),
    "templates": ("resources/templates/list", '{}'),
    "a resource": ("resources/read", '{"uri":"test://static-text","extra":[1.0,2e0]}'),
    "an unknown resource": ("resources/read", '{"uri":"test://\\u006eone"}'),
    "prompts": ("prompts/list", '{"_meta":{"a":1.0}}'),
    "a prompt": ("prompts/get", '{"arguments":{"arg2":"two","arg1":"\\u0031"},"name":"test_prompt_with_arguments"}'),
    "a completion": ("completion/complete", '{"ref":{"type":"ref/prompt","name":"test_prompt_with_arguments"},'
                     '"argument":{"value":"al","name":"arg1"},"context":{"arguments":{"x":"1.0"}}}'),
    "a method of the studio": ("studio.example/render", '{"frames":[1.0,2,3e0],"\\u0061":null}'),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_nothing_is_changed_between_client_and_backend(stage, fixture_command, what):
    method, params = REQUESTS[what]
    log = stage.folder / "wire.log"
    stage.start_control_plane()
    stage.start_agent(*fixture_command, "--legacy-only", "--log", log, name="fixture")
    client = stage.client("/mcp/fixture")
    body = f'{{"params":{params},"method":"{method}","id":"\\u0041-7","jsonrpc":"2.0"}}'
    connection, response = client._open("POST", body.encode(),
                                        client._headers() | {"Content-Type": "application/json"}, 20)
    with connection_closed(connection):
        assert response.status == 200
        answered = response.read().decode()
    lines = log.read_text().splitlines()
    received = [line for line in lines if line.startswith("< ") and f'"{method}"' in line and params in line]
    assert len(received) == 1, f"the backend got what was sent, once: {lines}"
    number = json.dumps(json.loads(received[0][2:])["id"])
    said = next(line[2:] for line in lines if line.startswith("> ") and f'"id":{number},' in line)
    member = "result" if '"result":' in said else "error"
    told = said[said.index(f'"{member}":'):-1]
    assert told in answered, "and the client what the backend said"
    assert '"id":"\\u0041-7"' in answered, "under its own id, as it wrote it"


def test_clients_with_the_same_ids_tokens_and_names_get_their_own(stage):
    seats, clients, rounds = ["left", "right"], 16, 6
    stage.start_control_plane()
    stage.start_registry_agent(seats)

    def work(which):
        seat = seats[which % 2]
        client = stage.client(f"/mcp/{seat}")
        for turn in range(rounds):
            text = f"{seat} {which} {turn}"
            assert client.call("echo", {"text": text}, timeout=60).text == text
            steps = 3 + (which + turn) % 4
            answer = client.call("progress", {"steps": steps, "ms": 5}, timeout=60, progress=True)
            assert answer.text == f"{steps} steps"
            assert answer.progress == list(range(1, steps + 1))
            token = f"token-{client._next_id}"
            assert {note["params"]["progressToken"] for note in answer.notifications} == {token}
        return client._next_id

    with ThreadPoolExecutor(clients) as pool:
        last = list(pool.map(work, range(clients)))
    assert len(set(last)) == 1, "all have used the same ids"


class Listener:
    """A session with its GET stream, and the methods it has been told."""

    def __init__(self, stage):
        self.client = stage.client("/mcp/fixture")
        self.heard = []
        self.client.listen(self._hear, timeout=120)

    def _hear(self, event):
        if event.type in ("", "message") and event.data:
            self.heard.append(json.loads(event.data)["method"])

    def count(self, method):
        return self.heard.count(method)


def test_changes_reach_all_who_asked_until_the_last_asks_no_more(stage, fixture_command):
    log = stage.folder / "wire.log"
    stage.start_control_plane()
    stage.start_agent(*fixture_command, "--legacy-only", "--log", log, name="fixture")
    listeners = [Listener(stage) for _ in range(8)]
    asking, others = listeners[:6], listeners[6:]
    updated, prompts = "notifications/resources/updated", "notifications/prompts/list_changed"

    def sent(method):
        return sum(f'"{method}"' in line for line in log.read_text().splitlines() if line[0] == "<")

    for listener in asking:
        listener.client.request("resources/subscribe", {"uri": WATCHED})
    assert sent("resources/subscribe") == len(asking), "each has the answer of the backend itself"
    os.kill(stage.backend_pid("fixture.mjs"), signal.SIGUSR1)
    wait_until(lambda: all(listener.count(updated) for listener in asking), 20, "all who asked hear of it")
    assert not any(listener.count(updated) for listener in others)

    for _ in range(3):  # within the time in which changes are one
        others[0].client.call("test_trigger_prompt_change")
    wait_until(lambda: all(listener.count(prompts) for listener in listeners), 20, "all hear of the list")
    assert all(listener.count(prompts) <= 3 for listener in listeners)

    # The agent comes back without its sessions having asked again.
    stage.agent.signal(signal.SIGKILL)
    stage.agent.process.wait(10)
    before = [listener.count(updated) for listener in asking]
    subscribed = sent("resources/subscribe")
    stage.restart_agent()
    wait_until(lambda: sent("resources/subscribe") == subscribed + 1, 20, "it is renewed")
    os.kill(stage.backend_pid("fixture.mjs"), signal.SIGUSR1)
    wait_until(lambda: all(listener.count(updated) > count for listener, count in zip(asking, before)), 20,
               "the streams have outlived the agent")

    for listener in asking[:-1]:
        listener.client.request("resources/unsubscribe", {"uri": WATCHED})
    assert sent("resources/unsubscribe") == 0, "one is left who wants it"
    asking[-1].client.request("resources/unsubscribe", {"uri": WATCHED})
    wait_until(lambda: sent("resources/unsubscribe") == 1, 20, "the last one ends it")


def test_a_call_without_a_stream_is_asked_on_the_sessions_own(stage, fixture_command):
    stage.start_control_plane()
    stage.start_agent(*fixture_command, "--legacy-only", name="fixture")
    client = McpClient(stage.port, "/mcp/fixture")
    client.request("initialize", {"protocolVersion": REVISION, "capabilities": {"elicitation": {}},
                                  "clientInfo": {"name": "one-stream", "version": "1"}})
    client.notify("notifications/initialized", {})

    def answer(event):
        message = json.loads(event.data) if event.data else {}
        if message.get("method") == "elicitation/create":
            client.post({"jsonrpc": "2.0", "id": message["id"],
                         "result": {"action": "accept", "content": {"response": "blue"}}})

    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": "test_elicitation", "arguments": {"message": "Colour?"}}}
    with connection_closed(client.listen(answer)):
        plain = client._headers() | {"Content-Type": "application/json", "Accept": "application/json"}
        connection, response = client._open("POST", json.dumps(call), plain, 30)
        with connection_closed(connection):
            assert response.headers["Content-Type"] == "application/json"
            told = json.loads(response.read())
    assert told["result"]["content"][0]["text"] == 'User response: action=accept, content={"response":"blue"}'
