"""The thread that makes spans and files of traced requests, so that the event loop does not."""

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from router.logs.logs import Seldom
from router.observing.telemetry.counting.journal import Entry
from router.observing.tracing.triton_file import Event, TraceFile, events_of
from serving.values.versions import ONLY

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 4096
"""Requests that may wait for the thread; of more, none is traced."""
FLUSH_S: Final = 1.0
"""A trace file has a request after so long, or twice that."""


class Sender(Protocol):
    """Sends spans: see `router.observing.tracing.spans.Spans`."""

    def send(self, traced: "Traced") -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Traced:
    """A request that is traced. `trace`: the id of its trace, "" if no collector gets it; `file`: the name of
    the file that gets it, "" for none; `span`: the id of its span that another server knows, "" for any.
    `cell`: the other cell that had it, "" for one that this gateway has served. `version`: of its
    model."""

    entry: Entry
    parent: str
    trace: str
    epoch_us: int
    file: str
    span: str = ""
    cell: str = ""
    version: str = ONLY


class Writer:
    """`put` is for the event loop. `sender`: None where no collector is."""

    def __init__(self, sender: Sender | None) -> None:
        self._sender = sender
        self._queue: SimpleQueue[Traced | None] = SimpleQueue()
        self._numbers = count(1)
        self._files: dict[str, TraceFile | None] = {}
        self._lines: dict[str, list[Event]] = {}
        self._says = Seldom(logger)
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="penstock-traces", daemon=True)
        self._thread.start()

    def put(self, traced: Traced) -> bool:
        """Take a request; return False if too many wait."""
        if self._queue.qsize() >= WAITING_MAX:
            self.dropped += 1
            return False
        self._queue.put(traced)
        return True

    def close(self) -> None:
        """Write and send what is left, and end the thread."""
        self._queue.put(None)
        self._thread.join(10.0)

    def _run(self) -> None:
        traced: Traced | None = None
        flushed_s = time.monotonic()
        while True:
            with suppress(Empty):
                if (traced := self._queue.get(timeout=FLUSH_S)) is None:
                    break
                self._take(traced)
            if time.monotonic() - flushed_s >= FLUSH_S:
                self._flush()
                flushed_s = time.monotonic()
        self._flush()
        if self._sender is not None:
            self._sender.close()

    def _take(self, traced: Traced) -> None:
        try:
            if traced.trace and self._sender is not None:
                self._sender.send(traced)
        except Exception as error:  # a request that cannot be traced ends no thread
            self._says.warning(f"a request could not be traced: {error}")
        if traced.file:
            events = events_of(traced.entry, traced.version, next(self._numbers), traced.epoch_us)
            self._lines.setdefault(traced.file, []).extend(events)

    def _flush(self) -> None:
        lines, self._lines = self._lines, {}
        for name, events in lines.items():
            try:
                if name not in self._files:
                    self._files[name] = TraceFile(Path(name))
                if (file := self._files[name]) is not None:
                    file.write(events)
            except OSError as error:
                self._files[name] = None
                self._says.warning(f"traces cannot be written: {name}: {error.strerror or error}")
