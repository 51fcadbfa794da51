"""Covers: whole replicas that carry a demand together, the cheapest first at given prices of slices.

A knapsack with a least instead of a most, by depth-first branch and bound (Horowitz and Sahni 1974): few
sizes of slices carry a row about as cheaply as the best, so a few dozen looks do.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from serving.policy.placement.formulation.choices import Choices, Prices

LOOKS_MAX = 1_000
"""For a demand. Where choices carry a row at almost the same price it would take more: with ParvaGPU's A100
profiles for 1 demand in 1,000."""


@dataclass(frozen=True, slots=True)
class Item:
    """A replica that can be had any number of times: the `place` of its choice, and what it costs and
    carries."""

    place: int
    price: float
    throughput: float


@dataclass(frozen=True, slots=True)
class Cover:
    """Replicas that carry all of a demand: (place of the choice, how many)."""

    demand: int
    pieces: tuple[tuple[int, int], ...]


def items(every: Choices, prices: Prices, tiny: float = 0.0) -> list[list[Item]]:
    """By demand, what its choices cost; `tiny` of a device's price is added for a whole device, so that of
    what costs the same less is taken. The least price per row first, without those that a cheaper one
    outdoes."""
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
    """The cheapest numbers of `items`, as `items` gives them for a demand, that carry a rate: up to `most`
    ones, each cheaper than `below`.

    `found`: (cost, numbers by item), ascending. What is left out costs at least the last of them, or `below`,
    less `near`; or `floor`, where there was too much to look at.
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
        """Itself, done."""
        self._branch(0, rate, 0.0, replicas_min)
        return self

    def _branch(self, place: int, left: float, paid: float, replicas_left: int) -> None:
        """With numbers of all items before `place`, nothing but those of `place` first; then fewer of these,
        and items that carry a row at higher prices for the rest."""
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
                    break  # what fewer of these save, the rest costs more
        counts[place] = 0

    def _keep(self, cost: float) -> None:
        if cost < self._limit:
            insort(self.found, (cost, (*self._counts,)))
            if len(self.found) > self._most:
                self.found.pop()
            if len(self.found) == self._most:
                self._limit = self.found[-1][0]


def cover(demand: int, known: Sequence[Item], counts: Sequence[int]) -> Cover:
    """What these numbers of items are."""
    pieces = [(item.place, count) for item, count in zip(known, counts, strict=True) if count]
    return Cover(demand, tuple(sorted(pieces)))
