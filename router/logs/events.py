"""The latest log lines in memory: the gateway's log is also its list of events, for the page and for status.

An event has the words of its line. Lines of single requests (the access log) and of what models print are no
events. A line about the running gateway that comes again with other numbers is the same event once more, so
that one cause does not push all others out.
"""

import logging
import re
import threading
from collections import deque
from itertools import islice
from typing import Final, TypedDict

KEPT: Final = 500
TEXT_MAX: Final = 1000
"""Characters of a sentence that are kept."""
AGAIN_S: Final = 600.0
"""How long after an event the same line counts as that event once more."""
LOOKED_AT: Final = 50
"""Of the latest events, so many are looked at for the same line."""
_NUMBERS: Final = re.compile(r"(?<![\w@.-])\d[\d.,]*")
"""Numbers that belong to no name: `cpu-1` and `cpu-2` are two slices."""
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
    """An operator event. `number`: one more than the event before. `level`: "info", "warning", "error".
    `times`: how often it came, each time with a number of its own; `first`: the first of these numbers. Words
    and instant are of the last time."""

    number: int
    first: int
    times: int
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
        level, kind, text = record.levelname.lower(), _kind(record.name), text[:TEXT_MAX]
        with self._lock:
            self.last += 1
            before = self._same(level, kind, text, record.created - AGAIN_S)
            if before is not None:
                self._kept.remove(before)
            self._kept.append(
                {
                    "number": self.last,
                    "first": self.last if before is None else before["first"],
                    "times": 1 if before is None else before["times"] + 1,
                    "unix_s": record.created,
                    "level": level,
                    "kind": kind,
                    "text": text,
                }
            )

    def _same(self, level: str, kind: str, text: str, since_s: float) -> Event | None:
        """Return the event that had this line before, with any numbers."""
        if kind != "gateway":
            return None  # the steps of a rollout differ by numbers only
        words = _NUMBERS.sub("#", text)
        for each in islice(reversed(self._kept), LOOKED_AT):
            alike = (each["level"], each["kind"]) == (level, kind) and each["unix_s"] >= since_s
            if alike and _NUMBERS.sub("#", each["text"]) == words:
                return each
        return None

    def since(self, number: int = 0) -> list[Event]:
        """Return those after that number that are kept, oldest first."""
        with self._lock:
            return [each for each in self._kept if each["number"] > number]


def _kind(logger: str) -> str:
    return next((kind for start, kind in KINDS if logger.startswith(start)), "gateway")
