"""What others on the machine do to a slice for a while: its batches compute more slowly, or stand still.

A disturbance lasts from `at_s` on for `for_s`. Meanwhile others take a share of the slice's time, in stops
of some milliseconds: a busy neighbour under a fair scheduler takes its turn every few milliseconds, a
hypervisor or a real-time program stops a process for 1 to 50 ms. Stops of no length are a slow-down.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

FAIR_STOP_MS = 3.0  # a turn of Linux' fair scheduler on two to eight cores (base_slice_ns)
STOPS_MAX = 1_000_000

_NUMBER = r"(\d+\.?\d*|\.\d+)"
_FORM = re.compile(
    rf"(?P<kind>slow|stops|neighbours)\((?P<how>{_NUMBER}),at=(?P<at>{_NUMBER}),for=(?P<for>{_NUMBER})"
    rf"(,ms=(?P<low>{_NUMBER})\.\.(?P<high>{_NUMBER}))?\)"
)
_FORMS = "slow(3,at=5,for=3), stops(0.3,at=5,for=3,ms=1..50) or neighbours(1,at=5,for=3)"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Others take the share `taken` (0..1) of each slice's time, in stops of `stop_ms` (least, longest)."""

    at_s: float
    for_s: float
    taken: float
    stop_ms: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        low, high = self.stop_ms
        if not (self.at_s >= 0 and self.for_s > 0):
            raise ValueError("a disturbance starts at 0 s or later and lasts longer than 0 s")
        if not (0 < self.taken < 1 and 0 <= low <= high and (low > 0 or high == 0)):
            raise ValueError("a disturbance takes a share within 0..1, in stops of low <= high ms")
        if low and self.for_s * 1000 > STOPS_MAX * low:
            raise ValueError(f"a disturbance has at most {STOPS_MAX:,} stops; lengthen them")


def check_apart(disturbances: Sequence[Disturbance]) -> None:
    """Raise ValueError if two of the disturbances overlap."""
    for before, after in pairwise(sorted(disturbances, key=lambda each: each.at_s)):
        if before.at_s + before.for_s > after.at_s:
            raise ValueError(f"two disturbances overlap at {after.at_s:g} s; let one end before")


def slowed(at_s: float, for_s: float, factor: float) -> Disturbance:
    """Return a disturbance in which batches take `factor` times as long. Raises ValueError if the factor is
    not above 1."""
    if not factor > 1:
        raise ValueError(f"a slow-down has a factor above 1, got {factor:g}")
    return Disturbance(at_s, for_s, 1 - 1 / factor)


def preempted(at_s: float, for_s: float, taken: float, stop_ms: tuple[float, float]) -> Disturbance:
    """Return the slice stands still for stops of random lengths, `taken` of the time in the mean."""
    return Disturbance(at_s, for_s, taken, stop_ms)


def shared(at_s: float, for_s: float, neighbours: int = 1) -> Disturbance:
    """Return a disturbance in which `neighbours` busy programs share the slice's core fairly with it."""
    stop_ms = FAIR_STOP_MS * neighbours
    return Disturbance(at_s, for_s, neighbours / (neighbours + 1), (stop_ms, stop_ms))


def read_disturbances(text: str) -> tuple[Disturbance, ...]:
    """Return what `penstock simulate --disturb` says.

    `slow(3,at=5,for=3)`: batches take three times as long from 5 s on for 3 s.
    `stops(0.3,at=5,for=3,ms=1..50)`: each slice stands still 30 % of the time, for 1 to 50 ms at a time.
    `neighbours(1,at=5,for=3)`: so many busy programs share each core.
    Several are joined by `+`. ValueError says what is wrong, and what would be right.
    """
    return tuple(_read(part.strip()) for part in text.split("+"))


def _read(text: str) -> Disturbance:
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"got {text!r}; expected {_FORMS}")
    kind, how_much, at_s, for_s = found["kind"], float(found["how"]), float(found["at"]), float(found["for"])
    if (found["low"] is None) == (kind == "stops"):
        raise ValueError(f"got {text!r}; ms=1..50 belongs to stops(...), and only there")
    if kind == "slow":
        return slowed(at_s, for_s, how_much)
    if kind == "stops":
        return preempted(at_s, for_s, how_much, (float(found["low"]), float(found["high"])))
    if not (how_much.is_integer() and how_much >= 1):
        raise ValueError(f"got {text!r}; neighbours are a whole number of at least 1")
    return shared(at_s, for_s, int(how_much))


class Uniform(Protocol):
    """A source of random numbers: `random.Random`, or a generator of numpy."""

    def uniform(self, low: float, high: float, /) -> float:
        """Return a number of low..high, all equally likely."""
        ...


class Pace(NamedTuple):
    """From `from_us` on a slice computes `speed` (0..1) of a microsecond's work in a microsecond;
    `done_us`: the work that it could have computed before."""

    from_us: float
    speed: float
    done_us: float


def paces_of(disturbances: Sequence[Disturbance], rng: Uniform) -> list[Pace]:
    """Return the speeds of one slice over time; the last one is full speed."""
    changes = [(0.0, 1.0)]
    for each in disturbances:
        start_us, end_us = each.at_s * 1e6, (each.at_s + each.for_s) * 1e6
        if not each.stop_ms[1]:
            changes.append((start_us, 1 - each.taken))
        else:
            changes += _stops(each, start_us, end_us, rng)
        changes.append((end_us, 1.0))
    paces = [Pace(0.0, 1.0, 0.0)]
    for from_us, speed in changes[1:]:
        before = paces[-1]
        done_us = before.done_us + (from_us - before.from_us) * before.speed
        paces.append(Pace(from_us, speed, done_us))
    return paces


def _stops(each: Disturbance, start_us: float, end_us: float, rng: Uniform) -> list[tuple[float, float]]:
    """Return the changes of speed: stops, and the times between them, which vary as the stops do."""
    low_us, high_us = (1000 * length_ms for length_ms in each.stop_ms)
    between = (1 - each.taken) / each.taken
    changes = []
    at_us = start_us + between * rng.uniform(0, high_us)
    while at_us < end_us:
        stop_us, run_us = rng.uniform(low_us, high_us), rng.uniform(low_us, high_us)
        changes.append((at_us, 0.0))
        if at_us + stop_us < end_us:
            changes.append((at_us + stop_us, 1.0))
        at_us += stop_us + between * run_us
    return changes


def ends_us(paces: Sequence[Pace], start_us: float, work_us: float) -> float:
    """Return when so much work is computed that starts then."""
    at = paces[bisect_right(paces, start_us, key=lambda pace: pace.from_us) - 1]
    done_us = at.done_us + (start_us - at.from_us) * at.speed + work_us
    last = bisect_right(paces, done_us, key=lambda pace: pace.done_us) - 1
    while not paces[last].speed:  # the work was done as the stop began
        last -= 1
    pace = paces[last]
    return pace.from_us + (done_us - pace.done_us) / pace.speed
