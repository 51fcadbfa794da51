"""What is known of a model on a slice with too little memory for all, and what may be done with it."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from serving.policy.residency import Candidate, Key

HOLD_US: Final = 100_000
"""What was loaded for a request stays for so long, or for as long as its loading took where that is more:
until it is known who waits for it, and so that at most half of the time goes into loading what goes again."""
RETRY_FIRST_US: Final = 1_000_000
RETRY_MAX_US: Final = 60_000_000
"""Between two tries of a load that fails: doubling. Each may cost another model its place."""


class LoadState(StrEnum):
    """Where a model stands on the slice."""

    ABSENT = "absent"
    QUEUED = "to be loaded"
    LOADING = "loading"
    RESIDENT = "resident"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """What is known of a variant before it was loaded here: the memory and the time that loading it takes.
    `share`: of the requests for its model; `slo_us`: how soon these are to be answered."""

    memory_bytes: int
    load_us: float
    share: float = 1.0
    slo_us: float = inf


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """Load it; `loaded` or `failed` follows."""

    key: Key


@dataclass(frozen=True, slots=True)
class BeginUnload:
    """Send it nothing more, and let it go; `unloaded` follows."""

    key: Key


@dataclass(frozen=True, slots=True)
class Ready:
    """It is being loaded, or will be next, and is there at about that instant: the latest word counts."""

    key: Key
    ready_us: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """It is not loaded for the requests that wait for it."""

    key: Key
    reason: str


Order = BeginLoad | BeginUnload | Ready | Refuse


@dataclass(slots=True)
class OnDemandModel:
    """A model that may be there. `held_bytes`: what it holds until it has gone; `promised_bytes`: the room
    that is kept for it while it waits to be loaded, 0 where it does not."""

    figures: LoadFigures
    residence: LoadState = LoadState.ABSENT  # QUEUED is in `promised_bytes`: it may be leaving still
    desired: bool = True
    asked: bool = False  # a request waits for it to be loaded
    held_bytes: int = 0
    promised_bytes: int = 0
    since_us: int = 0  # its loading began
    keep_us: int = 0  # until then it stays
    taken_bytes: tuple[int, ...] = ()  # by its latest two loads
    took_us: float = 0.0
    oversized: bool = False
    failures: int = 0
    retry_us: int = 0

    @property
    def need_bytes(self) -> int:
        """The room that it needs: what it took of late, the more of two loads. The first load of a process
        may bring libraries that the next find there, and one into freed memory seems to take none. After one
        load it is what that took, but at least half of what was estimated."""
        estimate = self.figures.memory_bytes // (1 + bool(self.taken_bytes))
        known = self.taken_bytes if len(self.taken_bytes) > 1 else (*self.taken_bytes, estimate)
        return max(1, *known)

    @property
    def load_us(self) -> float:
        """How long its loading takes."""
        return max(self.took_us or self.figures.load_us, 1.0)

    def learn(self, load_us: int, memory_bytes: int, limit_bytes: int) -> None:
        """It was loaded. That it is larger than the whole slice is believed the second time."""
        self.took_us = (self.took_us + load_us) / 2 if self.took_us else float(load_us)
        self.failures = 0
        if memory_bytes <= limit_bytes or self.oversized:
            self.taken_bytes = (*self.taken_bytes[-1:], memory_bytes)
        self.oversized = memory_bytes > limit_bytes

    def forget_oversize(self, limit_bytes: int) -> None:
        """Another process may find it smaller."""
        self.oversized = False
        if self.need_bytes > limit_bytes:
            self.taken_bytes = ()

    def forget(self) -> None:
        """What was learnt of it, and how often it failed, is of other files."""
        self.taken_bytes, self.took_us, self.oversized = (), 0.0, False
        self.failures = self.retry_us = 0

    def may_go(self, now_us: int) -> bool:
        """It is there, and has been for long enough."""
        return self.residence is LoadState.RESIDENT and self.keep_us <= now_us

    def fail(self, now_us: int) -> int:
        """A load failed; returns for how long it is not tried again."""
        pause_us = min(RETRY_FIRST_US << min(self.failures, 20), RETRY_MAX_US)
        self.failures += 1
        self.retry_us = now_us + pause_us
        return pause_us

    def remaining_us(self, now_us: int) -> float:
        """How long its loading goes on, about; one that is late is late for as long again (Lindy)."""
        return abs(self.load_us - (now_us - self.since_us))

    def candidate(self, key: Key, rate: float) -> Candidate:
        """As who is let in or goes. `rate`: requests a second for its model."""
        return Candidate(key, self.held_bytes or self.need_bytes, self.load_us, rate * self.figures.share)
