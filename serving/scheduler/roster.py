"""What all slices of a scheduler are at, kept as they change: an event need not look at each of them."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush

from serving.vocabulary import NEVER_US

FREE = -1
_SPARE = 64
"""How many outdated entries a heap may hold beyond one a slice."""


class LikeSlices:
    """Slices that hold replicas of the same models and variants, with profiles of the same kind.

    `models`: those. `free`: the numbers of the slices that may start a batch now; `ripe`: of those to which a
    batch may be sent ahead, as of the latest call of `Roster.ripen`. Both are in the order in which slices
    came. `count`: how many slices there are; `suspects`: how many of them cannot be counted on.
    """

    __slots__ = ("_opens", "_roster", "count", "free", "models", "ripe", "suspects")

    def __init__(self, roster: "Roster", models: frozenset[str]) -> None:
        self._roster = roster
        self._opens: list[tuple[int, int]] = []
        self.models = models
        self.free: list[int] = []
        self.ripe: list[int] = []
        self.count = 0
        self.suspects = 0

    def push(self, opens_us: int, number: int) -> None:
        """Note from when on a busy slice takes a batch ahead."""
        heappush(self._opens, (opens_us, number))

    def opens_us(self, now_us: int) -> int:
        """Return when the next busy slice takes a batch ahead, later than now; NEVER_US if none will."""
        heap = self._opens
        while heap and (heap[0][0] <= now_us or not self._roster.is_current(heap[0], self)):
            heappop(heap)
        if len(heap) > self.count + _SPARE:
            self._opens = heap = [each for each in heap if self._roster.is_current(each, self)]
            heapify(heap)
        return heap[0][0] if heap else NEVER_US


class Roster:
    """Slices by number, in the order in which they came, and those that are alike.

    `free`: how many may start a batch now; `ripe`: to how many a batch may be sent ahead, as of the latest
    call of `ripen`; `steady`: how many can be counted on; `suspects`: the numbers of the others. `alike`: all
    slices, as like slices.
    """

    __slots__ = (
        "_alike_of", "_by_key", "_doubts", "_doubts_us", "_of_model", "_opens", "_opens_us", "_suspected",
        "alike", "free", "ripe", "suspects",
    )  # fmt: skip

    def __init__(self) -> None:
        self.alike: list[LikeSlices] = []
        self.free = self.ripe = 0
        self.suspects: list[int] = []
        self._by_key: dict[Hashable, LikeSlices] = {}
        self._of_model: dict[str, list[LikeSlices]] = {}
        self._alike_of: dict[int, LikeSlices] = {}
        self._suspected: dict[int, bool] = {}  # of each slice
        self._opens_us: dict[int, int] = {}  # of those that are not free
        self._doubts_us: dict[int, int] = {}
        self._opens: list[tuple[int, int]] = []  # heaps of (instant, number), some outdated
        self._doubts: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._suspected)

    @property
    def steady(self) -> int:
        """How many slices are not suspect."""
        return len(self._suspected) - len(self.suspects)

    def of_model(self, model: str) -> list[LikeSlices]:
        """Return the like slices that hold the model: a list that follows what comes and goes."""
        return self._of_model.setdefault(model, [])

    def is_current(self, entry: tuple[int, int], there: LikeSlices) -> bool:
        """Return whether an instant of a heap is still that of its slice, and the slice among these."""
        return self._opens_us.get(entry[1]) == entry[0] and self._alike_of.get(entry[1]) is there

    def enroll(self, number: int, key: Hashable, models: Iterable[str]) -> None:
        """Put a slice among the like slices of `key`, which hold these models."""
        there = self._by_key.get(key)
        if there is None:
            there = self._by_key[key] = LikeSlices(self, frozenset(models))
            self.alike.append(there)
            for model in there.models:
                self.of_model(model).append(there)
        before = self._alike_of.get(number)
        if before is there:
            return
        there.count += 1  # first: it may leave these same ones
        opens_us, suspect = self._opens_us.get(number), self._suspected.get(number)
        if before is not None:
            self._leave(number, before)
        self._alike_of[number] = there
        if opens_us is not None and suspect is not None:
            there.suspects += suspect
            self._move(number, opens_us)

    def note(self, number: int, suspect: bool, opens_us: int, doubt_us: int) -> None:
        """Note what an enrolled slice is at. `opens_us`: FREE if it is free."""
        before = self._suspected.get(number)
        if suspect is not bool(before):
            self._alike_of[number].suspects += 1 if suspect else -1
            if suspect:
                insort(self.suspects, number)
            else:
                self.suspects.remove(number)
        self._suspected[number] = suspect
        was_us = self._opens_us.get(number, NEVER_US)
        if before is None or opens_us != was_us:
            self._move(number, opens_us)
        if doubt_us != self._doubts_us.get(number, NEVER_US):
            self._doubts_us[number] = doubt_us
            if doubt_us < NEVER_US:
                heappush(self._doubts, (doubt_us, number))

    def _move(self, number: int, opens_us: int) -> None:
        there = self._alike_of[number]
        self._cut(number, there)
        self._opens_us[number] = opens_us
        if opens_us == FREE:
            insort(there.free, number)
            self.free += 1
        elif opens_us < NEVER_US:
            heappush(self._opens, (opens_us, number))
            there.push(opens_us, number)

    def _cut(self, number: int, there: LikeSlices) -> None:
        if _take_out(there.free, number):
            self.free -= 1
        if _take_out(there.ripe, number):
            self.ripe -= 1

    def _leave(self, number: int, there: LikeSlices) -> None:
        """Take a slice out of its like slices; where it was the last, they are gone."""
        self._cut(number, there)
        there.count -= 1
        there.suspects -= int(self._suspected.get(number, False))
        if there.count == 0:
            self.alike.remove(there)
            for model in there.models:
                self._of_model[model].remove(there)
            self._by_key = {key: each for key, each in self._by_key.items() if each is not there}

    def remove(self, number: int) -> None:
        """Forget a slice that is gone."""
        there = self._alike_of.pop(number, None)
        if there is None:
            return
        self._leave(number, there)
        if self._suspected.pop(number, False):
            self.suspects.remove(number)
        self._opens_us.pop(number, None)
        self._doubts_us.pop(number, None)

    def ripen(self, now_us: int) -> None:
        """Find the slices to which a batch may be sent ahead from now on."""
        while self.opens_us <= now_us:
            number = heappop(self._opens)[1]
            ripe = self._alike_of[number].ripe
            place = bisect_left(ripe, number)
            if place == len(ripe) or ripe[place] != number:
                ripe.insert(place, number)
                self.ripe += 1

    @property
    def opens_us(self) -> int:
        """When the next busy slice that is not ripe takes a batch ahead; NEVER_US if none will."""
        heap = self._opens
        while heap and self._opens_us.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if len(heap) > len(self._suspected) + _SPARE:
            self._opens = heap = [each for each in heap if self._opens_us.get(each[1]) == each[0]]
            heapify(heap)
        return heap[0][0] if heap else NEVER_US

    @property
    def doubt_us(self) -> int:
        """When a batch will be suspected next, or given up; NEVER_US if none is out."""
        heap = self._doubts
        while heap and self._doubts_us.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if len(heap) > len(self._suspected) + _SPARE:
            self._doubts = heap = [each for each in heap if self._doubts_us.get(each[1]) == each[0]]
            heapify(heap)
        return heap[0][0] if heap else NEVER_US


def _take_out(numbers: list[int], number: int) -> bool:
    """Take a number out of a sorted list; return whether it was there."""
    place = bisect_left(numbers, number)
    there = place < len(numbers) and numbers[place] == number
    if there:
        del numbers[place]
    return there
