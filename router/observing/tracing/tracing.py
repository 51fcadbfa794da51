"""Which requests are traced. What is decided here is cheap; a thread makes spans and lines of the rest."""

import random
import time
from collections.abc import Callable
from typing import Final

from router.observing.telemetry.counting.journal import Entry
from router.observing.tracing.triton_settings import TraceSettings
from router.observing.tracing.writer import Traced, Writer
from router.settings.door.tracing import TracingSettings
from serving.ports import Call, Reply
from serving.runtime.calls.pending_calls import describe
from serving.runtime.clocks.clock import now_us
from serving.scheduler.waiting.requests import Request
from serving.values.traces import PARENT_CHARS, SAMPLED, flags_of, trace_id_of
from serving.values.versions import ONLY, model_of
from serving.values.vocabulary import COMPLETED

MISSED_PER_S: Final = 10
"""Late, refused and failed requests that are traced beside the sample, a second."""
LEFT_OUT: Final = "-"
"""In place of a traceparent: chance has decided against the request, before its end."""
_SPAN_ID = slice(36, 52)


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

    def below(self, request: Request) -> str:
        """Return the traceparent for what another server does for a request, "" for none. A request that is
        traced gets its span's id by that; of any other, its client's goes on as it came."""
        parent = request.trace
        if request.below:
            return request.below if request.below != LEFT_OUT else ""
        if not self._settings.otlp:
            return parent
        if flags_of(parent) & SAMPLED if parent else self._random.random() < self._settings.sample:
            request.below = self._new_span(parent)
            return request.below
        if not parent:
            request.below = LEFT_OUT
        return parent

    def span(self, call: Call) -> str:
        """Return the traceparent of a new span for a call that another cell answers. Return "" for one that
        its client does not sample: that cell decides."""
        if not self._settings.otlp or not call.trace or not flags_of(call.trace) & SAMPLED:
            return ""
        return self._new_span(call.trace)

    def passed(self, call: Call, parent: str, cell: str, reply: Reply) -> None:
        """Trace a call that another cell had, and that has a span's traceparent by `span`."""
        latency_us = now_us() - call.arrived_us
        entry = Entry(describe(call, 0), reply, latency_us, latency_us <= call.due_us)
        trace, span = trace_id_of(call.trace), call.trace[_SPAN_ID]
        self._writer.put(Traced(entry, parent, trace, self._epoch_us, "", span, cell or "none"))

    def ended(self, entry: Entry, parent: str, below: str = "") -> str:
        """Trace a request, if it is to be. Return the trace's id, "" if no collector gets it. `parent`: the
        traceparent that it came with, `below`: the one that it has by the method `below`; "" for none."""
        into_file = self.triton.take(model_of(entry.model)) if self.triton is not None else ""
        sampled = bool(self._settings.otlp) and self._is_sampled(entry, parent, below)
        if not sampled and not into_file:
            return ""
        trace = span = ""
        if sampled and len(below) == PARENT_CHARS:
            trace, span = trace_id_of(below), below[_SPAN_ID]
        elif sampled:
            trace = self._trace_of(parent)
        version = self.version_of(entry.model)
        if not self._writer.put(Traced(entry, parent, trace, self._epoch_us, into_file, span, "", version)):
            return ""
        return trace

    def _new_span(self, parent: str) -> str:
        span = f"{self._random.getrandbits(64) or 1:016x}"
        return f"00-{self._trace_of(parent)}-{span}-{SAMPLED:02x}"

    def _trace_of(self, parent: str) -> str:
        """Return the id of its client's trace, or a new one."""
        return trace_id_of(parent) if parent else f"{self._random.getrandbits(128) or 1:032x}"

    def _is_sampled(self, entry: Entry, parent: str, below: str) -> bool:
        """Return whether a collector gets it: it is chosen, now or before, or it missed its promise."""
        if below:
            chosen = below != LEFT_OUT
        elif parent:
            chosen = bool(flags_of(parent) & SAMPLED)
        else:  # in line: this is what every request costs
            chosen = self._random.random() < self._settings.sample
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
