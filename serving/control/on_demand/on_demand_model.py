"""The state of one model on a slice with too little memory for all, and the orders for it."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from serving.policy.residency import Candidate, Key

HOLD_US: Final = 100_000
"""The least time that a variant stays after a load for a request; its load time, if that is longer.

In that time the waiting requests come. And at most half of the time goes into loading what is evicted again.
"""
RETRY_FIRST_US: Final = 1_000_000
RETRY_MAX_US: Final = 60_000_000
"""The pause between two tries of a load that fails, doubling. Each try may evict another model."""
SLOW_US: Final = 2_000_000
"""A load that takes longer has the next one beside it, as in the worker
(`serving.worker.loop.loader.SLOW_S`)."""
BESIDE_MAX: Final = 8
"""Loads at once, as in the worker."""
UNSURE: Final = 4
"""A model of unknown size may load beside others if there is room for so many times its estimate."""


class LoadState(StrEnum):
    """The state of a model on the slice."""

    ABSENT = "absent"
    QUEUED = "to be loaded"
    LOADING = "loading"
    RESIDENT = "resident"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """The memory and the load time of a variant, as known before it was loaded here.

    `share`: of the requests for its model. `slo_us`: how soon these must be answered. `known`: the memory was
    measured, not estimated.
    """

    memory_bytes: int
    load_us: float
    share: float = 1.0
    slo_us: float = inf
    known: bool = True


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """Load the variant; `loaded` or `failed` follows."""

    key: Key


@dataclass(frozen=True, slots=True)
class BeginUnload:
    """Send the variant no more batches, and unload it; `unloaded` follows."""

    key: Key


@dataclass(frozen=True, slots=True)
class Ready:
    """The variant is loading, or loads next, and is ready at about `ready_us`; the latest order counts."""

    key: Key
    ready_us: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The variant is not loaded for the requests that wait for it."""

    key: Key
    reason: str


Order = BeginLoad | BeginUnload | Ready | Refuse


@dataclass(slots=True)
class OnDemandModel:
    """A model that may be on the slice.

    `held_bytes`: its memory until it is unloaded. `promised_bytes`: the room that is kept for it while it
    waits to be loaded, else 0. `beside_bytes`: what is planned for the loads that run beside its own.
    """

    figures: LoadFigures
    residence: LoadState = LoadState.ABSENT  # `promised_bytes` says QUEUED: it may still be leaving
    desired: bool = True
    asked: bool = False  # a request waits for it to be loaded
    held_bytes: int = 0
    promised_bytes: int = 0
    since_us: int = 0  # its loading began
    beside_bytes: int = 0
    clouded: bool = False  # its load's memory is unknown, because others leave at the same time
    keep_us: int = 0  # until then it is not evicted
    taken_bytes: tuple[int, ...] = ()  # by its latest two loads
    took_us: float = 0.0
    oversized: bool = False
    failures: int = 0
    retry_us: int = 0

    @property
    def need_bytes(self) -> int:
        """The room that it needs: the larger of its latest two loads.

        The first load of a process may bring libraries that the next load finds there, and a load into freed
        memory seems to take none. After one load it is the memory of that load, but at least half of the
        estimate.
        """
        estimate = self.figures.memory_bytes // (1 + bool(self.taken_bytes))
        known = self.taken_bytes if len(self.taken_bytes) > 1 else (*self.taken_bytes, estimate)
        return max(1, *known)

    @property
    def unsure_bytes(self) -> int:
        """The room beyond its plan that must be free for it to load beside others."""
        known = self.figures.known or self.taken_bytes
        return 0 if known else (UNSURE - 1) * (self.promised_bytes or self.held_bytes or self.need_bytes)

    @property
    def load_us(self) -> float:
        """The time of its load."""
        return max(self.took_us or self.figures.load_us, 1.0)

    def learn(self, load_us: int, memory_bytes: int, limit_bytes: int) -> int:
        """Take the cost of a load; return the memory that counts for it now.

        The process grows by all loads that run at once, and shrinks by those that leave. So a load beside
        others tells no size. It counts as planned, or with what the others' plans do not explain; a model of
        unknown size counts with all growth. A size above the whole slice counts only the second time.
        """
        self.took_us = (self.took_us + load_us) / 2 if self.took_us else float(load_us)
        self.failures = 0
        if self.beside_bytes:
            others_bytes = 0 if self.unsure_bytes else self.beside_bytes
            return max(self.held_bytes, memory_bytes - others_bytes)
        if self.clouded:
            memory_bytes = max(memory_bytes, self.held_bytes)
        if memory_bytes <= limit_bytes or self.oversized:
            self.taken_bytes = (*self.taken_bytes[-1:], memory_bytes)
        self.oversized = memory_bytes > limit_bytes
        return max(self.need_bytes, memory_bytes)

    def forget_oversize(self, limit_bytes: int) -> None:
        """Forget a too large size, as it may differ in a new process."""
        self.oversized = False
        if self.need_bytes > limit_bytes:
            self.taken_bytes = ()

    def forget(self) -> None:
        """Forget what was learnt, and the failures, because the files have changed."""
        self.taken_bytes, self.took_us, self.oversized = (), 0.0, False
        self.failures = self.retry_us = 0

    def may_go(self, now_us: int) -> bool:
        """Return whether it is resident, and has been for long enough."""
        return self.residence is LoadState.RESIDENT and self.keep_us <= now_us

    def fail(self, now_us: int) -> int:
        """Take the failure of a load; return how long it is not tried again."""
        pause_us = min(RETRY_FIRST_US << min(self.failures, 20), RETRY_MAX_US)
        self.failures += 1
        self.retry_us = now_us + pause_us
        return pause_us

    def remaining_us(self, now_us: int) -> float:
        """Return about how long its load goes on; a late load is late for as long again (Lindy)."""
        return abs(self.load_us - (now_us - self.since_us))

    def alone_us(self, now_us: int) -> float:
        """Return about how long no other load begins beside its own."""
        return min(self.remaining_us(now_us), max(SLOW_US - (now_us - self.since_us), 0))

    def candidate(self, key: Key, rate: float) -> Candidate:
        """Return it as a candidate for loading or eviction. `rate`: requests a second for its model."""
        return Candidate(key, self.held_bytes or self.need_bytes, self.load_us, rate * self.figures.share)
