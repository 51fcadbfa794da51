"""The sequences of one model: which are live, in which slot of which replica, and which wait for a slot.

The semantics are those of Triton's sequence batcher (`sequence_batch_scheduler.cc`). A sequence keeps its
slot from START to END. A START for a live id begins it again in the same slot. Idle sequences end.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from serving.scheduler.waiting.requests import Request
from serving.values.sequences import SequenceId, SequenceSpec
from serving.values.vocabulary import BAD_INPUT, NEVER_US, SEQUENCE_LOST, Outcome

Key = tuple[str, SequenceId]
"""Tenant and id: no tenant reaches another's sequence."""

TOLD_MAX = 4096
"""Sequences that ended unasked, of which the next request is told why."""


class Place:
    """A replica's slots. `closing`: it takes no new sequence, as it is to go."""

    __slots__ = ("closing", "free", "live", "replica", "slice", "variant")

    def __init__(self, slice_name: str, variant: str, replica: int, slots: int) -> None:
        self.slice = slice_name
        self.variant = variant
        self.replica = replica
        self.free = list(range(slots))  # a heap: the lowest first, as the rows of a direct batch are dense
        self.live: dict[int, Sequence] = {}
        self.closing = False


class Sequence:
    """A sequence from START to END.

    `place` and `slot`: where it is, None and -1 while it waits for a slot. `waiting`: its accepted requests
    that are not in the queue, in order; `head`: the one that is, or that runs. `begun`: a batch with a
    request of it is back. `closing`: its END was accepted. `over`: it ended unasked, and takes no more.
    `heard_us`: when a request of it last came or was done. `variants`: those that may answer it.
    """

    __slots__ = (
        "begun", "closing", "head", "heard_us", "key", "number", "over", "place", "slot", "variants",
        "waiting",
    )  # fmt: skip

    def __init__(self, key: Key, number: int, variants: tuple[str, ...], now_us: int) -> None:
        self.key = key
        self.number = number
        self.variants = variants
        self.heard_us = now_us
        self.place: Place | None = None
        self.slot = -1
        self.waiting: deque[Request] = deque()
        self.head: Request | None = None
        self.begun = False
        self.closing = False
        self.over = False

    @property
    def idle(self) -> bool:
        """Return whether no request of it waits or runs."""
        return self.head is None and not self.waiting


class SequenceCounts:
    """How many sequences of a model have started, and how they ended."""

    __slots__ = ("ended", "idle", "lost", "started")

    def __init__(self) -> None:
        self.started = 0
        self.ended = 0  # by END, or by another START
        self.idle = 0
        self.lost = 0  # a worker died, or a request of it ended before it ran


@dataclass(frozen=True)
class SequenceStanding:
    """The sequences of a model at one moment. `live`: those with a slot; `waiting`: those that wait for one;
    `slots`: of all its replicas. The others are counts since the start, as in SequenceCounts."""

    strategy: str
    slots: int
    live: int
    waiting: int
    started: int
    ended: int
    idle: int
    lost: int


class SequenceBook:
    """The sequences of one model."""

    __slots__ = ("_count", "_timers", "_told", "by_number", "counts", "live", "model", "places", "spec",
                 "unplaced")  # fmt: skip

    def __init__(self, model: str, spec: SequenceSpec) -> None:
        self.model = model
        self.spec = spec
        self.live: dict[Key, Sequence] = {}  # those that take further requests
        self.by_number: dict[int, Sequence] = {}  # all that have not ended
        self.places: dict[tuple[str, str], Place] = {}
        self.unplaced: dict[tuple[str, ...], deque[Sequence]] = {}  # by the variants that may answer
        self.counts = SequenceCounts()
        self._told: dict[Key, tuple[Outcome, str]] = {}
        self._timers: list[tuple[int, int]] = []  # heap of (instant, number)
        self._count = 0

    def standing(self) -> SequenceStanding:
        """Return how many sequences there are, and were."""
        places, counts = self.places.values(), self.counts
        live = sum([len(place.live) for place in places])
        slots = live + sum([len(place.free) for place in places])
        waiting = sum([len(line) for line in self.unplaced.values()])
        return SequenceStanding(
            self.spec.strategy, slots, live, waiting, counts.started, counts.ended, counts.idle, counts.lost
        )

    def refusal(self, request: Request) -> tuple[Outcome, str] | None:
        """Return why a request cannot be of the sequence that it names; None if it can.

        The variants of a request that can become those of its sequence.
        """
        step = request.step
        if step is None:
            return None
        key = (request.tenant, step.id)
        found = self.live.get(key)
        if found is None:
            return None if step.start else self._told.get(key) or (BAD_INPUT, self._unknown(step.id))
        if found.place is None:
            return None
        variant = found.place.variant
        if variant not in request.variants:
            asked = " or ".join(request.variants)
            what = f"sequence {step.id} of model '{self.model}' runs on variant '{variant}' until it ends"
            return BAD_INPUT, f"{what}; got a request for {asked}"
        request.variants = (variant,)
        return None

    def join(self, request: Request, now_us: int) -> tuple[Sequence, bool]:
        """Return the sequence of an accepted request, with the request behind its others, and whether it is
        new."""
        step = request.step
        assert step is not None  # noqa: S101  # the caller has looked
        key = (request.tenant, step.id)
        found = self.live.get(key)
        fresh = found is None
        if found is None:
            self._count += 1
            found = self.live[key] = Sequence(key, self._count, request.variants, now_us)
            self.by_number[found.number] = found
        elif step.start:
            self.counts.ended += 1  # Triton ends the earlier one, too
        self.counts.started += int(step.start)
        self._told.pop(key, None)
        found.heard_us = now_us
        found.waiting.append(request)
        request.sequence = found.number
        if step.end:
            found.closing = True
            del self.live[key]
        return found, fresh

    def seat(self, sequence: Sequence, place: Place) -> None:
        """Give a sequence a slot of a place with a free one."""
        sequence.place, sequence.slot = place, heappop(place.free)
        place.live[sequence.number] = sequence

    def unseat(self, sequence: Sequence) -> None:
        """Take a sequence from its slot, which is free from now on."""
        place = sequence.place
        if place is not None and place.live.pop(sequence.number, None) is not None:
            heappush(place.free, sequence.slot)
        sequence.place, sequence.slot = None, -1

    def wait(self, sequence: Sequence, first: bool = False) -> None:
        """Let a sequence wait for a slot; `first`: before those that wait already."""
        line = self.unplaced.setdefault(sequence.variants, deque())
        if first:
            line.appendleft(sequence)
        else:
            line.append(sequence)

    def next_for(self, place: Place) -> Sequence | None:
        """Return the sequence that has waited longest for a slot of such a place, and take it from its
        line."""
        oldest: tuple[str, ...] | None = None
        for variants, line in self.unplaced.items():
            if place.variant in variants and (
                oldest is None or line[0].number < self.unplaced[oldest][0].number
            ):
                oldest = variants
        if oldest is None:
            return None
        found = self.unplaced[oldest].popleft()
        if not self.unplaced[oldest]:
            del self.unplaced[oldest]
        return found

    def close(self, sequence: Sequence) -> None:
        """Let a sequence take no further request."""
        sequence.over = True
        if self.live.get(sequence.key) is sequence:
            del self.live[sequence.key]

    def forget(self, sequence: Sequence) -> None:
        """Forget a sequence without open requests, wherever it is."""
        self.by_number.pop(sequence.number, None)
        line = self.unplaced.get(sequence.variants)
        if sequence.place is None and line is not None and sequence in line:
            line.remove(sequence)
            if not line:
                del self.unplaced[sequence.variants]
        self.unseat(sequence)

    def tell(self, sequence: Sequence, outcome: Outcome, why: str) -> None:
        """Let the next request of a sequence that ended unasked hear why."""
        if sequence.closing:
            return  # its client has said its last
        if len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        text = why if outcome is SEQUENCE_LOST else f"{self._unknown(sequence.key[1])}; {why}"
        self._told[sequence.key] = outcome, text

    def lost_text(self, sequence: Sequence, why: str) -> str:
        """Return a sentence for the requests of a sequence that is lost."""
        return (
            f"sequence {sequence.key[1]} of model '{self.model}' is lost: {why};"
            " start it again with the START flag"
        )

    def _unknown(self, sequence_id: SequenceId) -> str:
        return (
            f"inference request for sequence {sequence_id} to model '{self.model}' must specify the START"
            " flag on the first request of the sequence"
        )

    # times

    def watch(self, sequence: Sequence, due_us: int) -> None:
        """Look at a sequence at that instant, too."""
        if len(self._timers) > 2 * len(self.by_number) + 64:  # forget those that ended before
            self._timers = [each for each in self._timers if each[1] in self.by_number]
            heapify(self._timers)
        heappush(self._timers, (due_us, sequence.number))

    @property
    def due_us(self) -> int:
        """When a sequence is to be looked at; NEVER_US for never."""
        return self._timers[0][0] if self._timers else NEVER_US

    def due(self, now_us: int) -> Sequence | None:
        """Return a sequence that is to be looked at by now; None if there is no other."""
        while self._timers and self._timers[0][0] <= now_us:
            found = self.by_number.get(heappop(self._timers)[1])
            if found is not None:
                return found
        return None
