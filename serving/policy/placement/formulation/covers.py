"""Covers: whole replicas that carry a demand together, the cheapest first at given prices of slices.

The search solves a knapsack problem with a minimum instead of a maximum, by depth-first branch and bound
(Horowitz and Sahni 1974). Few sizes of slices carry a row about as cheaply as the best, so a few dozen looks
are enough.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from serving.policy.placement.formulation.choices import Choices, Prices

LOOKS_MAX = 1_000
"""The most looks for a demand. More would be needed where choices carry a row at almost the same price: with
ParvaGPU's A100 profiles, for 1 demand in 1,000."""


@dataclass(frozen=True, slots=True)
class Item:
    """A replica that can be had any number of times, with what it costs and carries.

    `place`: the place of its choice.
    """

    place: int
    price: float
    throughput: float


@dataclass(frozen=True, slots=True)
class Cover:
    """Replicas that carry all of a demand: (place of the choice, how many)."""

    demand: int
    pieces: tuple[tuple[int, int], ...]


def items(every: Choices, prices: Prices, tiny: float = 0.0) -> list[list[Item]]:
    """Return what the choices of each demand cost, the least price per row first.

    Items that a cheaper one outdoes are left out. `tiny` is added to the price of a whole device, and so much
    less for a part of it. So of items that cost the same, the one that takes less wins.
    """
    found: list[list[Item]] = [[] for _ in every.demands]
    for place, choice in enumerate(every.each):
        here = prices[choice.division]
        price = tiny * choice.taken.part
        for resource, amount in choice.taken.resources:
            price += here[resource] * amount
        found[choice.demand].append(Item(place, price, choice.offer.throughput))
    return [_useful(each) for each in found]


def _useful(known: Sequence[Item]) -> list[Item]:
    found: list[Item] = []
    for item in sorted(known, key=lambda item: (item.price, -item.throughput, item.place)):
        if not found or item.throughput > found[-1].throughput:
            found.append(item)
    return sorted(found, key=lambda item: item.price / item.throughput)


class Search:
    """A search for the cheapest numbers of items that carry a rate.

    `known`: the items that `items` returns for a demand. The search finds up to `most` solutions, each
    cheaper than `below`.

    `found`: (cost, numbers by item), ascending. A solution that is left out costs at least the last of these,
    or `below`, less `near`. If there was too much to look at, it costs at least `floor`.
    """

    def __init__(self, known: Sequence[Item], most: int, below: float = inf, near: float = 0.0) -> None:
        self.found: list[tuple[float, tuple[int, ...]]] = []
        self.floor = inf
        self._items = known
        self._ratios = [each.price / each.throughput for each in known]
        self._most, self._limit, self._near = most, below, near
        self._counts = [0] * len(known)
        self._looks = 0

    def run(self, rate: float, replicas_min: int = 1) -> "Search":
        """Search for the rate, and return the search itself."""
        self._branch(0, rate, 0.0, replicas_min)
        return self

    def _branch(self, place: int, left: float, paid: float, replicas_left: int) -> None:
        """Search on from the item `place`, with fixed numbers of all items before it.

        First carry all with this item. Then take fewer of it, and carry the rest with items of a higher price
        per row.
        """
        item, counts = self._items[place], self._counts
        enough = max(ceil(left / item.throughput), replicas_left, 0)
        counts[place] = enough
        self._keep(paid + enough * item.price)
        if place + 1 < len(counts):
            for count in range(enough - 1, -1, -1):
                rest, cost = left - count * item.throughput, paid + count * item.price
                least = cost + max(rest, 0.0) * self._ratios[place + 1]
                self._looks += 1
                if self._looks > LOOKS_MAX:
                    self.floor = min(self.floor, least)
                    break
                if least < self._limit - self._near:
                    counts[place] = count
                    self._branch(place + 1, rest, cost, replicas_left - count)
                elif rest > 0:
                    break  # fewer of this item save less than the rest then costs more
        counts[place] = 0

    def _keep(self, cost: float) -> None:
        if cost < self._limit:
            insort(self.found, (cost, (*self._counts,)))
            if len(self.found) > self._most:
                self.found.pop()
            if len(self.found) == self._most:
                self._limit = self.found[-1][0]


def cover(demand: int, known: Sequence[Item], counts: Sequence[int]) -> Cover:
    """Return the cover that these numbers of items make."""
    pieces = [(item.place, count) for item, count in zip(known, counts, strict=True) if count]
    return Cover(demand, tuple(sorted(pieces)))
