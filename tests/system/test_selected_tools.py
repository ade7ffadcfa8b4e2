"""/mcp?tools=: tools of many seats under names of their own, through real binaries."""

import json
import re
import signal
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from mcp_http import McpClient, Refused
from stage import BINARIES, SHARED, wait_until
from test_clients import CLIENTS, client_command, run_to_end, values  # noqa: F401

NAMES_SERVER = Path(__file__).with_name("names_server.py")
LEGAL = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")
LONG = "y" * 69
# The tools of FC-24 by backend; the case has them as data, too.
FC_24 = {
    "maya-a": ("maya", ["create_sphere"]),
    "maya-b": ("maya", ["create_sphere"]),
    "houdini-a": ("houdini", ["x" * 60, LONG + "1", LONG + "2"]),
    "blender-a": ("blender", ["mesh.add cube", "mesh_add_cube", "Kübel"]),
}


def definition(name):
    return {"inputSchema": {"type": "object"}, "name": name, "annotations": {"readOnlyHint": False},
            "outputSchema": {"type": "object"}, "_meta": {"dcc": {"big": 9007199254740993}}, "x": 1.5}


def start_backends(stage, backends):
    """backends: {label: (its DCC, names of its tools)}; their tools stand in LABEL.json."""
    for label, (_, tools) in backends.items():
        write_tools(stage, label, tools)
    stage.start_registry_agent(
        list(backends), apps={label: app for label, (app, _) in backends.items()},
        command=lambda label: [sys.executable, NAMES_SERVER, label, stage.folder / f"{label}.json", 0])


def write_tools(stage, label, tools):
    (stage.folder / f"{label}.json").write_text(json.dumps([definition(name) for name in tools]))


def selected(selectors):
    return "/mcp?tools=" + quote(selectors)


def reached(answer):
    """(backend, the name it was called by)."""
    label, _, tool = answer.result["content"][0]["text"].partition(" ran ")
    return label, tool


def test_fc_24_long_and_colliding_names(stage):
    """Names are legal, distinct and stable, and each call reaches its own instance and original name."""
    stage.start_control_plane()
    start_backends(stage, FC_24)
    url = selected("maya,houdini,blender")
    client = stage.client(url)
    tools = client.tools()
    names = [tool["name"] for tool in tools]
    assert len(set(names)) == 8 and all(map(LEGAL.match, names)) and max(map(len, names)) <= 48
    assert names == sorted(names)
    expected = definition("")
    for tool in tools:
        origin = tool["_meta"].pop("callboard/origin")
        assert tool | {"name": ""} == expected, "nothing else is ours but the name"
        assert list(tool) == list(expected)
        assert origin["instance"][:8] in tool["name"]
        assert origin["tool"] in [name for _, names in FC_24.values() for name in names]

    origins = {name: reached(client.call(name, {"n": 1})) for name in names}
    assert sorted(origins.values()) == sorted(
        (label, tool) for label, (_, tools) in FC_24.items() for tool in tools)
    again = client.call(names[0], {"n": 9007199254740993})
    assert again.result["structuredContent"] == {"n": 9007199254740993}
    assert again.result["content"][1]["type"] == "resource_link"

    # A killed control plane and a new agent that finds its backends the other way round.
    registry = stage.folder / "registry" / "services.json"
    stage.agent.kill()
    stage.control_plane.kill()
    registry.write_text(json.dumps(json.loads(registry.read_text())[::-1]))
    stage.restart_control_plane()
    stage.restart_agent(wait=False)
    stage.wait_for_seats(4)
    assert [tool["name"] for tool in client.tools()] == names, "the session is the same, too"
    assert {name: reached(stage.client(url).call(name)) for name in names} == origins


def test_fc_24_the_tools_are_those_of_the_case():
    file = SHARED / "field-cases" / "cases" / "fc-24-long-and-colliding-names.json"
    if not file.exists():
        pytest.skip("field cases (FC-24): there is no ../shared/field-cases")
    data = json.loads(file.read_text())["data"]
    named = [(tool["instance"].split(".")[0], tool["name"]) for tool in data["tools"]]
    assert sorted(named) == sorted((app, name) for app, tools in FC_24.values() for name in tools)
    assert data["limit"] == 64


def test_a_seat_that_goes_and_comes_is_told_and_named(stage):
    stage.start_control_plane()
    start_backends(stage, {"maya-a": ("maya", ["bake"]), "usd-a": ("usd", ["open"])})
    client = stage.client(selected("*.*.*"))
    bake, opened = (tool["name"] for tool in client.tools())
    changes = listen(stage, client)
    rows = stage.folder / "registry" / "services.json"
    both = rows.read_text()
    rows.write_text(json.dumps([row for row in json.loads(both) if row["dcc_type"] == "usd"]))
    wait_until(lambda: len(changes) == 1, 20, "list_changed is told once")
    assert [tool["name"] for tool in client.tools()] == [opened]
    gone = client.call(bake).message["error"]
    assert gone["code"] == -32000 and gone["data"]["certainty"] == "not_started"
    assert gone["data"]["reason"] in ("seat_offline", "seat_unknown"), gone
    assert "maya" in gone["message"], gone
    assert reached(client.call(opened)) == ("usd-a", "open"), "the other is none the worse"
    rows.write_text(both)
    wait_until(lambda: len(changes) == 2, 20, "it is told that the seat is back")
    assert [tool["name"] for tool in client.tools()] == [bake, opened]
    assert reached(client.call(bake)) == ("maya-a", "bake")
    never = client.call("maya_00000000__bake").message["error"]
    assert never["code"] == -32602 and never["data"]["reason"] == "tool_unknown"


def listen(stage, client):
    """The list_changed notifications that come on the session's own stream from now on."""
    changes, opened = [], threading.Event()

    def hear(event):
        opened.set()
        if "tools/list_changed" in event.data:
            changes.append(event)

    stage.on_stop(client.listen(hear).close)
    assert opened.wait(10)
    return changes


def test_the_selection_is_the_sessions_and_bad_ones_are_told(stage):
    stage.start_control_plane()
    stage.start_agent()
    for query, says in (("", "selector '' is empty"), ("maya..x", "has a dot and no instance"),
                        ("%FF", "UTF-8"), ("pinned", "tools.pinned"), ("a," * 70, "is empty")):
        with pytest.raises(Refused) as refused:
            McpClient(stage.port, f"/mcp?tools={query}").initialize()
        status, body = refused.value.status, refused.value.body
        assert status == 400, query
        assert says in json.loads(body)["error"]["message"]
    client = stage.client("/mcp?tools=*.counting.e*")
    (echo,) = [tool["name"] for tool in client.tools()]
    assert client.call(echo, {"text": "hi"}).text == "hi"
    client.path = "/mcp"
    assert client.call(echo, {"text": "the session knows"}).text == "the session knows"
    client.path = "/mcp?tools=usd"
    with pytest.raises(Refused) as refused:
        client.tools()
    assert refused.value.status == 404 and "tools=*.counting.e*" in refused.value.body

    # Any bridge can serve any session, and has the same names.
    bridge = stage.start_bridge()
    client.path, client.port = "/mcp?tools=*.counting.e*", bridge.port
    assert [tool["name"] for tool in client.tools()] == [echo]
    assert client.call(echo, {"text": "there"}).text == "there"
    assert client.delete() == 200
    client.port = stage.port
    wait_until(lambda: not alive(client), 10, "the session is over everywhere")


def alive(client):
    try:
        client.tools()
        return True
    except Refused as refused:
        assert refused.status == 404
        return False


def test_many_tools_come_in_pages(stage):
    stage.start_control_plane(tools__selected_max=1000)
    start_backends(stage, {"big": ("big", [f"tool_{number:04d}" for number in range(1_100)])})
    client = stage.client(selected("big"))
    first = client.request("tools/list", {}).result
    assert len(first["tools"]) == 128 and first["_meta"] == {"callboard/left_out": 100}
    tools = client.tools()
    assert len(tools) == 1_000 == len({tool["name"] for tool in tools})
    assert client.request("tools/list", {"cursor": "x"}).message["error"]["code"] == -32602
    assert reached(client.call(tools[-1]["name"])) == ("big", "tool_0999")


def test_pinned_tools_follow_the_configuration(stage):
    config = stage.folder / "callboardd.toml"
    config.write_text('[tools]\npinned = "*.*.echo"\n')
    plane = stage.start([BINARIES / "callboardd", "--config", config, "--state-dir",
                         stage.folder / "callboardd", "--port", "0", "--grpc-port", "0"], "callboardd")
    plane.wait_for("callboardd ready")
    ports = plane.output().split("callboardd ready ")[1].split()
    stage.port, stage.grpc_port = (int(part.rsplit(":", 1)[1]) for part in ports[:2])
    stage.start_agent()
    client = stage.client("/mcp?tools=pinned")
    assert [tool["name"].rpartition("__")[2] for tool in client.tools()] == ["echo"]
    changes = listen(stage, client)
    config.write_text('[tools]\npinned = "*.*.big,*.*.progress"\n')
    plane.signal(signal.SIGHUP)
    wait_until(lambda: len(changes) == 1, 10, "the session is told")
    assert "settings_reloaded" in plane.output()
    assert [tool["name"].rpartition("__")[2] for tool in client.tools()] == ["big", "progress"]
    before = len(plane.output())
    config.write_text('[tools]\npinned = "maya..x"\n')
    plane.signal(signal.SIGHUP)
    wait_until(lambda: "settings_not_reloaded" in plane.output()[before:], 10, "the fault is told")
    wait_until(lambda: "'maya..x' has a dot and no instance" in plane.output()[before:], 5, "which")
    assert len(client.tools()) == 2


def test_an_official_client_calls_by_name_with_progress(stage, client_command):  # noqa: F811
    stage.start_control_plane()
    stage.start_agent()
    path = "/mcp?tools=*.*.progress"
    (tool,) = stage.client(path).tools()
    program = stage.start([*client_command, f"http://127.0.0.1:{stage.port}{path}", "call", tool["name"],
                           '{"steps": 5, "ms": 100}'], "client")
    run_to_end(program)
    assert values(program, "progress") == [1, 2, 3, 4, 5]
    assert values(program, "result") == ["5 steps"]


def test_the_official_python_client_follows_the_list(stage):
    stage.start_control_plane()
    start_backends(stage, {"maya-a": ("maya", ["bake", "mesh.add cube"]), "usd-a": ("usd", ["open"])})
    rows = stage.folder / "registry" / "services.json"
    both = rows.read_text()
    one = json.dumps([row for row in json.loads(both) if row["dcc_type"] == "maya"])
    rows.write_text(one)
    wait_until(lambda: stage.live_seats() == 1, 15, "the other seat has gone")
    program = stage.start([sys.executable, CLIENTS / "selected.py",
                           f"http://127.0.0.1:{stage.port}{selected('maya.*.*cube,usd')}"], "client")
    wait_until(lambda: values(program, "ran"), 20, "the first list is called through")
    assert values(program, "ran") == [["maya-a ran mesh.add cube"]]
    # Again and again, as nobody tells when its own stream is open.
    for text in [both, one] * 4:
        rows.write_text(text)
        until = time.monotonic() + 5
        while program.running and time.monotonic() < until:
            time.sleep(0.05)
    run_to_end(program)
    assert values(program, "ran")[-1] == ["maya-a ran mesh.add cube", "usd-a ran open"]
