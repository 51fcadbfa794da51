"""What all slices of a scheduler are at, kept as they change: an event need not look at each of them."""

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

from serving.vocabulary import NEVER_US

FREE = -1
_SPARE = 64
"""How many outdated entries a heap may hold beyond one a slice."""


class Roster:
    """Slices by number, in the order in which they came.

    `free`: the numbers of those that may start a batch now; `steady`: how many can be counted on; `suspects`:
    how many others there are. `ripe`: the numbers of those to which a batch may be sent ahead, as of the
    latest call of `ripen`.
    """

    __slots__ = ("_doubts", "_doubts_us", "_opens", "_opens_us", "_suspected", "free", "ripe", "suspects")

    def __init__(self) -> None:
        self.free: list[int] = []
        self.ripe: list[int] = []
        self.suspects = 0
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
        return len(self._suspected) - self.suspects

    def note(self, number: int, suspect: bool, opens_us: int, doubt_us: int) -> None:
        """Note what a slice is at. `opens_us`: FREE if it is free."""
        before = self._suspected.get(number)
        self.suspects += int(suspect) - int(bool(before))
        self._suspected[number] = suspect
        was_us = self._opens_us.get(number, NEVER_US)
        if before is None or opens_us != was_us:
            self._move(number, opens_us)
        if doubt_us != self._doubts_us.get(number, NEVER_US):
            self._doubts_us[number] = doubt_us
            if doubt_us < NEVER_US:
                heappush(self._doubts, (doubt_us, number))

    def _move(self, number: int, opens_us: int) -> None:
        self._cut(number)
        self._opens_us[number] = opens_us
        if opens_us == FREE:
            insort(self.free, number)
        elif opens_us < NEVER_US:
            heappush(self._opens, (opens_us, number))

    def _cut(self, number: int) -> None:
        for numbers in (self.free, self.ripe):
            place = bisect_left(numbers, number)
            if place < len(numbers) and numbers[place] == number:
                del numbers[place]

    def remove(self, number: int) -> None:
        """Forget a slice that is gone."""
        suspect = self._suspected.pop(number, None)
        if suspect is None:
            return
        self.suspects -= int(suspect)
        self._cut(number)
        del self._opens_us[number]
        self._doubts_us.pop(number, None)

    def ripen(self, now_us: int) -> None:
        """Find the slices to which a batch may be sent ahead from now on."""
        ripe = self.ripe
        while self.opens_us <= now_us:
            number = heappop(self._opens)[1]
            place = bisect_left(ripe, number)
            if place == len(ripe) or ripe[place] != number:
                ripe.insert(place, number)

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
