#!/usr/bin/env python3
"""Tidy test: the layer rule on include lines, forbidden calls, purpose lines, names; lint as a test.

check_tree.py [ROOT]            checks the tree, prints one line per finding, exits 1 if there are any
check_tree.py --self-test       proves that each rule finds what it is for
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PRODUCT = ["core", "net", "server", "bridge", "backend_agent", "apps"]
SOURCE_SUFFIXES = {".h", ".cc"}

# Folder (longest prefix wins) -> project folders its files may include.
MAY_INCLUDE = {
    "core": ["core/"],
    "net": ["core/", "net/"],
    "server/domain": ["core/", "server/domain/", "callboard/v1/"],
    "server/flows": ["core/", "server/domain/", "server/flows/", "callboard/v1/"],
    "server/store": ["core/", "server/domain/", "server/flows/", "server/store/", "callboard/v1/"],
    "server/rpc": ["core/", "server/domain/", "server/flows/", "server/rpc/", "callboard/v1/"],
    "bridge": ["core/", "net/", "bridge/", "callboard/v1/"],
    "bridge/grpc_client": ["core/", "bridge/", "callboard/v1/"],
    "backend_agent": ["core/", "backend_agent/", "callboard/v1/"],
    "backend_agent/backends": ["core/", "net/", "backend_agent/", "callboard/v1/"],
    "backend_agent/grpc_link": ["core/", "backend_agent/", "callboard/v1/"],
    "apps": ["core/", "net/", "server/", "bridge/", "backend_agent/", "apps/", "callboard/v1/"],
}
# The agent's core sees none of its own side wings.
AGENT_WINGS = ["backend_agent/backends/", "backend_agent/discovery/", "backend_agent/storage/",
               "backend_agent/grpc_link/"]

GRPC_ADAPTERS = ["server/rpc", "backend_agent/grpc_link", "bridge/grpc_client", "apps/cli"]
BRIDGE_WING = "bridge/grpc_client/"

# (what, pattern, folders where it is allowed, why)
FORBIDDEN = [
    ("grpcpp", r"#include <grpcpp/", GRPC_ADAPTERS,
     "gRPC belongs to the adapters"),
    ("Beast", r"#include <boost/beast", ["net"], "Beast belongs to net"),
    ("Asio", r"#include <boost/asio", ["core/runtime", "net", "backend_agent/backends",
                                        "backend_agent/discovery", "apps"],
     "flows and tables wait on core::EventLoop"),
    ("a clock", r"(steady_clock|system_clock|high_resolution_clock)::now|absl::Now\(|\btime\(nullptr\)",
     ["core/runtime", "server/rpc", "apps/cli"], "ask core::EventLoop::Now()"),
    ("a random source", r"std::random_device|\brand\(\)|\bsrand\(", ["core/runtime"],
     "take a core::Random&"),
    ("a sleep", r"sleep_for|sleep_until|\busleep\(|\bsleep\(", [], "use EventLoop::After"),
    ("a thread", r"std::thread\b|std::jthread\b|std::async\(",
     ["core/runtime", "core/telemetry", "apps"], "threads live in core/runtime"),
    ("a mutex", r"std::mutex|absl::Mutex\b",
     ["core/runtime", "core/telemetry", "server/rpc", "server/store", "backend_agent/grpc_link",
      "bridge/grpc_client"],
     "one loop, no locks"),
    ("Beast's own time-outs", r"\.expires_after\(|\.expires_at\(", ["core/runtime"],
     "deadlines are ours"),
]
BAD_NAMES = re.compile(r"(^|/)(util|utils|common|helpers?|managers?|misc)(/|\.|$)")
MACHINE = re.compile(r"/work/|/root/|/home/[a-z]|pypi\.org|npmjs\.org|registry\.npm|deb\.debian\.org|crates\.io|"
                     r"proxy\.golang\.org|repo1?\.maven")
ADAPTER_TARGETS = ["server_rpc", "server_store_sqlite", "agent_grpc", "agent_backends", "agent_discovery",
                   "agent_storage", "net_tcp", "bridge_grpc"]


def longest(prefixes, path):
    best = [p for p in prefixes if path == p or path.startswith(p + "/")]
    return max(best, key=len) if best else None


def allowed(path, folders):
    return any(path.startswith(f + "/") for f in folders)


def check_source(path, text):
    out = []
    lines = text.splitlines()
    if not lines or not re.match(r"// ?\S", lines[0]):
        out.append(f"{path}:1: the first line must say the file's purpose")
    rule = longest(MAY_INCLUDE, path)
    for number, line in enumerate(lines, 1):
        include = re.match(r'#include "([^"]+)"', line)
        if include and rule:
            target = include.group(1)
            ours = target.split("/")[0] in PRODUCT + ["tests", "bench", "callboard"]
            if ours and not any(target.startswith(p) for p in MAY_INCLUDE[rule]):
                out.append(f'{path}:{number}: includes "{target}"; {rule} may include {", ".join(MAY_INCLUDE[rule])}')
            if "grpc.pb.h" in target and not allowed(path, GRPC_ADAPTERS):
                out.append(f"{path}:{number}: service stubs belong to the gRPC adapters")
            if rule == "backend_agent" and not longest([w[:-1] for w in AGENT_WINGS], path):
                if any(target.startswith(w) for w in AGENT_WINGS):
                    out.append(f'{path}:{number}: includes "{target}"; the agent\'s core may not see its side wings')
            if rule == "bridge" and target.startswith(BRIDGE_WING):
                out.append(f'{path}:{number}: includes "{target}"; the bridge\'s core may not see its side wing')
        code = re.sub(r"//.*", "", line)
        for what, pattern, where, why in FORBIDDEN:
            if re.search(pattern, code) and not allowed(path, where):
                out.append(f"{path}:{number}: uses {what}: {why}")
    return out


def check_any(path, text):
    out = []
    if BAD_NAMES.search(path):
        out.append(f"{path}: the name says nothing about what it does")
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE.search(line) and not path.endswith("check_tree.py"):
            out.append(f"{path}:{number}: names a machine's path or a registry's host")
    return out


def check_sim(text):
    linked = re.sub(r"#.*", "", text)
    return [f"tests/sim/CMakeLists.txt: links the adapter {t}; the simulation proves the seams by linking none"
            for t in ADAPTER_TARGETS if re.search(rf"\b{t}\b", linked)]


def check(root):
    tracked = subprocess.run(["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, text=True, check=True).stdout.splitlines()
    out = []
    for path in tracked:
        file = root / path
        if not file.is_file() or file.stat().st_size > 2_000_000:
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        out += check_any(path, text)
        if file.suffix in SOURCE_SUFFIXES and path.split("/")[0] in PRODUCT + ["tests", "bench"]:
            if path.split("/")[0] in PRODUCT:
                out += check_source(path, text)
            elif not text.startswith("//"):
                out.append(f"{path}:1: the first line must say the file's purpose")
    sim = root / "tests/sim/CMakeLists.txt"
    if sim.is_file():
        out += check_sim(sim.read_text())
    return out


def self_test():
    cases = [
        (check_source, "server/domain/a.cc", '// p\n#include "server/flows/b.h"\n', 1),
        (check_source, "server/domain/a.cc", '// p\n#include "server/domain/b.h"\n', 0),
        (check_source, "bridge/a.cc", '// p\n#include "server/flows/b.h"\n', 1),
        (check_source, "bridge/a.cc", "// p\n#include <boost/beast/http.hpp>\n", 1),
        (check_source, "server/flows/a.cc", "// p\n#include <boost/asio.hpp>\n", 1),
        (check_source, "server/flows/a.cc", "// p\nauto t = std::chrono::steady_clock::now();\n", 1),
        (check_source, "server/flows/a.cc", "// p steady_clock::now is forbidden\n", 0),
        (check_source, "backend_agent/a.cc", '// p\n#include "backend_agent/backends/http_backend.h"\n', 1),
        (check_source, "bridge/a.cc", '// p\n#include "bridge/grpc_client/b.h"\n', 1),
        (check_source, "bridge/grpc_client/a.cc", '// p\n#include "bridge/config.h"\n', 0),
        (check_source, "core/mcp/a.cc", '// p\n#include "callboard/v1/agent.pb.h"\n', 1),
        (check_source, "core/mcp/a.cc", "#include <string>\n", 1),
        (check_any, "core/util/a.cc", "", 1),
        (check_any, "docs/a.md", "see /wo" + "rk/main\n", 1),
    ]
    failed = 0
    for function, path, text, expected in cases:
        found = function(path, text)
        if len(found) != expected:
            failed += 1
            print(f"self-test: {path!r} {text!r}: expected {expected} findings, got {found}")
    if len(check_sim("callboard_test(sim DEPS server_flows agent_grpc)")) != 1:
        failed += 1
        print("self-test: a simulation that links agent_grpc was not found")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "-q", folder], check=True)
        (Path(folder) / "net").mkdir()
        (Path(folder) / "net/x.h").write_text('#include "bridge/a.h"\n')
        if len(check(Path(folder))) != 2:
            failed += 1
            print("self-test: a whole tree with two findings was not reported as such")
    return failed


def main():
    if "--self-test" in sys.argv:
        failed = self_test()
        print(f"self-test: {failed} failures")
        return 1 if failed else 0
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
