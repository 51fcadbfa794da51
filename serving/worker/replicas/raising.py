"""What a model's code raised, for the gateway's log: the whole traceback, once a kind and while."""

import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Final

from serving.worker.frames.arrays import TensorError
from serving.worker.frames.orders import LoadOrder, Raised
from serving.worker.replicas.replicas import describe

WHOLE_EVERY_S: Final = 30.0
"""A traceback of the same kind is written whole after so long: writing one takes 0.1 ms and more, and a model
may raise on each of its batches. The gateway's log says one a minute."""
KINDS_MAX: Final = 200
"""Kinds that are remembered; a model that raises in more places than that tells some of them twice."""
TRACEBACK_CHARS_MAX: Final = 30_000
"""Of a longer traceback the end is kept, which names what was raised."""


class Tracebacks:
    """Of one worker. `now_s` reads a monotonic clock, in seconds."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._written_s: dict[str, float] = {}

    def of(self, error: BaseException, order: LoadOrder, doing: str) -> Raised:
        """Return what `order`'s model raised; `doing` says at which work, for example "while it was
        loaded"."""
        kind = f"{type(error).__qualname__} at {_place(error.__traceback__)}"
        whole = ""
        now_s = self._now_s()
        if now_s - self._written_s.get(kind, -WHOLE_EVERY_S) >= WHOLE_EVERY_S:
            if len(self._written_s) >= KINDS_MAX:
                del self._written_s[next(iter(self._written_s))]
            self._written_s[kind] = now_s
            whole = _written(error)
        return Raised(order.model, order.variant, doing, kind, describe(error), whole)


def _written(error: BaseException) -> str:
    if isinstance(error, TensorError):  # raised by the worker itself: its sentence says all
        return ""
    try:
        return "".join(traceback.format_exception(error)).rstrip()[-TRACEBACK_CHARS_MAX:]
    except Exception as fault:
        return f"the traceback cannot be written: {type(fault).__name__}"


def _place(trace: TracebackType | None) -> str:
    """File and line that raised."""
    place = "an unknown place"
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
