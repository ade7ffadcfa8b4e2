"""What systemd does on a farm: starts a program again, at the same ports, whenever it has died."""

import signal
import threading

from stage import wait_until


class Supervisor:
    """Watches stage programs. `start` makes a Program that serves where the former did."""

    def __init__(self, stage, start):
        self._start = start
        self._stopping = False
        self._lock = threading.Lock()
        self.starts = 1
        self.program = start()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        stage.on_stop(self.stop)

    def _watch(self):
        while not self._stopping:
            try:
                self.program.process.wait(0.05)
            except Exception:  # it runs
                continue
            with self._lock:
                if self._stopping:
                    return
                self.program = self._start()
                self.starts += 1

    def kill(self, number=signal.SIGKILL):
        """Returns at once; the next one is started when this one has ended."""
        self.program.process.send_signal(number)

    def wait_restarted(self, starts, seconds=10):
        wait_until(lambda: self.starts >= starts, seconds, f"{starts} starts, so far {self.starts}")

    def stop(self):
        """From now on the dead stay dead."""
        with self._lock:
            self._stopping = True
        self._thread.join(10)
