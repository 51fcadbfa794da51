"""The latest log lines in memory: the gateway's log is also its list of events, for the page and for status.

An event has the words of its line. Lines of single requests (the access log) and of what models print are no
events.
"""

import logging
import threading
from collections import deque
from typing import Final, TypedDict

KEPT: Final = 500
TEXT_MAX: Final = 1000
"""Characters of a sentence that are kept."""
KINDS: Final = (
    ("penstock.audit", "change"),
    ("router.management", "settings"),
    ("router.settings", "settings"),
    ("router.security", "settings"),
    ("router.startup.replanning", "plan"),
    ("router.startup.serve", "models"),
    ("penstock.scale", "scale"),
    ("penstock.rollouts", "rollout"),
    ("penstock.shifts", "data"),
    ("serving.runtime.slicing", "devices"),
    ("serving.runtime.nodes", "devices"),
)  # fmt: skip
"""The kind of an event by the start of its logger's name; else "gateway"."""


class Event(TypedDict):
    """An operator event. `number`: one more than the event before. `level`: "info", "warning", "error"."""

    number: int
    unix_s: float
    level: str
    kind: str
    text: str


class Events:
    """Keeps the latest; any thread may add one."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Event] = deque(maxlen=kept)
        self.last = 0

    def add(self, record: logging.LogRecord, text: str) -> None:
        """Keep a line, with its sentence as `text`."""
        with self._lock:
            self.last += 1
            self._kept.append(
                {
                    "number": self.last,
                    "unix_s": record.created,
                    "level": record.levelname.lower(),
                    "kind": _kind(record.name),
                    "text": text[:TEXT_MAX],
                }
            )

    def since(self, number: int = 0) -> list[Event]:
        """Return those after that number that are kept, oldest first."""
        with self._lock:
            return [each for each in self._kept if each["number"] > number]


def _kind(logger: str) -> str:
    return next((kind for start, kind in KINDS if logger.startswith(start)), "gateway")
