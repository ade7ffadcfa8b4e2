"""A TCP relay on loopback that a test can cut with a reset in mid-stream."""

import asyncio
import contextlib
import ctypes
import os
import socket
import struct
import threading

CLONE_NEWNET = 0x40000000


def _listen(address, namespace):
    """A listening socket, made in another network namespace if one is named."""
    if namespace is None:
        return socket.create_server((address, 0), backlog=64)
    made = []

    def make():  # a thread of its own: setns is per thread, and it ends with the socket made
        libc = ctypes.CDLL(None, use_errno=True)
        handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        try:
            if libc.setns(handle, CLONE_NEWNET) != 0:
                made.append(OSError(ctypes.get_errno(), f"setns {namespace}"))
            else:
                made.append(socket.create_server((address, 0), backlog=64))
        except OSError as error:
            made.append(error)
        finally:
            os.close(handle)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


class _End(asyncio.Protocol):
    """One end of a relayed connection; what it reads goes to `other`, as fast as that takes it."""

    def __init__(self, relayed):
        self.relayed = relayed  # told of each piece
        self.transport = None
        self.other = None
        self.is_near = False  # faces whoever has connected to the proxy
        self._read_all = False

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data):
        self.relayed(self, data)
        self.other.transport.write(data)

    def eof_received(self):
        if self.other.transport.can_write_eof():
            self.other.transport.write_eof()
        self._read_all = True
        if self.other._read_all:
            self.other.transport.close()
            return False
        return True  # the other direction goes on

    def pause_writing(self):
        self.other.transport.pause_reading()

    def resume_writing(self):
        self.other.transport.resume_reading()

    def connection_lost(self, error):
        if self.other is None:
            return
        if error is None:
            self.other.transport.close()
        else:
            self.other.reset()

    def reset(self):
        with contextlib.suppress(OSError):
            # With linger 0 closing sends a reset instead of a FIN.
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class TcpProxy:
    """Relays every connection to 127.0.0.1:target in a thread of its own, until close().

    keep: what goes to the target is remembered.
    """

    def __init__(self, target_port, address="127.0.0.1", namespace=None, keep=False):
        self._target = target_port
        self._near_ends = []
        self._listener = _listen(address, namespace)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self.accepted = 0
        self.relayed = 0  # bytes, of both directions
        self._kept = {} if keep else None  # near end -> what it has sent
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        asyncio.set_event_loop(self._loop)
        accepting = self._loop.create_task(self._accept())
        self._loop.run_forever()
        accepting.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _accept(self):
        while True:
            sock, _ = await self._loop.sock_accept(self._listener)
            try:
                transport, far = await self._loop.create_connection(
                    lambda: _End(self._count), "127.0.0.1", self._target)
                transport.pause_reading()  # until its other end is there
            except OSError:
                sock.close()
                continue
            near = _End(self._count)
            near.is_near = True
            near.other, far.other = far, near
            await self._loop.connect_accepted_socket(lambda end=near: end, sock)
            far.transport.resume_reading()
            self.accepted += 1
            self._near_ends.append(near)

    def _count(self, end, data):
        self.relayed += len(data)
        if self._kept is not None and end.is_near:
            self._kept[end] = self._kept.get(end, b"") + data

    def sent(self):
        """What has gone to the target, one connection after the other."""
        return b"\n".join(self._kept.values())

    def cut(self):
        """Resets every connection at both ends; new ones are relayed again. Returns how many."""
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(5)

    async def _cut(self):
        ends, self._near_ends = self._near_ends, []
        open_ends = [end for end in ends if not end.transport.is_closing()]
        for end in open_ends:
            end.reset()
            end.other.reset()
        await asyncio.sleep(0)
        return len(open_ends)

    def close(self):
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._listener.close()
