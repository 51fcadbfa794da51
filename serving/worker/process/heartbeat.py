"""Whether something keeps the process's other threads from running: a C call that keeps the interpreter."""

import threading
import time
from typing import Final, Self

BEAT_S: Final = 0.02


class Heartbeat:
    """A context manager: a thread that wakes up each BEAT_S. `longest_us`, once it is left: the longest time
    by which the thread was late, in microseconds."""

    def __init__(self) -> None:
        self.longest_us = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        over = False
        while not over:
            began_ns = time.monotonic_ns()
            over = self._over.wait(BEAT_S)
            late_us = (time.monotonic_ns() - began_ns) // 1000 - int(BEAT_S * 1e6)
            self.longest_us = max(self.longest_us, late_us)
