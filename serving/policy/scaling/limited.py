"""How replicas that are alike are divided where there are too few: Faro's objective (EuroSys 2025), the
weighted sum of utilities of n replicas, by greedy steps along their concave envelopes.

A utility is not concave as a rule: one replica of a model that needs two is worth nothing. So a step is not
one replica but as many as gain the most for each of them, which is the next edge of the envelope over all
that can still be had. On a heap that takes O(R log S) steps' time for R replicas and S models. The exact
answer, a dynamic program in O(S R^2), is the oracle of the tests, which say how far this one is from it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Claim:
    """A model's claim to `least` up to `most` replicas. `utilities` of 0, 1 ... `most` of them, not falling,
    as a rule from 0 to 1; beyond the last, no more. The highest `priority` is served first."""

    name: str
    weight: float
    priority: int
    least: int
    most: int
    utilities: tuple[float, ...]

    def utility(self, count: int) -> float:
        """Of so many replicas, not weighted."""
        return self.utilities[min(count, len(self.utilities) - 1)]

    @property
    def useful(self) -> int:
        """More replicas than this are worth no more."""
        return max(self.least, min(self.most, bisect_left(self.utilities, self.utilities[-1])))


def divide(claims: Sequence[Claim], total: int, fair: bool = False) -> dict[str, int]:
    """How many of `total` replicas each claim gets, by name; what gains nothing is left.

    The highest priority comes first: all that it can use, then the next. Of each first `least`, by weight
    where there are too few; then what makes the weighted sum of utilities large or, if `fair`, first what
    makes the smallest utility as large as it can be (weights do not count there). The least of all
    priorities comes before the rest of any.
    """
    counts = dict.fromkeys((each.name for each in claims), 0)
    left = total
    ranked = sorted(claims, key=lambda each: (-each.priority, -each.weight))
    for each in ranked:
        counts[each.name] = min(each.least, left)
        left -= counts[each.name]
    for _, level in groupby(ranked, key=lambda each: each.priority):
        here = list(level)
        if fair:
            left = _raise(here, counts, left)
        left = _climb(here, counts, left)
    return counts


def _climb(claims: Sequence[Claim], counts: dict[str, int], left: int) -> int:
    """Take steps, the steepest first, as long as one fits; what is left."""
    heap = [(*_step(each, counts[each.name], left), place) for place, each in enumerate(claims)]
    heapify(heap)
    while heap and left > 0:
        slope, step, place = heappop(heap)
        claim = claims[place]
        if slope >= 0.0:
            break
        if step <= left:
            counts[claim.name] += step
            left -= step
        heappush(heap, (*_step(claim, counts[claim.name], left), place))
    return left


def _step(claim: Claim, count: int, left: int) -> tuple[float, int]:
    """(less the most that each replica of a step of up to `left` gains, the replicas of that step).

    The longest of those that gain as much.
    """
    here = claim.utility(count)
    steps = range(1, min(claim.useful - count, left) + 1)
    slopes = [(-claim.weight * (claim.utility(count + step) - here) / step, -step) for step in steps]
    slope, longest = min(slopes, default=(0.0, 0))
    return slope, -longest


def _raise(claims: Sequence[Claim], counts: dict[str, int], left: int) -> int:
    """Give what lifts all to the highest utility that all (or those that can reach it) can have: bisection
    over the utilities there are."""
    levels = sorted({level for each in claims for level in each.utilities})
    place = bisect_left(levels, True, key=lambda level: sum(_lacking(claims, counts, level).values()) > left)
    if place == 0:
        return left
    lifted = _lacking(claims, counts, levels[place - 1])
    for name, more in lifted.items():
        counts[name] += more
    return left - sum(lifted.values())


def _lacking(claims: Iterable[Claim], counts: Mapping[str, int], level: float) -> dict[str, int]:
    """By name, the replicas to a utility of `level`, or to the highest where that is less."""
    return {
        each.name: max(min(bisect_left(each.utilities, level), each.useful) - counts[each.name], 0)
        for each in claims
    }
