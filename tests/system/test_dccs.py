"""Several real DCCs on one agent, and mixed calls from many clients that each reach the right one."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

import dccs
from conftest import need, need_full
from dccs import Dccs

LIGHT = ["openusd", "openscad"]
CALLS, CLIENTS = 200, 8


def start_all(stage, names):
    """{name: row of list_instances}, all ready."""
    stage.start_control_plane()
    many = Dccs(stage)
    many.start_agent()
    client = stage.client("/mcp")
    try:
        for name in names:
            many.start(name)
    except dccs.NotInstalled as error:
        need(str(error))
    rows = {}
    for name in names:
        row, _ = many.wait_for_row(name)
        rows[name] = dccs.wait_ready(client, row["pid"])
    return many, client, rows


@pytest.mark.parametrize("names", [LIGHT, [*LIGHT, "blender", "blender-debian"]],
                         ids=["light", "full"])
def test_mixed_calls_of_many_clients_each_reach_the_right_dcc(stage, names):
    if names != LIGHT:
        need_full("Blender 3.4 and 5 beside OpenUSD and OpenSCAD")
    many, client, rows = start_all(stage, names)
    assert len({row["seat_id"] for row in rows.values()}) == len(names)
    usda = str(many.project / "mixed.usda")
    wanted = {}  # name: (slug, arguments, what only its answer says)
    for name, row in rows.items():
        if name == "openusd":
            dccs.load(client, row["instance"], "openusd-stage")
            made = client.call("call_tool", {"tool_slug": dccs.slug_of(client, row, "create_stage"),
                                             "arguments": {"stage_file": usda}})
            assert not made.failed, made.text
            wanted[name] = dccs.slug_of(client, row, "list_stage"), {"stage_file": usda}, "mixed.usda"
        elif name == "openscad":
            dccs.load(client, row["instance"], "openscad-pipeline")
            wanted[name] = dccs.slug_of(client, row, "get_status"), {}, "openscad"
        else:
            dccs.load(client, row["instance"], "blender-scene")
            version = {"blender": "5.0.1", "blender-debian": "3.4.1"}[name]
            wanted[name] = dccs.slug_of(client, row, "get_session_info"), {}, version

    # OpenSCAD starts a program for each call, so it gets fewer of them.
    order = ["openscad"] * 12
    others = [name for name in names if name != "openscad"]
    order += [others[i % len(others)] for i in range(CALLS - len(order))]
    random.Random(1).shuffle(order)

    def work(share):
        own = stage.client("/mcp")
        wrong = []
        for name in share:
            slug, arguments, mark = wanted[name]
            answer = own.call("call_tool", {"tool_slug": slug, "arguments": arguments}, timeout=110)
            if answer.failed or mark not in answer.text.lower():
                wrong.append((name, answer.text[:300]))
        own.delete()
        return wrong

    with ThreadPoolExecutor(CLIENTS) as pool:
        shares = [order[i::CLIENTS] for i in range(CLIENTS)]
        wrong = [entry for found in pool.map(work, shares) for entry in found]
    assert not wrong, (len(wrong), wrong[:5])
