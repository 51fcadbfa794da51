"""What models raise and print, in the gateway's log.

A traceback is said whole once a kind and minute, on however many slices the model raises it; how many more of
the kind there were, and where, is said when the minute is over. Of what a worker prints a bounded number of
lines a second is said, and how many were left out.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import Final

from serving.worker.frames.orders import Raised
from serving.worker.process.output import NAME_BEGINS, NAME_ENDS

logger = logging.getLogger(__name__)

SAID_EVERY_S: Final = 60.0
"""Between two whole tracebacks of the same kind."""
KINDS_MAX: Final = 1000
"""Kinds of which the last traceback is kept; of more the oldest is forgotten."""
LINES_PER_S: Final = 200
"""Printed lines of a slice that are said in a second: a line takes the event loop some 20 us."""
READ_BYTES: Final = 64 << 10
"""Of one read: as much as a pipe of Linux holds."""
LINE_BYTES_MAX: Final = 8 << 10
"""A line without an end is said in pieces of this size."""

NAMED_MAX: Final = 4
"""Slices that a count names; of more it says how many they are."""

_Kind = tuple[str, str, str]  # model, variant, what was raised where


class ModelLog:
    """One for all workers, made on the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._more: dict[_Kind, Counter[str]] = {}  # of the kinds said within the minute: how often since
        self._tracebacks: dict[_Kind, str] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._lines: dict[str, int] = {}  # by slice, within the second

    def raised(self, slice_name: str, raised: Raised) -> None:
        """Log that a model's code raised."""
        kind = (raised.model, raised.variant, raised.kind)
        if raised.traceback:
            self._tracebacks.pop(kind, None)
            self._tracebacks[kind] = raised.traceback
            if len(self._tracebacks) > KINDS_MAX:
                del self._tracebacks[next(iter(self._tracebacks))]
        if kind in self._more:
            self._more[kind][slice_name] += 1
            return
        self._more[kind] = Counter()
        what = f"model {raised.model} {raised.variant} on slice {slice_name} raised {raised.doing}"
        fields = {
            "model": raised.model,
            "variant": raised.variant,
            "slice": slice_name,
            "traceback": raised.traceback or self._tracebacks.get(kind, ""),
        }
        logger.error("%s: %s", what, raised.sentence, extra={"fields": fields})
        self._later(SAID_EVERY_S, lambda: self._say_more(kind))

    def printed(self, slice_name: str, stream: str, model: str, line: str) -> None:
        """Log a line that a worker's process printed. `model`: the model with the code that printed it, "" if
        that is not known."""
        count = self._lines.get(slice_name, 0)
        self._lines[slice_name] = count + 1
        if not count:
            self._later(1.0, lambda: self._say_left_out(slice_name))
        if count < LINES_PER_S:
            fields = {"slice": slice_name, "model": model, "stream": stream}
            level = logging.WARNING if stream == "stderr" else logging.INFO
            where = f"{slice_name} {model}" if model else slice_name
            logger.log(level, "[%s] %s", where, line, extra={"fields": fields})

    def close(self) -> None:
        """Say what is to be said later."""
        for kind in list(self._more):
            self._say_more(kind)
        for slice_name in list(self._lines):
            self._say_left_out(slice_name)
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _later(self, seconds: float, say: Callable[[], None]) -> None:
        def due() -> None:
            self._timers.discard(timer)
            say()

        timer = self._loop.call_later(seconds, due)
        self._timers.add(timer)

    def _say_more(self, kind: _Kind) -> None:
        model, variant, what = kind
        slices = self._more.pop(kind, Counter())
        count = slices.total()
        if count:
            times = "once" if count == 1 else f"{count} times"
            text = "model %s %s on %s raised this %s more within %g s: %s"
            fields = {"model": model, "variant": variant, "slices": sorted(slices), "suppressed": count}
            values = (model, variant, _places(slices), times, SAID_EVERY_S, what)
            logger.error(text, *values, extra={"fields": fields})

    def _say_left_out(self, slice_name: str) -> None:
        over = self._lines.pop(slice_name, 0) - LINES_PER_S
        if over > 0:
            text = "[%s] %d more lines are left out: more than %d were printed within a second"
            fields = {"slice": slice_name, "suppressed": over}
            logger.warning(text, slice_name, over, LINES_PER_S, extra={"fields": fields})


def _places(slices: Counter[str]) -> str:
    """Return the slices in words."""
    if len(slices) > NAMED_MAX:
        return f"{len(slices)} slices"
    return f"slice{'s' if len(slices) > 1 else ''} {', '.join(sorted(slices))}"


class Printed:
    """The gateway's end of one pipe, in which a worker prints."""

    def __init__(self, descriptor: int, say: Callable[[str, str], None]) -> None:
        """Take a pipe's descriptor, and close it in the end. `say(model, line)` takes each line."""
        self._descriptor = descriptor
        self._say = say
        self._begun = b""
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def close(self) -> None:
        """Say what is left in the pipe, and close it."""
        while self._descriptor >= 0 and self._read():
            pass
        if self._begun:
            self._line(self._begun)
            self._begun = b""
        self._end()

    def _end(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> bool:
        """Return whether there may be more."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end()
            return False
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._begun) > LINE_BYTES_MAX:
            self._line(self._begun)
            self._begun = b""
        return True

    def _line(self, line: bytes) -> None:
        model = b""
        if line.startswith(NAME_BEGINS):
            model, _, line = line[1:].partition(NAME_ENDS)
        text = line.decode(errors="replace").rstrip()
        shown = "".join(each if each.isprintable() or each == "\t" else " " for each in text)
        if shown.strip():
            self._say(model.decode(errors="replace"), shown)
