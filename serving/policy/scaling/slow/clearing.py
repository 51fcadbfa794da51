"""Prices that clear: the linear program that mixes covers, one for each model in all, within the kinds'
counts and the hour's ceiling.

It is Dantzig and Wolfe's master program (1960) with all its columns known. Its dual has few prices, one for
each thing that is scarce, and to value them takes no more than each model's cheapest cover at them. So first
come rough prices, by cutting planes (Kelley 1960) within a box around the best so far (Marsten, Hogan and
Blankenship, The Boxstep method for large-scale optimization, Operations Research, 1975). In a small box
around those few models have more than one cover that could be best, and a linear program of these finds the
best prices of the box, and the mixture. Where they are inside it, they are the best of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving.policy.placement.programs import Program
from serving.policy.scaling.slow.covers import Covers
from serving.policy.scaling.slow.problem import ScalingProblem
from serving.policy.scaling.slow.tables import Floats, Ints

TURNS = 80
ROUGH = 1e-4  # of what all cost: how far rough prices may be from the best
STEP = 10.0
STEP_MIN = 1.05
"""How many times as high as the last rough prices, and as low, the next may be."""
BOX = 1.05
BOXES = 10
"""The same of the last ones, and twice as far in each further box: one or two, as a rule."""
_NEAR = 1e-9


@dataclass(frozen=True, slots=True)
class Cleared:
    """The share of each cover, and its cost with the prices of what it uses. No mixture of covers costs less
    than `bound`."""

    shares: Floats
    reduced: Floats
    bound: float


def clear(problem: ScalingProblem, every: Covers) -> Cleared:
    """Return the cheapest mixture. Every claim has to have a cover that uses nothing."""
    market = _market(problem, every)
    prices = market.rough()
    box = BOX
    for _ in range(BOXES):
        low, high = market.around(prices, box)
        shares, prices, bound = market.best(prices, low, high)
        if ((prices < high * (1 - _NEAR)) & ((prices > low * (1 + _NEAR)) | (low == 0.0))).all():
            break
        box *= box
    return Cleared(shares, every.cost + market.used @ prices, bound)


def _market(problem: ScalingProblem, every: Covers) -> "_Market":
    claim = np.unique(every.claim, return_inverse=True)[1]
    begins = np.flatnonzero(np.concatenate([[True], claim[1:] != claim[:-1]]))
    used = every.used(problem)
    limits = np.append(problem.kinds.count, problem.cost_max)
    most = np.maximum.reduceat(used, begins, axis=0).sum(axis=0)
    scarce = np.flatnonzero(most > limits)
    units = np.append(problem.kinds.price, 1.0)[scarce]
    return _Market(every.cost, used[:, scarce], limits[scarce], units, claim, begins)


@dataclass(frozen=True, slots=True)
class _Market:
    """Covers by their cost and by their use of scarce things; there are `limits` of these. `units`: what one
    of each costs anyway. `claim` numbers only claims that have covers; their covers begin at `begins`."""

    cost: Floats
    used: Floats
    limits: Floats
    units: Floats
    claim: Ints
    begins: Ints

    @property
    def floor(self) -> Floats:
        """A price below this may as well be none."""
        return 0.01 * self.units

    def around(self, prices: Floats, factor: float) -> tuple[Floats, Floats]:
        """Return the lowest and the highest prices of a box."""
        low = np.where(prices < self.floor, 0.0, prices / factor)
        return low, np.maximum(prices, self.floor) * factor

    def rough(self) -> Floats:
        """Return prices near the best prices: at the best prices all mixtures cost the most."""
        prices, step = self.units.copy(), STEP
        value, slope = self._value(prices)
        cuts = [(value - float(slope @ prices), slope)]
        for _ in range(TURNS if len(prices) else 0):
            tried, hoped = self._highest(cuts, *self.around(prices, step))
            if hoped - value <= ROUGH * abs(value):
                break
            found, slope = self._value(tried)
            cuts.append((found - float(slope @ tried), slope))
            step = min(step * 1.5, STEP) if found > value else max(step**0.5, STEP_MIN)
            if found > value:
                prices, value = tried, found
        return prices

    def _value(self, prices: Floats) -> tuple[float, Floats]:
        """Return what all mixtures cost at least by these prices, and by how much more for each price that
        rises."""
        chosen = self._cheapest(prices)
        slope = self.used[chosen].sum(axis=0) - self.limits
        return float(self.cost[chosen].sum() + slope @ prices), slope

    def _highest(
        self, cuts: Sequence[tuple[float, Floats]], low: Floats, high: Floats
    ) -> tuple[Floats, float]:
        """Return the prices of the box at which the lowest of the cuts is highest, and how high."""
        program, highest = Program(), self._most()
        below = program.column(1.0)
        for least, most in zip(low.tolist(), high.tolist(), strict=True):
            column = program.column(upper=most)
            program.lower[column] = least
        for base, slope in cuts:
            program.row([(below, 1.0), *enumerate(slope.tolist(), 1)], lower=highest - base)
        found = program.relax()
        return found.values[1:], highest - found.cost

    def _most(self) -> float:
        """Return the cost of covers that use nothing: no prices make mixtures cost more."""
        free = np.where(self.used.any(axis=1), 0.0, self.cost)
        return float(np.maximum.reduceat(free, self.begins).sum())

    def best(self, prices: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, float]:
        """Return the shares of covers at the best prices between `low` and `high`, those, and what all
        mixtures cost at least."""
        at_low, at_high = self.cost + self.used @ low, self.cost + self.used @ high
        chosen = self._cheapest(prices)
        likely = at_low < at_high[chosen][self.claim]
        likely[chosen] = True
        open_to = np.add.reduceat(likely, self.begins, dtype=np.int64) > 1
        fixed = chosen[~open_to]
        places = np.flatnonzero(likely & open_to[self.claim])
        shares = np.zeros(len(self.cost))
        shares[fixed] = 1.0
        left = self.limits - self.used[fixed].sum(axis=0)
        values, above, cost = self._mix(places, at_low[places], left, high - low)
        shares[places] = values
        return shares, low + above, cost + float(at_low[fixed].sum() - low @ self.limits)

    def _cheapest(self, prices: Floats) -> Ints:
        """Return, for each claim, the first of its covers that cost least."""
        reduced = self.cost + self.used @ prices
        best = np.flatnonzero(reduced <= np.minimum.reduceat(reduced, self.begins)[self.claim])
        return np.asarray(best[np.unique(self.claim[best], return_index=True)[1]])

    def _mix(self, places: Ints, cost: Floats, left: Floats, width: Floats) -> tuple[Floats, Floats, float]:
        """Return the cheapest mixture of these covers. More than is `left` is used for a price of `width`."""
        program = Program()
        rows = []
        for limit, price in zip(left.tolist(), width.tolist(), strict=True):
            rows.append(program.row([(program.column(price), -1.0)], upper=limit))
        own: dict[int, int] = {}
        parts = zip(self.claim[places].tolist(), cost.tolist(), self.used[places].tolist(), strict=True)
        for claim, price, uses in parts:
            if claim not in own:
                own[claim] = program.row(lower=1.0, upper=1.0)
            column = program.column(price)
            program.put(own[claim], column, 1.0)
            for row, use in zip(rows, uses, strict=True):
                if use:
                    program.put(row, column, use)
        if not rows:
            return np.zeros(0), np.zeros(0), 0.0
        found = program.relax()
        return found.values[len(rows) :], -found.prices[: len(rows)], found.cost
