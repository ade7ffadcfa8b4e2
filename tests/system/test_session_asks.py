"""What a backend asks outside calls reaches the client whose session it is, and no other."""

import re
import sys
from pathlib import Path

import pytest

from stage import wait_until

HERE = Path(__file__).parent


@pytest.fixture
def rooted(stage):
    """A seat `roots` behind Streamable HTTP whose server asks for roots by itself."""
    stage.said = stage.folder / "said.txt"
    stage.said.touch()
    server = stage.start([sys.executable, HERE / "roots_server.py", "--file", stage.said], "roots_server")
    server.wait_for("/mcp", 60)
    stage.start_control_plane()
    stage.start_agent(re.search(r"http://\S+/mcp", server.output())[0], name="roots")
    return stage


def start_client(stage, capability):
    end = stage.folder / f"end-{capability}"
    client = stage.start([sys.executable, HERE / "clients" / "roots_session.py",
                          f"http://127.0.0.1:{stage.port}/mcp/roots", capability, end], f"client-{capability}")
    client.wait_for('"result"', 30)
    return client, end


def finish(client, end):
    end.touch()
    wait_until(lambda: not client.running, 20, f"the client ends:\n{client.output()[-2000:]}")
    assert client.process.returncode == 0, client.output()[-3000:]


def said(stage):
    """What clients were asked; the session that all clients share is nobody's, and refused."""
    return sorted(line for line in stage.said.read_text().splitlines() if line != "initialized error -32601")


def test_a_client_is_asked_after_initialized_and_after_its_call(rooted):
    client, end = start_client(rooted, "roots")
    wait_until(lambda: len(said(rooted)) == 2, 15, f"both are answered: {said(rooted)}")
    assert said(rooted) == ["after file:///scenes", "initialized file:///scenes"]
    assert client.output().count('"asked"') == 2
    finish(client, end)


def test_a_client_that_does_not_offer_it_is_not_asked(rooted):
    asked, end_of_asked = start_client(rooted, "roots")
    client, end = start_client(rooted, "sampling")
    wait_until(lambda: len(said(rooted)) == 3, 15, f"all are answered: {said(rooted)}")
    assert said(rooted) == ["after error -32601", "after file:///scenes", "initialized file:///scenes"]
    assert client.output().count('"asked"') == 0
    assert asked.output().count('"asked"') == 2
    finish(client, end)
    finish(asked, end_of_asked)


def test_what_is_asked_as_the_control_plane_is_lost_ends_with_an_error(rooted):
    client, end = start_client(rooted, "roots")
    wait_until(lambda: said(rooted), 15, "it is asked after initialized")
    rooted.control_plane.kill()
    wait_until(lambda: len(said(rooted)) == 2, 15, f"nothing waits for ever: {said(rooted)}")
    assert said(rooted)[0] == "after error -32000"
    client.kill()
