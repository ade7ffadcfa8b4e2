"""The command line on real binaries: output for programs on stdout, talk on stderr, exit codes."""

import json
import os
import signal
import socket
import subprocess
import tomllib

import pytest

from stage import BINARIES, wait_until


def cli(*arguments, address=None, stdin="", cwd=None, **environment):
    names = ("CALLBOARD_ADDRESS", "CALLBOARD_CONTROL_PLANE")
    others = {name: value for name, value in os.environ.items() if name not in names}
    environment = others | environment
    if not environment.keys() & set(names) and cwd is None:
        environment["CALLBOARD_CONTROL_PLANE"] = address or "127.0.0.1:1"
    return subprocess.run([BINARIES / "callboard", *arguments], input=stdin,
                          env=environment, cwd=cwd, capture_output=True, text=True, timeout=20)


@pytest.fixture
def ask(stage):
    """callboard against a stage with the counting server."""
    stage.start_control_plane()
    stage.start_agent()

    def run(*arguments, stdin=""):
        return cli(*arguments, address=f"127.0.0.1:{stage.grpc_port}", stdin=stdin)

    return run


def slug_of(ask, tool):
    hits = json.loads(ask("tools", "search", tool, "-o", "json").stdout)["hits"]
    return next(hit["slug"] for hit in hits if hit["tool"] == tool)


def test_ps_shows_seats_as_table_and_json(ask):
    seats = json.loads(ask("ps", "-o", "json").stdout)
    assert [(seat["name"], seat["state"], seat["tools"]) for seat in seats] == [("counting", "idle", 4)]
    assert len(seats[0]["id8"]) == 8 and seats[0]["host"]
    table = ask("ps", "-o", "wide").stdout.splitlines()
    assert table[0].split()[:2] == ["NAME", "ID"] and "counting" in table[1]
    assert ask("ps", "-l", "state=busy").returncode == 4
    assert ask("ps", seats[0]["id8"]).returncode == 0


def test_search_describe_and_call(ask):
    echo = slug_of(ask, "echo")
    shown = json.loads(ask("describe", echo, "-o", "json").stdout)
    assert shown["read_only"] and shown["definition"]["name"] == "echo"
    called = ask("call", echo, "-d", '{"text":"hello"}')
    assert (called.returncode, called.stdout) == (0, "hello\n"), called.stderr
    raw = ask("call", echo, "-d", "-", "-o", "json", stdin='{"text":\n"two"}')
    assert json.loads(raw.stdout)["content"][0]["text"] == "two"


def test_a_large_result_arrives_whole(ask):
    called = ask("call", slug_of(ask, "big"), "-d", '{"bytes":3000000}')
    assert len(called.stdout) == 3_000_001, called.stderr


def test_progress_goes_to_stderr(ask):
    called = ask("call", slug_of(ask, "progress"), "-d", '{"steps":2,"ms":50}', "--progress")
    assert called.stdout == "2 steps\n"
    assert "notifications/progress" in called.stderr


def test_exit_codes_tell_what_went_wrong(ask):
    echo = slug_of(ask, "echo")
    missing = ask("call", echo.replace(".echo", ".echos"), "-d", "{}")
    assert missing.returncode == 4 and "echo" in missing.stderr and missing.stdout == ""
    assert ask("call", echo, "-d", "[1]").returncode == 2
    assert ask("call", echo, "-d", '{"text":5}').returncode == 2
    late = ask("call", slug_of(ask, "count"), "-d", '{"id":"a","ms":1500}', "--timeout", "200ms")
    assert late.returncode == 6, late.stderr
    failed = ask("call", slug_of(ask, "big"), "-d", '{"fail":true,"bytes":3}')
    assert failed.returncode == 1 and "isError" in failed.stderr
    assert failed.stdout == "000\n"


def test_exit_code_5_is_a_refusal_and_7_an_unknown_outcome(stage):
    stage.start_control_plane()
    stage.start_agent(queue__main_depth="1")
    command = [BINARIES / "callboard", "--address", f"127.0.0.1:{stage.grpc_port}", "call",
               slug_of(lambda *a: cli(*a, address=f"127.0.0.1:{stage.grpc_port}"), "count"), "-d"]

    def start(name):
        return subprocess.Popen([*command, json.dumps({"id": name, "ms": 20_000})],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    running = start("running")
    stage.wait_begun("running")
    waiting = start("waiting")
    ps = [BINARIES / "callboard", "--address", f"127.0.0.1:{stage.grpc_port}", "ps", "-o", "json"]
    wait_until(lambda: json.loads(subprocess.check_output(ps))[0]["queue"] == 1, 10, "one waits")
    refused = start("refused")
    _, talk = refused.communicate(timeout=10)
    assert refused.returncode == 5, talk
    assert stage.begun("refused") == 0
    os.kill(stage.backend_pid(), signal.SIGKILL)
    _, talk = running.communicate(timeout=10)
    assert running.returncode == 7 and "signal 9" in talk, talk
    waiting.kill()
    waiting.communicate()


def test_watch_shows_what_a_busy_seat_runs(stage, ask):
    watch = subprocess.Popen([BINARIES / "callboard", "--address", f"127.0.0.1:{stage.grpc_port}",
                              "ps", "--watch"], stdout=subprocess.PIPE, text=True)
    try:
        assert "idle" in watch.stdout.readline()
        call = stage.client().start_call("count", {"id": "watched", "ms": 1500})
        line = watch.stdout.readline()
        while "busy" not in line:
            line = watch.stdout.readline()
        assert "count for 0 s" in line, line
        assert call.result(10).text == "counted watched"
    finally:
        watch.kill()
        watch.communicate()


def test_selectors_beyond_equality(ask):
    for selector, code in (("app in (counting,maya)", 0), ("app notin (maya)", 0), ("host", 0),
                           ("!farm_job,host", 0), ("app notin (counting)", 4), ("farm_job", 4),
                           ("app on (x)", 2)):
        assert ask("ps", "-l", selector).returncode == code, selector


def test_the_address_is_looked_for_in_order(stage, ask, tmp_path):
    right, wrong = f"127.0.0.1:{stage.grpc_port}", "127.0.0.1:1"
    home, here = tmp_path / "home", tmp_path / "here"
    (home / "callboard").mkdir(parents=True)
    here.mkdir()

    def run(*arguments, **environment):
        return cli(*arguments, cwd=here, XDG_CONFIG_HOME=str(home), **environment).returncode

    user_file = home / "callboard" / "config.toml"
    user_file.write_text(f'control_plane = "{right}"\n[other]\nkey = 1\n')
    assert run("ps") == 0
    (here / "callboard.toml").write_text(f'control_plane = "{wrong}"\n')
    assert run("ps") == 3
    assert run("ps", CALLBOARD_CONTROL_PLANE=right) == 0
    assert run("ps", "--address", right, CALLBOARD_CONTROL_PLANE=wrong) == 0
    (here / "callboard.toml").write_text("control_plane = 7\n")
    broken = cli("ps", cwd=here, XDG_CONFIG_HOME=str(home))
    assert broken.returncode == 2 and "callboard.toml" in broken.stderr
    (here / "callboard.toml").write_text('[budgets]\nqueue = "5m"\n')
    said = cli("doctor", cwd=here, XDG_CONFIG_HOME=str(home)).stdout
    assert f"{right} ({user_file})" in said


def test_ctrl_c_cancels_and_says_what_became_of_the_call(stage, ask):
    count = slug_of(ask, "count")
    call = subprocess.Popen([BINARIES / "callboard", "--address", f"127.0.0.1:{stage.grpc_port}",
                             "call", count, "-d", '{"id":"stop","ms":3000}'],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stage.wait_begun("stop")
    call.send_signal(signal.SIGINT)
    _, talk = call.communicate(timeout=10)
    assert call.returncode == 1 and "CANCELLED" in talk
    wait_until(lambda: any(event == "cancelled" for event, _, _ in stage.events()), 5,
               "the cancel reaches the seat")


def test_nobody_there_is_exit_code_3():
    for verb in (["ps"], ["call", "a.12345678.b"]):
        ended = cli(*verb)
        assert ended.returncode == 3 and "callboardd" in ended.stderr and ended.stdout == ""


def test_doctor(stage, ask):
    registry = stage.folder / "registry"
    arguments = ["doctor", "--http", f"127.0.0.1:{stage.port}", "--registry-dir", registry,
                 "--state-dir", stage.folder / "callboardd"]
    well = ask(*arguments)
    assert well.returncode == 0, well.stdout
    assert all(line.startswith("ok") for line in well.stdout.splitlines())
    arguments[2] = "127.0.0.1:1"
    ill = ask(*arguments, "-o", "json")
    assert ill.returncode == 11
    assert {check["check"] for check in json.loads(ill.stdout) if not check["ok"]} == {
        "bridge /health", "bridge /v1/readyz"}
    nobody = cli(*arguments)
    assert nobody.returncode == 3
    version = next(check for check in json.loads(ill.stdout) if check["check"] == "version")
    assert version["ok"] and "as this callboard" in version["found"]


def test_doctor_tells_which_ports_are_free():
    with socket.socket() as taken, socket.socket() as free:
        for one in (taken, free):
            one.bind(("127.0.0.1", 0))
        taken.listen()
        other = free.getsockname()[1]
        free.close()
        said = cli("doctor", "--http", f"127.0.0.1:{other}", "-o", "json",
                   CALLBOARD_CONTROL_PLANE=f"127.0.0.1:{taken.getsockname()[1]}")
        checks = {check["check"]: check for check in json.loads(said.stdout)}
        assert checks[f"port {other}"]["ok"] and "free" in checks[f"port {other}"]["found"]
        ill = checks[f"port {taken.getsockname()[1]}"]
        assert not ill["ok"] and "taken by another program" in ill["found"]
        assert "--grpc-port" in ill["helps"]


def test_config_check(tmp_path):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[budgets]\nlink_read_idle = "40s"\n')
    ended = cli("config", "check", "--config", str(wrong))
    assert ended.returncode == 2
    assert "link_read_idle (40s)" in ended.stderr and "quick_call (30s)" in ended.stderr
    # Every fault at once: of a value, of a key, of the order, of the command line.
    wrong.write_text('[budgets]\nlink_read_idle = "40s"\nconnect = "soon"\nquik_call = "1s"\n')
    ended = cli("config", "check", "--config", str(wrong), "--set", "queue", "--set",
                "budgets.session_grace=9h")
    assert ended.returncode == 2
    for named in ('connect = "soon"', "quik_call", "link_read_idle (40s)", "--set queue",
                  "session_grace (9h) must be less than session_idle (8h)"):
        assert named in ended.stderr, ended.stderr
    wrong.write_text('[budgets]\nqueue = "soon"\nqueu = "1s"\n')
    ended = cli("config", "check", "--config", str(wrong))
    assert "soon" in ended.stderr and "queu " in ended.stderr
    values = json.loads(cli("config", "check", "agent", "--set", "queue.main_depth=7", "-o",
                            "json").stdout)
    assert {"key": "queue.main_depth", "value": "7", "from": "--set"} in values
    assert {"key": "link.keepalive", "value": "5s", "from": "default"} in values


@pytest.mark.parametrize("client", ["claude-code", "claude-desktop", "cursor", "vscode", "gemini"])
def test_client_config_is_json(client):
    config = json.loads(cli("client-config", client, "--url", "http://h:1/mcp").stdout)
    entry = config["servers" if client == "vscode" else "mcpServers"]["callboard"]
    assert "http://h:1/mcp" in (entry.get("url"), *entry.get("args", []))


def test_client_config_for_codex_is_toml():
    config = tomllib.loads(cli("client-config", "codex").stdout)
    assert config["mcp_servers"]["callboard"]["url"] == "http://127.0.0.1:9765/mcp"
    assert cli("client-config", "nobody").returncode == 2


def test_completion_is_valid_and_completes():
    script = cli("completion", "bash").stdout
    probe = script + ('COMP_WORDS=(callboard cl); COMP_CWORD=1; _callboard; echo "${COMPREPLY[@]}"\n'
                      'COMP_WORDS=(callboard ps --w); COMP_CWORD=2; _callboard; echo "${COMPREPLY[@]}"\n')
    done = subprocess.run(["bash", "-eu"], input=probe, capture_output=True, text=True, timeout=10)
    assert done.stdout.split() == ["client-config", "--watch"], done.stderr


def test_help_teaches():
    assert "Examples:" in cli("help", "call").stdout
    assert "callboard ps" in cli("--help").stdout
    assert cli("help", "nothing").returncode == 2
    assert cli("fly").returncode == 2
    assert cli("version").stdout.startswith("callboard ")


def test_watch_follows_a_seat(stage, ask):
    watch = stage.start([BINARIES / "callboard", "ps", "--watch", "-o", "json", "--address",
                         f"127.0.0.1:{stage.grpc_port}"], "watch")
    watch.wait_for('"state":"idle"')
    call = stage.client().start_call("count", {"id": "long", "ms": 1500})
    watch.wait_for('"state":"busy"')
    assert not call.result(10).failed
    stage.agent.end()
    watch.wait_for('"state":"reconnecting"')
