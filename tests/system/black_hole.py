"""A network path through three namespaces that swallows packets on command, without any error to either end."""

import os
import subprocess

from tcp_proxy import TcpProxy

NEAR, FAR = "10.213.77.1", "10.213.77.6"


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def unusable_because():
    """Why namespaces cannot be made here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"cbprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"ip netns add: {made.stderr.strip()}"
    _ip("netns", "del", probe)
    return None


class SilentPath:
    """near - middle (a router) - far.

    The main namespace is not touched. With the router's two ends down both sides keep their routes
    and addresses and send into nothing: what a pulled cable behind a switch looks like.
    """

    def __init__(self):
        stem = f"cb{os.getpid()}"
        self.near, self._middle, self.far = stem + "near", stem + "middle", stem + "far"
        self._made = []
        try:
            for name in (self.near, self._middle, self.far):
                _ip("netns", "add", name)
                self._made.append(name)
            self._link(self.near, f"{NEAR}/30", "10.213.77.2/30", "m0")
            self._link(self.far, f"{FAR}/30", "10.213.77.5/30", "m1")
            _ip("-n", self.near, "route", "add", "10.213.77.4/30", "via", "10.213.77.2")
            _ip("-n", self.far, "route", "add", "10.213.77.0/30", "via", "10.213.77.5")
            _ip("netns", "exec", self._middle, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        except BaseException:
            self.close()
            raise

    def _link(self, name, address, router_address, router_end):
        _ip("-n", name, "link", "add", "e0", "type", "veth", "peer", "name", router_end,
            "netns", self._middle)
        for where, device, what in ((name, "e0", address), (self._middle, router_end, router_address)):
            _ip("-n", where, "addr", "add", what, "dev", device)
            _ip("-n", where, "link", "set", device, "up")
            _ip("-n", where, "link", "set", "lo", "up")

    def command(self, command, where=None):
        """The command as it is run at one end, by default the far one (same pid: ip replaces itself)."""
        return ["ip", "netns", "exec", where or self.far, *map(str, command)]

    def swallow(self):
        for device in ("m0", "m1"):
            _ip("-n", self._middle, "link", "set", device, "down")

    def heal(self):
        for device in ("m0", "m1"):
            _ip("-n", self._middle, "link", "set", device, "up")

    def close(self):
        for name in self._made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class BlackHole(SilentPath):
    """near: a relay to a port of this host; far: where the agent runs."""

    def __init__(self, target_port):
        super().__init__()
        try:
            self._relay = TcpProxy(target_port, NEAR, self.near)
        except BaseException:
            super().close()
            raise
        self.address = f"{NEAR}:{self._relay.port}"

    @property
    def connections(self):
        return self._relay.accepted

    def close(self):
        self._relay.close()
        super().close()
