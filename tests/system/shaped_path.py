"""A TCP path of limited rate and fixed delay, as a relay on loopback: what a slow network is to the link."""

import collections
import contextlib
import select
import socket
import threading
import time

PACKET = 16 << 10
# What the path's own buffer holds at most, as a time at its rate.
BUFFER_SECONDS = 0.002


class _Direction:
    """Bytes from one socket to another, each packet after the ones before it and `delay` later."""

    def __init__(self, source, sink, bytes_per_second, delay):
        self.source, self.sink = source, sink
        self._rate, self._delay = bytes_per_second, delay
        self._line_free_at = 0.0
        self._under_way = collections.deque()  # (time of arrival, bytes)
        self.ended = False

    def may_read_at(self):
        return self._line_free_at - BUFFER_SECONDS

    def read(self, now):
        data = self.source.recv(PACKET)
        self._line_free_at = max(now, self._line_free_at) + len(data) / self._rate
        self._under_way.append((self._line_free_at + self._delay, data))
        self.ended = not data

    def next_arrival(self):
        return self._under_way[0][0] if self._under_way else float("inf")

    def deliver(self, now):
        """False: the end has been delivered."""
        while self._under_way and self._under_way[0][0] <= now:
            arrival, data = self._under_way.popleft()
            if not data:
                return False
            try:
                sent = self.sink.send(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self._under_way.appendleft((max(arrival, now + 0.0005), data[sent:]))
                return True
        return True


class ShapedPath:
    """Relays connections to 127.0.0.1:target in one thread, until close()."""

    def __init__(self, target_port, bits_per_second, delay):
        self._target = target_port
        self._rate, self._delay = bits_per_second / 8, delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._wake, self._waker = socket.socketpair()
        self._directions = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self):
        self._waker.send(b"x")
        self._thread.join(5)
        for direction in self._directions:
            direction.source.close()
        for end in (self._listener, self._wake, self._waker):
            end.close()

    def _accept(self):
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        except OSError:
            near.close()
            return
        for end in (near, far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._directions += [_Direction(near, far, self._rate, self._delay),
                             _Direction(far, near, self._rate, self._delay)]

    def _drop(self, direction):
        """A connection ends with either of its directions."""
        ends = {direction.source, direction.sink}
        self._directions = [other for other in self._directions if other.source not in ends]
        for end in ends:
            with contextlib.suppress(OSError):
                end.close()

    def _run(self):
        while True:
            now = time.monotonic()
            readable = [d for d in self._directions if not d.ended and d.may_read_at() <= now]
            next_at = min((d.next_arrival() for d in self._directions), default=now + 1)
            waiting = [d.may_read_at() for d in self._directions if not d.ended and d.may_read_at() > now]
            timeout = max(0.0, min([next_at, now + 1, *waiting]) - now)
            sources = [d.source for d in readable]
            ready, _, _ = select.select([self._listener, self._wake, *sources], [], [], timeout)
            if self._wake in ready:
                return
            if self._listener in ready:
                self._accept()
            now = time.monotonic()
            for direction in list(self._directions):
                if direction not in self._directions:
                    continue
                try:
                    if direction.source in ready and direction in readable:
                        direction.read(now)
                    if not direction.deliver(now):
                        self._drop(direction)
                except BlockingIOError:
                    pass
                except OSError:
                    self._drop(direction)


def measured_rate(bits_per_second, delay, size=16 << 20):
    """Bits a second that a plain TCP transfer gets through such a path."""
    sink = socket.create_server(("127.0.0.1", 0))
    path = ShapedPath(sink.getsockname()[1], bits_per_second, delay)
    sender = socket.create_connection(("127.0.0.1", path.port))
    receiver, _ = sink.accept()
    threading.Thread(target=sender.sendall, args=(bytes(size),), daemon=True).start()
    started, received = time.monotonic(), 0
    while received < size:
        received += len(receiver.recv(1 << 20))
    seconds = time.monotonic() - started
    for end in (sender, receiver, sink):
        end.close()
    path.close()
    return size * 8 / seconds
