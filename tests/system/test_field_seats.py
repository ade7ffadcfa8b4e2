"""Field cases about what backends offer and how they behave: stuck, busy, chatty, paged, moved; a test's name begins with the id of its case."""

import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import ThreadingHTTPServer

import pytest

from conftest import FULL
from counting_server import Server
from plain_http import PlainHandler
from stage import COUNTING_SERVER, command_line, descendants, wait_until
from test_facade_bytes import raw_result
from test_field_agents import instances, start_agent
from test_field_streams import raw_call
from test_parked_asks import SCRIPTED_SERVER, received, rewrite, start_scripted
from test_selected_tools import selected


def timed(action, *arguments):
    """(what it returned, seconds)"""
    started = time.monotonic()
    return action(*arguments), time.monotonic() - started


def plain_tool(name):
    return json.dumps({"name": name, "inputSchema": {"type": "object"}})


def answered(text):
    return json.dumps({"content": [{"type": "text", "text": text}]})


# ---- FC-09 -------------------------------------------------------------------------------------


@pytest.fixture
def deaf_port():
    """A socket that takes connections, and never says a byte."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as deaf:
        yield deaf


def child_of(program):
    return next((pid for pid in descendants(program.pid) if "scripted_server" in command_line(pid)), 0)


def stuck_on_stdio(stage):
    """A seat whose tools are known, and whose next process never answers initialize."""
    well = {"tools/list": f'{{"tools":[{plain_tool("scale")}]}}', "tools/call scale": answered("scaled")}
    rewrite(stage, well)
    agent = start_agent(stage, "stuck", sys.executable, SCRIPTED_SERVER, stage.folder / "script.json", "--log",
                        stage.folder / "wire.log")
    stage.wait_for_seats(2)
    rewrite(stage, well | {"initialize": None})
    os.kill(child_of(agent), signal.SIGKILL)
    wait_until(lambda: len(received(stage, "initialize")) == 2, 20, "the next process is asked")

    def mend():
        rewrite(stage, well)
        os.kill(child_of(agent), signal.SIGKILL)

    return agent, mend


def stuck_on_http(stage, deaf):
    port = deaf.getsockname()[1]
    agent = start_agent(stage, "stuck", f"http://127.0.0.1:{port}/mcp")

    def mend():
        deaf.close()
        server = stage.start([sys.executable, COUNTING_SERVER, "--file", stage.folder / "mended.txt", "--http", port],
                             "mended")
        server.wait_for("/mcp")

    return agent, mend


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_fc_09_a_backend_that_never_finishes_initialize_costs_its_callers_the_budget_and_others_nothing(
        stage, deaf_port, transport):
    stage.start_control_plane(budgets__queue="2s")
    stage.start_agent()
    agent, mend = stuck_on_stdio(stage) if transport == "stdio" else stuck_on_http(stage, deaf_port)
    facade, took = timed(stage.client, "/mcp")
    assert took < 1, "initialize"
    wait_until(lambda: instances(facade).get("stuck", {}).get("status") not in (None, "available"), 20,
               "the stuck seat is shown as not available", step=0.1)
    tools, took = timed(facade.tools)
    assert took < 1 and "call_tool" in {tool["name"] for tool in tools}
    hits, took = timed(facade.call, "search_tools", {"query": "echo"})
    assert took < 1
    assert {hit["instance"] for hit in hits.result["structuredContent"]["hits"]} == {"counting"}
    listed, took = timed(stage.client(selected("*.*.*")).tools)
    assert took < 1 and any(tool["name"].endswith("__echo") for tool in listed)

    client, took = timed(stage.client, "/mcp/stuck")
    assert took < 1, "initialize of the seat itself"
    call = client.start_call("scale", timeout=30)
    other = stage.client().call("echo", {"text": "well"})
    assert other.text == "well" and other.seconds < 1
    answer = call.result(30)
    assert answer.failed and answer.seconds < 4, answer.text
    assert answer.error["data"]["certainty"] == "not_started"
    assert answer.error["data"]["reason"] == "queue_budget_spent", answer.error
    wait_until(lambda: instances(facade)["stuck"]["status"] in ("starting", "unresponsive"), 10,
               "what waits for it is over")
    assert agent.running
    if FULL and transport == "stdio":
        stuck = child_of(agent)
        wait_until(lambda: child_of(agent) not in (0, stuck), 60, "its process is ended and started again", step=0.2)
    mend()
    stage.wait_for_seats(2, 40)
    tool, arguments, text = (("scale", {}, "scaled") if transport == "stdio" else ("echo", {"text": "there"}, "there"))
    assert stage.client("/mcp/stuck").call(tool, arguments).text == text


# ---- FC-21 -------------------------------------------------------------------------------------

RICH = ('{"x-first":1.0,"name":"scale","title":"Scale","description":"Scales a scene",'
        '"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":'
        '{"z":{"$ref":"#/$defs/node"},"a":{"type":"number","default":1.50},"m":{"$ref":"#/$defs/vector"}},'
        '"$defs":{"vector":{"type":"array","items":{"type":"number"}},"node":{"type":"object","properties":'
        '{"children":{"type":"array","items":{"$ref":"#/$defs/node"}}}}}},'
        '"outputSchema":{"type":"object","properties":{"z":{"type":"number"},"a":{},"m":{"$ref":"#/$defs/m"}},'
        '"$defs":{"m":{"type":"object"}}},'
        '"annotations":{"title":"S","readOnlyHint":true,"x-note":"kept"},'
        '"icons":[{"src":"data:image/png;base64,AAAA","mimeType":"image/png","sizes":["48x48"]}],'
        '"_meta":{"studio.example/cost":12345678901234567890},"x-vendor":{"z":1e3,"a":null,"m":[0.10,"\\u00e9"]}}')
DANGLING = ('{"name":"dangling","inputSchema":{"type":"object","properties":{"z":{"$ref":"#/$defs/nowhere"},'
            '"a":{"$ref":"https://elsewhere.example/schema.json#/x"}}}}')
STRUCTURED = '"structuredContent":{"z":1.0,"a":12345678901234567890,"m":{"b":1,"a":2}}'
CONTENT = '"content":[{"text":"done","type":"text","annotations":{"audience":["user"],"priority":0.50,"x":1}}]'
META = '"_meta":{"studio.example/took":0.10}'
RESULT = f'{{{STRUCTURED},{CONTENT},{META},"x-vendor":[1e0]}}'
FC_21_TOOLS = [plain_tool("first"), DANGLING, RICH, plain_tool("last")]


@pytest.fixture
def rich(stage):
    stage.start_control_plane()
    start_scripted(stage, {
        "tools/list": f'{{"tools":[{",".join(FC_21_TOOLS)}]}}', "tools/call scale": RESULT,
        "tools/call dangling": answered("dangling ran"), "tools/call first": answered("first ran"),
        "tools/call last": answered("last ran")})
    return stage


def test_fc_21_members_that_nobody_knows_pass_as_they_were_written(rich):
    client = rich.client("/mcp/scripted")
    assert ",".join(FC_21_TOOLS).encode() in raw_result(client, None, {}), "the list"
    arguments = {"z": {"children": []}, "a": 2, "m": [1]}
    assert f'"result":{RESULT}'.encode() in raw_result(client, "scale", arguments), "a result"

    facade = rich.client("/mcp")
    hits = facade.call("search_tools", {"query": "scale"}).result["structuredContent"]["hits"]
    slug = next(hit["slug"] for hit in hits if hit["slug"].endswith(".scale"))
    described = raw_result(facade, "describe_tool", {"tool_slug": slug}).decode()
    schema = RICH[RICH.index('{"$schema"'):RICH.index(',"outputSchema"')]
    assert schema in described, "a description has the schema as it is"
    called = raw_result(facade, "call_tool", {"tool_slug": slug, "arguments": arguments}).decode()
    for part in (STRUCTURED, CONTENT, META[9:-1], '"x-vendor":[1e0]'):
        assert part in called


def test_fc_21_a_tool_whose_schema_refers_to_nothing_hides_no_other(rich):
    client = rich.client("/mcp/scripted")
    assert [tool["name"] for tool in client.tools()] == ["first", "dangling", "scale", "last"]
    facade = rich.client("/mcp")
    rows = instances(facade)
    assert rows["scripted"]["status"] == "available" and "reason" not in rows["scripted"]
    found = facade.call("search_tools", {"instance": "scripted"}).result["structuredContent"]["hits"]
    slugs = {hit["slug"].rpartition(".")[2]: hit["slug"] for hit in found}
    assert {"first", "dangling", "scale", "last"} == set(slugs)
    listed = rich.client(selected("scripted")).tools()
    assert sorted(tool["name"].rpartition("__")[2] for tool in listed) == ["dangling", "first", "last", "scale"]
    for name in ("first", "last", "dangling"):
        arguments = {"z": 1, "a": [2]} if name == "dangling" else {}
        assert client.call(name, arguments).text == f"{name} ran"
        answer = facade.call("call_tool", {"tool_slug": slugs[name], "arguments": arguments})
        assert answer.text.startswith(f"{name} ran")
        assert received(rich, "tools/call")[-1]["params"]["arguments"] == arguments
    described = facade.call("describe_tool", {"tool_slug": slugs["dangling"]})
    assert "#/$defs/nowhere" in described.text


# ---- FC-22 -------------------------------------------------------------------------------------


def progress(token, step):
    member = "" if token is None else f'"progressToken":{token},'
    return {"say": f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{member}"progress":{step}}}}}'}


def test_fc_22_progress_that_nobody_asked_for_reaches_nobody(stage):
    """A backend that tells progress without a token, under one that is not the call's, and after its answer."""
    stage.start_control_plane()
    strange = ["$id", "0", '""', '"$id"', None]
    told_by_all = {"say": '{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}'}
    start_scripted(stage, {
        "tools/list": f'{{"tools":[{plain_tool("talks")},{plain_tool("slow")}]}}',
        "tools/call talks": [*(progress(token, step) for step in (1, 2, 3) for token in strange),
                             {"result": answered("talked")}, *(progress(token, 4) for token in strange)],
        "tools/call slow": [progress("$token", 1), *(progress(token, 70) for token in strange if "$id" not in str(token)),
                            progress("$token", 2), progress("$token", 3), {"result": answered("slow")},
                            progress("$token", 4)],
        "tools/call ends": [told_by_all, {"result": answered("ended")}]})
    client, neighbour = stage.client("/mcp/scripted"), stage.client("/mcp/scripted")
    heard = {client: [], neighbour: []}
    for who, messages in heard.items():
        who.listen(lambda event, into=messages: into.append(event.data) if event.type in ("", "message") else None)
    for number in range(3):
        answer = raw_call(stage, client, number, "talks", {})
        assert b"notifications/progress" not in answer and answer.count(b"talked") == 1
    answer = raw_call(stage, client, 7, "slow", {}, progress=True)
    lines = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
    assert [line["params"] for line in lines[:-1]] == [{"progressToken": "t7", "progress": n} for n in (1, 2, 3)]
    assert lines[-1]["id"] == 7 and "result" in lines[-1], "no progress after the answer"
    # What comes on the pipe after all that reaches everybody, and is the first to do so.
    assert client.call("ends").text == "ended"
    for who, messages in heard.items():
        wait_until(lambda now=messages: any("prompts/list_changed" in text for text in now), 20, "the notice")
        assert not any("notifications/progress" in text for text in messages), messages


# ---- FC-23 -------------------------------------------------------------------------------------


def pages(names, size, last=None):
    """The script of a list in pages; `last` is what the last page names as the next."""
    script = {}
    for start in range(0, len(names), size):
        more = start + size < len(names)
        cursor = str(start + size) if more else last
        page = ",".join(map(plain_tool, names[start:start + size]))
        end = f',"nextCursor":"{cursor}"' if cursor else ""
        script[f"tools/list {start}" if start else "tools/list"] = f'{{"tools":[{page}]{end}}}'
    return script


def test_fc_23_all_pages_of_a_backend_are_known_and_the_gateways_own_lead_on(stage):
    names = [f"tool{n:03}" for n in range(300)]
    stage.start_control_plane(tools__selected_max="1000")
    start_scripted(stage, pages(names, 8) | {"tools/call tool299": answered("the last one ran")})
    client = stage.client("/mcp/scripted")
    assert [tool["name"] for tool in client.tools()] == names
    assert client.call("tool299").text == "the last one ran"
    facade = stage.client("/mcp")
    assert instances(facade)["scripted"]["tools"] == 300
    hits = facade.call("search_tools", {"query": "tool299"}).result["structuredContent"]["hits"]
    assert hits[0]["slug"].endswith(".tool299")
    # A surface that pages: each of its cursors leads to the next page, and the last page has none.
    chosen = stage.client(selected("scripted"))
    found, cursors, cursor = [], [], None
    while cursor or not cursors:
        page = chosen.request("tools/list", {"cursor": cursor} if cursor else {}).result
        found += [tool["name"].rpartition("__")[2] for tool in page["tools"]]
        cursor = page.get("nextCursor")
        assert cursor not in cursors, "a cursor that comes again"
        cursors.append(cursor)
    assert found == names and len(cursors) > 2


def test_fc_23_the_fourteen_tools_of_the_case_and_the_list_without_an_end(stage):
    names = [f"t{n:02}" for n in range(14)]
    stage.start_control_plane()
    start_scripted(stage, pages(names, 8))
    client = stage.client("/mcp/scripted")
    assert [tool["name"] for tool in client.tools()] == names
    assert "nextCursor" not in client.request("tools/list", {}).result
    assert "tool_list_faulty" not in stage.agent.output()

    # The second page names itself as the next.
    rewrite(stage, pages(names, 8, last="8"))
    stage.agent.wait_for("warn tool_list_faulty ")
    facade = stage.client("/mcp")
    row = wait_until(lambda: (row := instances(facade)["scripted"]).get("reason") and row, 10, "the reason is shown")
    assert "of its list of tools only the first 14 are taken" in row["reason"]
    assert [tool["name"] for tool in client.tools()] == names, "the first pages are used"
    asked = [request.get("params") or {} for request in received(stage, "tools/list")]
    cursors = [params.get("cursor") for params in asked]
    assert cursors[:len(cursors) // 2 * 2] == [None, "8"] * (len(cursors) // 2), "no page is asked for twice"
    assert stage.agent.output().count("tool_list_faulty") == 1


# ---- FC-26 -------------------------------------------------------------------------------------


class Redirecting:
    """A counting server at /mcp, and paths that lead there, or elsewhere; what was asked of it."""

    def __init__(self, stage, elsewhere=None):
        self.asked = []  # (path, method, body)
        server, asked = Server(stage.folder / "redirected.txt"), self.asked
        hops = {"/307": (307, "/mcp"), "/308": (308, "/mcp"), "/slash": (307, "/slash/"), "/slash/": (308, "/mcp"),
                "/three": (307, "/two"), "/two": (308, "/one"), "/one": (307, "/mcp"), "/four": (307, "/three"),
                "/301": (301, "/mcp"), "/302": (302, "/mcp"), "/303": (303, "/mcp"), "/loop": (307, "/loop"),
                "/away307": (307, elsewhere), "/away308": (308, elsewhere)}

        class Handler(PlainHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked.append((self.path, self.command, body))
                if self.path in hops:
                    status, where = hops[self.path]
                    return self.plain(status, b"", Location=where)
                if self.path != "/mcp" or self.command != "POST":
                    return self.plain(405)
                message = json.loads(body)
                if "id" not in message:
                    return self.plain(202)
                answer = json.dumps(server.answer(message, lambda _note: None)).encode()
                return self.plain(200, answer, Content_Type="application/json")

            do_GET = do_DELETE = do_POST

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        stage.on_close(self._server.shutdown)


@pytest.mark.parametrize("path", ["/307", "/308", "/slash", "/three"])
def test_fc_26_an_agent_follows_its_backend_within_the_origin_with_method_and_body(stage, path):
    stage.start_control_plane()
    backend = Redirecting(stage)
    stage.start_agent(backend.url + path)
    assert stage.client().call("echo", {"text": "found"}).text == "found"
    calls = [body for where, method, body in backend.asked if where == "/mcp" and b'"tools/call"' in body]
    assert len(calls) == 1 and json.loads(calls[0])["params"]["arguments"] == {"text": "found"}
    assert {method for where, method, body in backend.asked if body} == {"POST"}, "the method stays"


def test_fc_26_an_agent_follows_no_redirect_elsewhere_none_for_ever_and_none_that_changes_the_method(stage):
    stage.start_control_plane()
    elsewhere = Redirecting(stage)
    backend = Redirecting(stage, elsewhere.url + "/mcp")
    paths = ["301", "302", "303", "four", "loop", "away307", "away308"]
    for path in paths:
        start_agent(stage, f"r-{path}", f"{backend.url}/{path}")
    facade = stage.client("/mcp")

    def told():
        rows = instances(facade)
        return all("redirect" in rows.get(f"r-{path}", {}).get("reason", "") for path in paths) and rows

    rows = wait_until(told, 20, "each says why it is not there", step=0.1)
    for path in paths:
        assert rows[f"r-{path}"]["status"] != "available", rows
    assert elsewhere.asked == [], "another origin hears nothing of it"
    assert [request for request in backend.asked if request[0] == "/mcp"] == []
    hops = [where for where, _, _ in backend.asked]
    begun = hops.count("/four")
    assert hops.count("/three") <= begun and hops.count("/one") <= begun
    assert stage.live_seats() == 0 or all(row["status"] != "available" for row in rows.values())


# ---- FC-34 -------------------------------------------------------------------------------------


def test_fc_34_an_application_whose_main_thread_is_busy_stays_and_answers_what_needs_it_not(stage):
    """Busy for 120 s in the full tier, for 3 s else."""
    seconds = 120 if FULL else 3
    stage.start_control_plane(budgets__heavy_call="300s")
    stage.start_agent()
    client, facade, other = stage.client(), stage.client("/mcp"), stage.client()
    gate = stage.folder / "gate"
    # One gate is waited for for 60 s at most.
    gates = [{"id": f"block{n}", "gate": str(gate)} for n in range(1 + seconds // 60)]
    started = time.monotonic()
    blocking = [client.start_call("count", gates[0], timeout=300)]
    stage.wait_begun("block0")
    blocking += [client.start_call("count", more, timeout=300) for more in gates[1:]]
    second = other.start_call("count", {"id": "second"}, progress=True, timeout=300)
    note = wait_until(lambda: list(second.answer.notifications), 1 + 2, "the second call is told its place")[0]
    assert "count" in note["params"]["message"], note
    rounds, worst = 0, {}
    while time.monotonic() < started + seconds:
        for what, action in {
                "tools/list": other.tools, "ping": lambda: other.request("ping", {}),
                "a method without the main thread": lambda: other.request("resources/list", {}),
                "the facade": lambda: facade.call("search_tools", {"query": "count"}),
                "status": lambda: instances(facade)}.items():
            found, took = timed(action)
            worst[what] = max(worst.get(what, 0), took)
        row = found["counting"]
        assert row["status"] == "busy" and row["running"][0]["tool"] == "count", row
        assert stage.live_seats() == 1
        rounds += 1
        time.sleep(0.2)
    elapsed = instances(facade)["counting"]["running"][0]["elapsed_ms"]
    assert elapsed >= min(seconds, 55) * 1000 * 0.9, "its age is told"
    print(f"{rounds} rounds, slowest: " + ", ".join(f"{what} {took * 1000:.0f} ms" for what, took in worst.items()))
    assert max(worst.values()) < 1
    assert stage.begun("second") == 0 and not second.done()
    gate.touch()
    assert [call.result(60).text for call in blocking] == [f"counted {wanted['id']}" for wanted in gates]
    answer = second.result(60)
    assert answer.text == "counted second" and answer.resumes == 0
    assert "link_down" not in stage.agent.output()
