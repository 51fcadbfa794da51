"""What a staircase of load showed: figures of each stair, the best that can be had, and what was broken."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations
from math import isnan, nan, sqrt
from statistics import fmean

import numpy as np

from loadtests.harness.report import IN_TIME, LATE, percentiles

ATTAINMENT_MIN = 0.99
REST = 2
RECOVERED = 0.01
"""By which the variants of the last stair may be less accurate than those of the first, as light."""
ERRORS = 4.0
"""Standard errors by which labels may differ from what a variant's build measured: one run in 16,000 does."""
_NORMAL = 5.0  # the variance of a count from which on a normal law describes it
_ROUNDING = 1e-4  # of an accuracy in a header


@dataclass(frozen=True, slots=True)
class Known:
    """Of each variant: its accuracy as its build measured it, and the rows a second that it can carry; and
    which of them may answer, the most accurate first."""

    accuracy: Mapping[str, float]
    capacity: Mapping[str, float]
    allowed: Sequence[str]

    @property
    def full(self) -> float:
        """Rows a second at load 1: all that the top variant can carry."""
        return self.capacity[self.allowed[0]]

    def best(self, rate: float) -> float:
        """Return the mean accuracy that two of the allowed variants can have together at this many rows a
        second. It is an upper bound: it assumes that no row ever waited. If not even the quickest carries the
        load, it is the quickest variant's accuracy."""
        able = [self.accuracy[name] for name in self.allowed if self.capacity[name] >= rate]
        found = max(able, default=self.accuracy[max(self.allowed, key=lambda name: self.capacity[name])])
        for pair in combinations(self.allowed, 2):
            slow, quick = sorted(pair, key=lambda name: self.capacity[name])
            if self.capacity[slow] < rate < self.capacity[quick]:
                slow_s, quick_s = 1 / self.capacity[slow], 1 / self.capacity[quick]  # of a row
                share = (1 / rate - quick_s) / (slow_s - quick_s)
                mixed = share * self.accuracy[slow] + (1 - share) * self.accuracy[quick]
                found = max(found, mixed)
        return found


@dataclass(frozen=True, slots=True)
class Told:
    """How a request ended. `due_s` from the first instant of the run; `latency_ms` from due; `ending` as
    `report.outcome_name`. Of an answer: its variant, the accuracy that it names (nan for none), why it is
    not a better one, and its rows that are right."""

    due_s: float
    latency_ms: float
    ending: str
    variant: str = ""
    named: float = nan
    downgrade: str = ""
    right: int = 0

    @property
    def answered(self) -> bool:
        """In time or not."""
        return self.ending in (IN_TIME, LATE)


@dataclass(frozen=True, slots=True)
class Stair:
    """A load, in capacities of the top variant, and how long it lasts."""

    load: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the requests that were due in a time; a share of nothing is nan.

    `rate`: rows a second. `accuracy`: of the answers' rows by their labels. `expected`: by what was measured
    of the variants that answered. `best`: as `Known.best`. `turned_away`: the requests that got no answer, by
    ending.
    """

    load: float
    start_s: float
    seconds: float
    rate: float
    offered: int
    attainment: float
    p99_ms: float
    accuracy: float
    expected: float
    best: float
    variants: Mapping[str, int]
    downgrades: Mapping[str, int]
    turned_away: Mapping[str, int]


def staircase(loads: Sequence[float], seconds: float) -> list[Stair]:
    """Return stairs up through these loads and down again, the last load once, then the first once more,
    REST times as long. Rates are means over some seconds, so variants that were stepped down come back after
    them."""
    stairs = [Stair(load, seconds) for load in [*loads, *reversed(loads[:-1])]]
    return [*stairs, Stair(loads[0], REST * seconds)]


def pattern(stairs: Sequence[Stair], full: float) -> str:
    """Return the stairs as `patterns.due_times` reads them; `full`: requests a second at load 1."""
    return "+".join(f"{stair.load * full:.6g}:{stair.seconds:g}" for stair in stairs)


def by_stair(told: Sequence[Told], stairs: Sequence[Stair], rows: int, known: Known) -> list[Figures]:
    """Return the figures of each stair; `rows` a request."""
    found = []
    for stair, end_s in zip(stairs, accumulate(stair.seconds for stair in stairs), strict=True):
        start_s = end_s - stair.seconds
        due = [one for one in told if start_s <= one.due_s < end_s]
        found.append(figures(due, stair, start_s, rows, known))
    return found


def whole(told: Sequence[Told], steps: Sequence[Figures], rows: int, known: Known) -> Figures:
    """Return the figures of all stairs together; `best` there is the mean over the requests."""
    seconds = sum(step.seconds for step in steps)
    load = sum(step.load * step.seconds for step in steps) / seconds
    best = _share(sum(step.best * step.offered for step in steps), len(told))
    return replace(figures(told, Stair(load, seconds), 0.0, rows, known), best=best)


def figures(told: Sequence[Told], stair: Stair, start_s: float, rows: int, known: Known) -> Figures:
    """Return the figures of all these, which were due in this stair."""
    answers = [one for one in told if one.answered]
    expected = [known.accuracy[one.variant] for one in answers if one.variant in known.accuracy]
    return Figures(
        load=stair.load,
        start_s=start_s,
        seconds=stair.seconds,
        rate=len(told) * rows / stair.seconds,
        offered=len(told),
        attainment=_share(sum(one.ending == IN_TIME for one in told), len(told)),
        p99_ms=percentiles(np.asarray([one.latency_ms for one in answers]), {"p99": 99})["p99"],
        accuracy=_share(sum(one.right for one in answers), len(answers) * rows),
        expected=fmean(expected) if expected else nan,
        best=known.best(stair.load * known.full),
        variants=_counted(one.variant for one in answers),
        downgrades=_counted(one.downgrade for one in answers if one.downgrade),
        turned_away=_counted(one.ending for one in told if not one.answered),
    )


def untrue(told: Sequence[Told], rows: int, known: Known) -> list[str]:
    """Return a sentence for each way in which answers are untrue. They name another accuracy than their
    variant's, or labels contradict what the build of the model measured."""
    faults = []
    for variant in sorted({one.variant for one in told if one.answered}):
        answers = [one for one in told if one.answered and one.variant == variant]
        accuracy = known.accuracy.get(variant)
        if accuracy is None:
            faults.append(f"{len(answers)} answers name the variant {variant!r}, which there is not")
            continue
        if silent := sum(isnan(one.named) for one in answers):
            faults.append(f"{silent} answers of {variant} name no accuracy")
        if wrong := sum(abs(one.named - accuracy) > _ROUNDING for one in answers):
            faults.append(f"{wrong} answers of {variant} name another accuracy than its {accuracy:.4f}")
        count = len(answers) * rows
        found, variance = sum(one.right for one in answers) / count, accuracy * (1 - accuracy)
        if count * variance >= _NORMAL and abs(found - accuracy) > ERRORS * sqrt(variance / count):
            faults.append(
                f"by {count} labels {variant} is {found:.4f} accurate, its build says {accuracy:.4f}"
            )
    return faults


def below(told: Sequence[Told], floor: float, allowed: Iterable[str]) -> list[str]:
    """Return the answers that must not have been given: below the floor, or by a variant that is."""
    may = set(allowed)
    less = sum(one.answered and one.named < floor - _ROUNDING for one in told)
    others = Counter(one.variant for one in told if one.answered and one.variant not in may)
    faults = [f"{less} answers name an accuracy below the floor of {floor:g}"] if less else []
    return faults + [f"{n} answers are by {name or 'nobody'}, below the floor of {floor:g}"
                     for name, n in others.items()]  # fmt: skip


def unscaled(steps: Sequence[Figures], others: Sequence[Sequence[Figures]]) -> list[str]:
    """Return a sentence for each failure of accuracy to give way to load, or to come back after it. `steps`
    are the ladder's stairs. `others` are the same stairs of fixed variants, which say what load a variant can
    carry."""
    carrying = (max(turn[number].attainment for turn in others) for number in range(len(steps)))
    carried = [
        one for one, best in zip(steps, carrying, strict=True) if best >= ATTAINMENT_MIN and one.offered
    ]
    offered = sum(one.offered for one in carried)
    attainment = sum(one.attainment * one.offered for one in carried) / (offered or 1)
    faults = []
    if offered and attainment < ATTAINMENT_MIN:
        loads = ", ".join(f"{one.load:g}" for one in carried)
        faults.append(f"{attainment:.2%} in time at loads that a fixed variant carries ({loads})")
    first, last = steps[0], steps[-1]
    if not last.expected >= first.expected - RECOVERED:
        faults.append(f"accuracy is {last.expected:.4f} at the end, at the start it was {first.expected:.4f}")
    return faults


def _share(part: float, whole: float) -> float:
    return part / whole if whole else nan


def _counted(names: Iterable[str]) -> dict[str, int]:
    """Return the most frequent first."""
    return dict(Counter(names).most_common())
