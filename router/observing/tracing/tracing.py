"""Which requests are traced. What is decided here is cheap; a thread makes spans and lines of the rest."""

import random
import time
from collections.abc import Callable
from typing import Final

from router.observing.telemetry.counting.journal import Entry
from router.observing.tracing.triton_settings import TraceSettings
from router.observing.tracing.writer import Traced, Writer
from router.settings.door.tracing import TracingSettings
from serving.values.versions import ONLY, model_of
from serving.values.vocabulary import COMPLETED

MISSED_PER_S: Final = 10
"""Late, refused and failed requests that are traced beside the sample, a second."""
_FLAGS_AT: Final = 53
"""In a traceparent: two hexadecimal digits, of which the lowest bit says that the caller samples."""
_TRACE_ID: Final = slice(3, 35)


class Tracing:
    """Given each request that has ended. `triton`: the settings that clients may change; None without a file.
    `now_s`: a clock that only goes forward."""

    def __init__(
        self,
        settings: TracingSettings,
        epoch_us: int,
        writer: Writer,
        seed: int | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._epoch_us = epoch_us
        self._writer = writer
        self._random = random.Random(seed)  # noqa: S311  # no secret: which requests are looked at
        self._now_s = now_s
        self._second, self._missed = 0, 0
        self.version_of: Callable[[str], str] = lambda _: ONLY  # of a served model, as answers state it
        self.triton = TraceSettings(settings.file) if settings.file is not None else None

    @property
    def dropped(self) -> int:
        """Requests whose traces were left out, because the thread had too much to do."""
        return self._writer.dropped

    def ended(self, entry: Entry, parent: str) -> str:
        """Trace a request, if it is to be. Return the trace's id, "" if no collector gets it. `parent`: the
        traceparent that it came with, "" for none."""
        into_file = self.triton.take(model_of(entry.model)) if self.triton is not None else ""
        sampled = bool(self._settings.otlp) and self._is_sampled(entry, parent)
        if not sampled and not into_file:
            return ""
        trace = self._trace_of(parent) if sampled else ""
        version = self.version_of(entry.model)
        if not self._writer.put(Traced(entry, parent, trace, self._epoch_us, into_file, version)):
            return ""
        return trace

    def _trace_of(self, parent: str) -> str:
        """Return the id of its client's trace, or a new one."""
        return parent[_TRACE_ID] if parent else f"{self._random.getrandbits(128) or 1:032x}"

    def _is_sampled(self, entry: Entry, parent: str) -> bool:
        """Return whether a collector gets it: its client says so, or else chance; and what missed its
        promise."""
        chosen = int(parent[_FLAGS_AT:], 16) & 1 if parent else self._random.random() < self._settings.sample
        if chosen:
            return True
        if not self._settings.missed or (entry.within and entry.outcome is COMPLETED):
            return False
        second = int(self._now_s())
        if second != self._second:
            self._second, self._missed = second, 0
        self._missed += 1
        return self._missed <= MISSED_PER_S

    def close(self) -> None:
        """Write and send what is left, and end the thread."""
        self._writer.close()
