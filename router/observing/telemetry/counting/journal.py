"""The last requests and their batches, in memory of a bounded size.

Two rings, so that a flood of good answers does not drive out the few that were not: one of all requests, and
one of those that were late, refused or failed. An entry is a few numbers and names, never a tensor.
"""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

from serving.ports import Reply
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Request
from serving.values.vocabulary import COMPLETED, Outcome

KEPT: Final = 4096
"""Entries of each ring. One takes some hundred bytes, and a batch as much for each few mates."""
MATES_MAX: Final = 32
"""Requests of a batch that are named."""
DIGITS_MAX: Final = 18
"""Of a number; Python refuses to read one of thousands."""
LAST: Final = "last"
"""The name of the latest request that was late, refused or failed."""


class RanBatch:
    """A batch as its requests' entries have it. `mates`: its first requests, each with its number, its name
    and its rows."""

    __slots__ = (
        "compute_us", "elapsed_us", "id", "mates", "model", "predicted_us", "requests", "rows", "size",
        "slice", "started_us", "typical_us", "variant",
    )  # fmt: skip

    def __init__(self, batch: RunBatch, compute_us: int, elapsed_us: int) -> None:
        self.id: int = batch.id
        self.model: str = batch.model
        self.slice: str = batch.slice
        self.variant: str = batch.variant
        self.rows: int = batch.rows
        self.requests: int = len(batch.pieces)
        self.size: int = batch.size
        self.started_us: int = batch.started_us
        self.predicted_us: float = batch.predicted_us
        self.typical_us: float = batch.typical_us
        self.compute_us: int = compute_us
        self.elapsed_us: int = elapsed_us
        first = batch.pieces[:MATES_MAX]
        self.mates: list[tuple[int, str, int]] = [
            (each.request.id, each.request.name, each.rows) for each in first
        ]


class Entry:
    """A request that has ended. `latency_us`: from its arrival to its end. `batch`: the last that it was in;
    of one that was in none, `then` is the model's latest batch before its end."""

    __slots__ = (
        "arrived_us", "batch", "batch_us", "cache", "compute_us", "detail", "downgrade", "due_us", "input_us",
        "latency_us", "model", "name", "number", "outcome", "output_us", "queue_us", "rows", "size", "tenant",
        "then", "tier", "variant", "variants", "within",
    )  # fmt: skip

    def __init__(self, request: Request, reply: Reply, latency_us: int, within: bool) -> None:
        self.number: int = request.id
        self.name: str = request.name
        self.model: str = request.model
        self.tenant: str = request.tenant
        self.tier: str = request.tier
        self.rows: int = request.rows
        self.size: int = request.size
        self.variants: tuple[str, ...] = request.variants
        self.arrived_us: int = request.arrived_us
        self.due_us: int = request.deadline_us - request.arrived_us
        self.latency_us: int = latency_us
        self.within: bool = within
        self.outcome: Outcome = reply.outcome
        self.detail: str = reply.detail
        self.variant: str = reply.variant
        self.downgrade: str = reply.downgrade
        self.cache: str = reply.cache
        self.queue_us: int = reply.queue_us
        self.batch_us: int = reply.batch_us
        self.input_us: int = reply.input_us
        self.compute_us: int = reply.compute_us
        self.output_us: int = reply.output_us
        self.batch: RanBatch | None = None
        self.then: RanBatch | None = None


class Journal:
    """What is known of the last requests. `ended`: all that have."""

    def __init__(self, kept: int = KEPT) -> None:
        self._all: deque[Entry] = deque(maxlen=kept)
        self._notable: deque[Entry] = deque(maxlen=kept)
        self._latest: dict[str, RanBatch] = {}  # by model
        self.ended = 0

    def ran(self, batch: RunBatch, compute_us: int, elapsed_us: int) -> None:
        """Note that a batch is back."""
        ran = RanBatch(batch, compute_us, elapsed_us)
        self._latest[ran.model] = ran
        for piece in batch.pieces:
            piece.request.ran = ran

    def done(self, request: Request, reply: Reply, latency_us: int, within: bool) -> Entry:
        """Note that a request has ended; return what is kept of it."""
        entry = Entry(request, reply, latency_us, within)
        ran = request.ran
        if isinstance(ran, RanBatch):
            entry.batch = ran
        self._all.append(entry)
        self.ended += 1
        if reply.outcome is not COMPLETED or not within:
            if entry.batch is None:
                entry.then = self._latest.get(entry.model)
            self._notable.append(entry)
        return entry

    def find(self, name: str) -> Entry | None:
        """Return the latest request of that name, or of that number; `LAST`: the latest notable one."""
        if name == LAST:
            return self._notable[-1] if self._notable else None
        number = int(name) if name.isascii() and name.isdigit() and len(name) <= DIGITS_MAX else 0
        for entry in self._newest():
            if entry.name == name or (number and entry.number == number):
                return entry
        return None

    def notable(self, model: str, count: int) -> list[Entry]:
        """Return the latest requests that were late, refused or failed, newest first. `model`: "" for any."""
        found = [each for each in reversed(self._notable) if not model or each.model == model]
        return found[:count]

    def latest(self, count: int) -> list[Entry]:
        """Return so many of the latest requests, or all that are kept."""
        return list(self._all)[-count:] if count > 0 else []

    def shapes(self) -> dict[str, tuple[Counter[int], Counter[int]]]:
        """Return by model how often the kept requests had each number of rows, and each size (0: its model
        has none)."""
        found: dict[str, tuple[Counter[int], Counter[int]]] = {}
        for each in self._all:
            rows, sizes = found.setdefault(each.model, (Counter(), Counter()))
            rows[each.rows] += 1
            sizes[each.size] += 1
        return found

    def _newest(self) -> Iterator[Entry]:
        yield from reversed(self._all)
        yield from reversed(self._notable)
