"""How many log lines of one kind are said: what clients cause must not fill the log.

A kind is a place in the code and the class of what it reports. Beyond LINES_MAX lines within WINDOW_S the
rest is counted, and a line says the count when the window is over.
"""

import logging
import threading
from time import monotonic
from typing import Final

SAYS: Final = "penstock"
"""The logger that says what was left out. It has no limit."""
LINES_MAX: Final = 20
WINDOW_S: Final = 10.0

Kind = tuple[str, int, str]


class Floods(logging.Filter):
    """Lets through what may be said. `exempt`: loggers with a limit of their own, or none.

    Lines below WARNING are no part of it: they tell of what operators do, or are asked for.
    """

    def __init__(self, exempt: frozenset[str]) -> None:
        super().__init__()
        self._exempt = exempt
        self._lock = threading.RLock()
        self._began_s = 0.0
        self._counts: dict[Kind, int] = {}
        self._left_out: dict[Kind, tuple[int, str, int]] = {}  # level and sentence of the latest, how many
        self._timer: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is said."""
        if record.levelno < logging.WARNING or record.name == SAYS or record.name in self._exempt:
            return True
        error = record.exc_info[0] if record.exc_info else None
        kind = (record.pathname, record.lineno, error.__name__ if error else "")
        with self._lock:
            now_s = monotonic()
            if now_s - self._began_s > WINDOW_S and self._timer is None:
                self._began_s = now_s
                self._counts.clear()
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            if count <= LINES_MAX:
                return True
            *_, more = self._left_out.get(kind, (0, "", 0))
            self._left_out[kind] = record.levelno, record.getMessage(), more + 1
            if self._timer is None:
                self._timer = threading.Timer(WINDOW_S, self.end_window)
                self._timer.daemon = True
                self._timer.start()
        return False

    def end_window(self) -> None:
        """Say what was left out, and begin to count anew."""
        with self._lock:
            left_out, self._left_out = self._left_out, {}
            self._counts.clear()
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        for level, sentence, count in left_out.values():
            lines = "line like this is" if count == 1 else "lines like this are"
            text = f"%d more {lines} left out: %s"
            logging.getLogger(SAYS).log(level, text, count, sentence, extra={"fields": {"suppressed": count}})
