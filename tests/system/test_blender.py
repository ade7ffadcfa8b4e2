"""Blender 5 and 3.4 behind Callboard: real work by the official client, a long render seen by others, a cancel in the queue, a crash and a restart."""

import signal
import struct
import time

import anyio
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

import dccs
from conftest import need, need_full
from dccs import Dccs
from stage import wait_until

SETTINGS = """
import bpy
scene = bpy.context.scene
scene.render.engine = "CYCLES"
scene.cycles.samples = {samples}
scene.cycles.use_denoising = False
scene.cycles.time_limit = {seconds}
scene.render.threads_mode = "FIXED"
scene.render.threads = 1
scene.render.resolution_x, scene.render.resolution_y = {width}, {height}
scene.render.resolution_percentage = 100
scene.render.image_settings.file_format = "PNG"
"""


class Blender:
    """A Blender on one stage, with the skills of these tests loaded."""

    def __init__(self, stage, name="blender"):
        self.stage = stage
        self.name = name
        stage.start_control_plane()
        self.dccs = Dccs(stage)
        self.dccs.start_agent()
        self.client = stage.client("/mcp")
        try:
            self.dccs.start(name)
        except dccs.NotInstalled as error:
            need(str(error))
        row, _ = self.dccs.wait_for_row(name)
        self.row = dccs.wait_ready(self.client, row["pid"])
        for skill in ("blender-scene", "blender-objects", "blender-render", "blender-interchange",
                      "blender-scripting"):
            dccs.load(self.client, self.row["instance"], skill)

    @property
    def pid(self):
        return self.dccs.programs[self.name].pid

    def arguments(self, tool, arguments):
        slug = f"{self.row['app']}.{self.row['seat_id'][:8]}.{tool}"
        return {"tool_slug": slug, "arguments": arguments}

    def call(self, tool, arguments=None, **options):
        return self.client.call("call_tool", self.arguments(tool, arguments or {}), **options)

    def start_call(self, tool, arguments=None, **options):
        return self.client.start_call("call_tool", self.arguments(tool, arguments or {}), **options)

    def settings(self, **values):
        answer = self.call("execute_python", {"code": SETTINGS.format(**values)})
        assert not answer.failed, answer.text

    def objects(self):
        answer = self.call("list_objects", timeout=60)
        assert not answer.failed, answer.text
        return answer.text

    def now(self):
        return dccs.instance_of(self.client, self.pid)

    def render_long(self, seconds):
        """Starts a render of about so many seconds; returns its future once the seat is at work."""
        self.settings(samples=1_000_000, seconds=seconds, width=640, height=360)
        target = self.dccs.project / "long.png"
        future = self.start_call("render_scene", {"output_path": str(target)}, timeout=110)
        wait_until(lambda: (self.now() or {}).get("running"), 5, "list_instances shows the render")
        return future


@pytest.fixture
def blender(stage):
    need_full("Blender 5")
    return Blender(stage)


@pytest.mark.parametrize("through", ["facade", "instance"])
def test_official_client_creates_lists_renders_and_exports(blender, through):
    blender.settings(samples=4, seconds=20, width=200, height=120)
    project = blender.dccs.project
    path = "/mcp" if through == "facade" else f"/mcp/{blender.row['seat_id']}"

    async def work():
        url = f"http://127.0.0.1:{blender.stage.port}{path}"
        async with streamablehttp_client(url) as (read, write, _):
            async with ClientSession(read, write) as session:
                await session.initialize()

                async def run(tool, arguments):
                    if through == "facade":
                        tool, arguments = "call_tool", blender.arguments(tool, arguments)
                    result = await session.call_tool(tool, arguments)
                    text = "\n".join(getattr(block, "text", "") for block in result.content)
                    assert not result.isError, text
                    return text

                await run("create_object", {"object_type": "torus", "name": "Ring"})
                assert "Ring" in await run("list_objects", {})
                await run("render_scene", {"output_path": str(project / "ring.png")})
                await run("export_gltf", {"path": str(project / "ring.glb")})
                await run("export_usd", {"path": str(project / "ring.usda")})

    anyio.run(work)
    png = (project / "ring.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (200, 120)
    glb = (project / "ring.glb").read_bytes()
    assert glb[:4] == b"glTF" and struct.unpack("<I", glb[8:12])[0] == len(glb)
    usda = (project / "ring.usda").read_text()
    assert usda.startswith("#usda 1.0") and "Ring" in usda


def test_long_render_shows_busy_place_and_progress_to_a_second_caller(blender):
    render = blender.render_long(10)
    row = blender.now()
    assert row["status"] == "busy"
    assert row["running"][0]["tool"] == "render_scene"
    second = blender.stage.client("/mcp")
    started = time.time()
    answer = second.call("call_tool", blender.arguments("create_object", {"name": "Later"}),
                         timeout=60, progress=True)
    assert not answer.failed, answer.text
    assert not render.result(60).failed
    notes = [note["params"] for note in answer.notifications
             if note["method"] == "notifications/progress"]
    assert notes and "render_scene" in notes[0]["message"], answer.notifications
    assert "next in line" in notes[0]["message"] or "before this call" in notes[0]["message"]
    values = [note["progress"] for note in notes]
    assert values == sorted(set(values))  # each more than the one before
    told = [started, *answer.arrivals, started + answer.seconds]
    assert max(b - a for a, b in zip(told, told[1:])) < 6
    assert answer.seconds > 5
    assert "Later" in blender.objects()


def test_call_cancelled_in_the_queue_leaves_no_object(blender):
    render = blender.render_long(6)
    client = blender.stage.client("/mcp")
    number = client._next_id + 1
    future = client.start_call("call_tool", blender.arguments("create_object", {"name": "Ghost"}),
                               timeout=20)
    time.sleep(1)
    client.notify("notifications/cancelled", {"requestId": number, "reason": "changed my mind"})
    assert not render.result(60).failed
    after = blender.call("create_object", {"name": "Real"}, timeout=60)
    assert not after.failed, after.text
    objects = blender.objects()
    assert "Real" in objects and "Ghost" not in objects
    assert not future.done() or future.exception() is not None


def test_killed_blender_is_told_at_once_and_comes_back_in_its_seat(blender):
    old = blender.row
    render = blender.render_long(30)
    killed = time.monotonic()
    blender.dccs.programs["blender"].signal(signal.SIGKILL)
    answer = render.result(10)
    told = time.monotonic() - killed
    assert answer.failed
    assert told < 0.5, f"{told:.3f} s: {answer.text}"
    program = blender.dccs.start("blender")
    _, appeared = blender.dccs.wait_for_row("blender")

    def usable():
        row = dccs.instance_of(blender.client, program.pid)
        if row is None or row["status"] != "available":
            return None
        loaded = blender.client.call("load_skill", {"skill_name": "blender-objects",
                                                    "instance": row["instance"]}, timeout=20)
        if loaded.failed:
            return None
        blender.row = row
        made = blender.call("create_object", {"name": "Again"})
        return None if made.failed else row

    row = wait_until(usable, 20, "the restarted Blender is usable", step=0.02)
    took = time.monotonic() - appeared
    assert row["seat_id"] == old["seat_id"] and row["instance"] == old["instance"]
    assert row["incarnation"] == old["incarnation"] + 1
    assert took < 2, f"usable {took:.2f} s after its registry row"


def test_debians_blender_creates_lists_and_renders_with_the_same_adapter(stage):
    need_full("Debian's Blender 3.4")
    blender = Blender(stage, "blender-debian")
    assert "3.4" in blender.row["version"]
    blender.settings(samples=4, seconds=20, width=160, height=90)
    made = blender.call("create_object", {"object_type": "torus", "name": "Old Ring"})
    assert not made.failed, made.text
    assert "Old Ring" in blender.objects()
    target = blender.dccs.project / "old.png"
    done = blender.call("render_scene", {"output_path": str(target)}, timeout=100)
    assert not done.failed, done.text
    png = target.read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (160, 90)
