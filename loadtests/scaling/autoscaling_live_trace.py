"""A day in minutes, with a crowd that comes at once; and what became of the count of replicas meanwhile."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from loadtests.harness.report import IN_TIME
from loadtests.selection.variants_scores import Figures, Told
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, Seconds, diurnal, draw

FLASH_AT = 0.12
"""When the crowd comes, as a share of the day: in the morning, while few replicas are there."""
FLASH_S = 6.0
"""For how long it stays; hardly longer than a replica takes to start."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a day: the load at night, at noon, and of the crowd, in capacities of one replica."""

    low: float
    peak: float
    flash: float


def day(shape: Shape, day_s: float, full: float) -> list[RateStep]:
    """Return the steps of one day of `day_s` seconds: a cosine from night to night. For FLASH_S the crowd's
    load replaces the day's. `full`: requests a second that one replica carries.

    Raises ValueError if the day has no room for the crowd.
    """
    from_s = FLASH_AT * day_s
    until_s = from_s + FLASH_S
    if not until_s < day_s:
        raise ValueError(f"a day of {day_s:g} s has no room for a crowd of {FLASH_S:g} s")
    steps: list[RateStep] = []
    start_s = 0.0
    for step in diurnal(shape.low * full, shape.peak * full, day_s, day_s):
        end_s = start_s + step.seconds
        before_s, after_s = min(end_s, from_s) - start_s, end_s - max(start_s, until_s)
        if before_s > 0:
            steps.append(RateStep(step.rate, before_s))
        if start_s <= from_s < end_s:
            steps.append(RateStep(shape.flash * full, FLASH_S))
        if after_s > 0:
            steps.append(RateStep(step.rate, after_s))
        start_s = end_s
    return steps


def arrivals(steps: Sequence[RateStep], seed: int) -> Seconds:
    """Draw when requests are due: Poisson arrivals at these rates, the same for the same seed."""
    return draw(steps, POISSON_CV, np.random.default_rng(seed))


@dataclass(frozen=True, slots=True)
class Count:
    """There were `count` replicas from `at_s` on."""

    at_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Round:
    """A day that was played. `worst`: as the function. `held_s`: replica-seconds of the day, `cost` of them;
    `changes`: how often the model was given more or fewer. `counts` by when they changed, and when requests
    were due that were `offered`, and answered in time (`good`): seconds of the day. `voids`: why not to
    believe it."""

    subject: str
    provision: str
    figures: Figures
    worst: float
    held_s: float
    cost: float
    changes: int
    counts: Sequence[Count]
    good: Sequence[float]
    offered: Sequence[float]
    voids: Sequence[str]


def changes(counts: Sequence[Count]) -> list[Count]:
    """Return the first reading and those that differ from the one before; readings are in order of their
    times."""
    return [*counts[:1], *(after for before, after in pairwise(counts) if after.count != before.count)]


def held_seconds(counts: Sequence[Count], from_s: float, until_s: float) -> float:
    """Return the replica-seconds between two instants: the integral of a count that is level until it
    changes.

    Raises ValueError if nothing is known of the start.
    """
    if not counts or counts[0].at_s > from_s:
        raise ValueError(f"nobody counted before {from_s:g} s")
    ends_s = [*(one.at_s for one in counts[1:]), until_s]
    return sum(
        one.count * max(min(end_s, until_s) - max(one.at_s, from_s), 0.0)
        for one, end_s in zip(counts, ends_s, strict=True)
    )


def worst(told: Sequence[Told], span_s: float, window_s: float = 10.0, step_s: float = 1.0) -> float:
    """Return the least share of requests in time among those that were due in any window of `window_s`, moved
    on by `step_s`; 1 where none had any. `told` in the order in which they were due."""
    due_s = [one.due_s for one in told]
    good = np.concatenate(([0], np.cumsum([one.ending == IN_TIME for one in told])))
    found = 1.0
    for start_s in np.arange(0.0, max(span_s - window_s, 0.0) + step_s / 2, step_s).tolist():
        first, last = bisect_left(due_s, start_s), bisect_left(due_s, start_s + window_s)
        if last > first:
            found = min(found, float(good[last] - good[first]) / (last - first))
    return found
