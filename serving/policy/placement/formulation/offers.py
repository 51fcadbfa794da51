"""What replicas of many demands carry on the devices of a pool, looked up rather than tried out.

Thousands of demands share few profiles. So the module keeps the measured batches of each option in the order
of their latencies, each with the best so far. What an option carries within a budget is then a look-up.
"""

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass
from math import floor

from serving.policy.placement.terms.plan import ROUNDING
from serving.policy.placement.terms.problem import Demand, Instances, Offer, Option, Parts, Pool
from serving.values.slice_specs import Share

Point = tuple[int, float]
"""(rows of a batch, the microseconds that it takes)."""


@dataclass(frozen=True, slots=True)
class _Steps:
    """The best batch of an option for each of its latencies.

    `best`: of the measured batches that take up to each of `latencies_us` (ascending), the one with the most
    throughput.
    """

    latencies_us: tuple[float, ...]
    best: tuple[Point, ...]

    @staticmethod
    def of(option: Option) -> "_Steps":
        points = sorted(option.curve, key=lambda point: (point[1], point[0]))
        best = points[:1]
        for rows, us in points[1:]:
            best.append(max(best[-1], (rows, us), key=lambda each: (each[0] / each[1], -each[0])))
        return _Steps(tuple(us for _, us in points), tuple(best))

    def within(self, budget_us: float) -> Point | None:
        place = bisect_right(self.latencies_us, budget_us)
        return self.best[place - 1] if place else None


def size(pool: Pool, share: Share) -> Hashable:
    """Return a key by which two shares of a pool's devices are equal: the instance's profile name, or the
    amount."""
    return share.label if isinstance(pool.division, Instances) else share.amount


class Offers:
    """The best offers of demands on one pool.

    It knows options by their identity, so the problem has to live as long as it does.

    `between`: replicas may take turns, and then a batch may have any number of rows (`shared_slices.py`). A
    replica of several processes has its slice for itself, and runs measured batches.
    """

    def __init__(self, pool: Pool, between: bool = False) -> None:
        self._pool = pool
        self._between = between
        self._lean = isinstance(pool.division, Parts) and pool.memory_bytes > 0
        self._fits: dict[int, bool] = {}
        self._steps: dict[int, _Steps] = {}  # of options that are asked for again

    def of(self, demand: Demand) -> list[Offer]:
        """Return the best offer of each size within the slack, of the options that fit.

        The rule is that in `Demand.offers`. If memory is shared and limited, return also the offers that need
        less of it than all better ones.
        """
        found: dict[Hashable, list[Offer]] = {}
        for option in demand.options:
            offer = self._offer(option, demand.slack * demand.slo_us)
            if offer is None:
                continue
            there = found.setdefault(size(self._pool, option.share), [])
            if not any(self._as_good(other, offer) for other in there):
                there[:] = [other for other in there if not self._as_good(offer, other)]
                there.append(offer)
        return [offer for there in found.values() for offer in there]

    def _offer(self, option: Option, budget_us: float) -> Offer | None:
        key = id(option)
        if key not in self._fits:
            self._fits[key] = self._pool.fits(option)
            offer = option.offer(budget_us) if self._fits[key] else None
        else:
            offer = self._known(option, budget_us) if self._fits[key] else None
        if offer is None or not self._between or option.processes > 1:
            return offer
        rows, us = _largest(option, budget_us * (1 + ROUNDING))
        return max(offer, Offer(option, rows, us, rows * 1e6 / us), key=lambda each: each.throughput)

    def _known(self, option: Option, budget_us: float) -> Offer | None:
        steps = self._steps.get(id(option))
        if steps is None:
            steps = self._steps[id(option)] = _Steps.of(option)
        point = steps.within(budget_us)
        return Offer(option, *point, option.processes * point[0] * 1e6 / point[1]) if point else None

    def _as_good(self, one: Offer, other: Offer) -> bool:
        if self._lean and one.option.memory_bytes > other.option.memory_bytes:
            return False
        if one.throughput == other.throughput:
            return one.option.memory_bytes <= other.option.memory_bytes
        return one.throughput > other.throughput


def _largest(option: Option, budget_us: float) -> Point:
    """Return the largest batch of any number of rows within the budget.

    The smallest measured batch has to be within it. Of the batches between two measured ones, either the
    largest carries the most or the smallest does.
    """
    place = bisect_right(option.curve, budget_us, key=lambda point: point[1])
    low, low_us = option.curve[place - 1]
    if place == len(option.curve):
        return low, low_us
    high, high_us = option.curve[place]
    rows = low + floor((high - low) * (budget_us - low_us) / (high_us - low_us))
    return rows, option.latency_us(rows)
