"""Open devices: the devices that a packing has taken so far, and where the next slice goes.

It goes to the device with room where it and the others slow each other down least (iGniter, TPDS 2023; USHER,
OSDI 2024). Of equal devices it goes to the fullest (best fit). One more device is taken where it costs least
for what the slice takes of it.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from serving.policy.placement.packing.demand_pieces import find_part
from serving.policy.placement.packing.device_packing import (
    Amounts,
    DevicePacking,
    ShareLadder,
    find_limits,
    find_strain,
    find_taken,
    has_room,
    hold,
)
from serving.policy.placement.packing.shared_slices import NEAR, Stack
from serving.policy.placement.terms.problem import Pool
from serving.values.slice_specs import Share

SHORTLIST = 16
"""The devices of a pool that a slice is compared with: so many of the fullest and as many of the others."""
TRIES = 8
"""Of this shortlist, the number of devices that are tried, the least slowed down first."""


class OpenDevices:
    """The devices in use: `shelves` has what each holds, by number.

    There are never more devices than a pool has, nor more than a failure domain has.

    `_refused`: by model, option and domain, the least rate that found no room. It only falls, until `clear`.
    """

    def __init__(self, pools: Sequence[Pool], ladder: ShareLadder) -> None:
        self._pools, self._ladder = pools, ladder
        self._there = {pool.name: Counter(device.domain for device in pool.devices) for pool in pools}
        self._opened: Counter[str] = Counter()
        self._asked: Counter[tuple[str, str | None]] = Counter()
        self._fullest: dict[str, list[tuple[float, int]]] = defaultdict(list)
        self._left: dict[int, Amounts] = {}
        self._strain: dict[int, tuple[float, float]] = {}
        self._refused: dict[tuple[str, str, str, Share, str | None], float] = {}
        self._count = 0
        self.shelves: dict[int, DevicePacking] = {}

    def place(self, stack: Stack, domain: str | None = None) -> bool:
        """Put the stack on a device, one in use where possible; return whether there was one."""
        turn = stack[0]
        key = turn.model, turn.option.kind, turn.option.variant, turn.option.share, domain
        if len(stack) == 1 and turn.rate >= self._refused.get(key, inf):
            return False
        found = self._beside(stack, domain) or self._alone(stack, domain)
        if found is not None:
            self._put(*found)
        elif len(stack) == 1:
            self._refused[key] = turn.rate
        return found is not None

    def keep(self, place: int, stacks: Sequence[Stack]) -> None:
        """Leave only these stacks on the device."""
        shelf = self.shelves[place]
        self._put(place, hold(replace(shelf, stacks=(), slots=()), stacks, self._ladder) if stacks else None)

    def fullness(self, place: int) -> float:
        """Return the part of the device's amount that is taken."""
        return 1 - self._left[place][0] / find_limits(self.shelves[place].pool)[0]

    def clear(self, place: int) -> bool:
        """Move all slices of the device to others in use; return whether they could all go there.

        If they could not, all is as before.
        """
        shelf = self.shelves[place]
        before: dict[int, DevicePacking] = {}
        self._refused.clear()
        self._put(place, None)
        for stack in sorted(shelf.stacks, key=lambda each: -each[0].option.share.amount):
            found = self._beside(stack, shelf.domain)
            if found is None:
                for other, old in before.items():
                    self._put(other, old)
                self._put(place, shelf)
                return False
            before.setdefault(found[0], self.shelves[found[0]])
            self._put(*found)
        return True

    def cheapen(self, place: int) -> None:
        """Replace the device by a cheaper one, if there is one left that carries all the same."""
        shelf = self.shelves[place]
        for pool in self._pools:
            fits = all(pool.fits(turn.option) for stack in shelf.stacks for turn in stack)
            if pool.price < shelf.pool.price and fits and self._has_more(pool, shelf.domain):
                found = hold(DevicePacking(pool, shelf.domain), shelf.stacks, self._ladder)
                if found is not None:
                    self._put(place, found)
                    return

    def _put(self, place: int, shelf: DevicePacking | None) -> None:
        """Record what the device holds now; None means that it is not in use."""
        old = self.shelves.pop(place, None)
        if old is not None:
            listed = self._fullest[old.pool.name]
            del listed[bisect_left(listed, (self._left[place][0], place))]
            self._opened[old.pool.name] -= 1
            self._asked[old.pool.name, old.domain] -= 1
        if shelf is not None:
            self.shelves[place], self._left[place] = shelf, shelf.left
            self._strain[place] = find_strain(shelf.stacks)
            insort(self._fullest[shelf.pool.name], (shelf.left[0], place))
            self._opened[shelf.pool.name] += 1
            self._asked[shelf.pool.name, shelf.domain] += 1
            self._count = max(self._count, place + 1)

    def _beside(self, stack: Stack, domain: str | None) -> tuple[int, DevicePacking] | None:
        """Return a device in use with the stack on it, or None.

        It is one where no share has to be raised, or else the one where shares rise least.
        """
        ranked = sorted(
            (self._extra(place, find_strain((stack,))), left, place)
            for pool in self._pools
            if pool.fits(stack[0].option)
            for left, place in self._shortlist(pool, stack, domain)
        )
        raised: list[tuple[float, int, DevicePacking]] = []
        for _, _, place in ranked[:TRIES]:
            shelf = self.shelves[place]
            grown = hold(replace(shelf, domain=shelf.domain or domain), (*shelf.stacks, stack), self._ladder)
            if grown is None:
                continue
            more = shelf.left[0] - stack[0].option.share.amount - grown.left[0]
            if more <= NEAR * find_limits(shelf.pool)[0]:
                return place, grown
            raised.append((more, place, grown))
        return min(raised, key=lambda each: each[:2])[1:] if raised else None

    def _extra(self, place: int, strain: tuple[float, float]) -> float:
        """Return by how much the slices of the device and one more slow each other down, in all."""
        pressure, sensitivity = self._strain[place]
        return pressure * strain[1] + strain[0] * sensitivity

    def _shortlist(self, pool: Pool, stack: Stack, domain: str | None) -> Iterator[tuple[float, int]]:
        """Yield the fullest devices with room, and some from all over the others."""
        taken = find_taken((stack,))
        listed = self._fullest[pool.name]
        place = bisect_left(listed, (taken[0] - NEAR * find_limits(pool)[0], -1))
        count = 0
        while place < len(listed) and count < SHORTLIST:
            if self._open_to(listed[place][1], taken, domain):
                yield listed[place]
                count += 1
            place += 1
        for each in listed[place :: (len(listed) - place) // SHORTLIST + 1]:
            if self._open_to(each[1], taken, domain):
                yield each

    def _open_to(self, place: int, taken: Amounts, domain: str | None) -> bool:
        shelf, (_, memory_bytes, slices) = self.shelves[place], self._left[place]
        if taken[1] > memory_bytes or taken[2] > slices:
            return False
        if domain is None or shelf.domain == domain:
            return True
        return shelf.domain is None and self._has_of(shelf.pool, domain)

    def _alone(self, stack: Stack, domain: str | None) -> tuple[int, DevicePacking] | None:
        """Return a device that is not in use yet, with the stack on it, or None."""
        fitting = [
            (pool.price * find_part(pool, stack), find_part(pool, stack), place, pool)
            for place, pool in enumerate(self._pools)
            if pool.fits(stack[0].option) and has_room(pool, (stack,)) and self._has_more(pool, domain)
        ]
        for *_, pool in sorted(fitting, key=lambda each: each[:3]):
            shelf = hold(DevicePacking(pool, domain), (stack,), self._ladder)
            if shelf is not None:
                return self._count, shelf
        return None

    def _has_more(self, pool: Pool, domain: str | None) -> bool:
        """Return whether the pool has a device in the domain that is not in use."""
        return self._opened[pool.name] < len(pool.devices) and (domain is None or self._has_of(pool, domain))

    def _has_of(self, pool: Pool, domain: str) -> bool:
        """Return whether the pool has a device of that domain that was not asked for."""
        return self._asked[pool.name, domain] < self._there[pool.name][domain]
