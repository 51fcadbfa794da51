"""What all slices of a scheduler are at, kept as they change: an event need not look at each of them."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush

from serving.values.vocabulary import NEVER_US

FREE = -1
_SPARE = 64
"""How many outdated entries a heap may hold beyond one a slice."""


class Instants:
    """An instant of each slice, and the first of all. FREE and NEVER_US are kept, but never the first."""

    __slots__ = ("_heap", "at_us")

    def __init__(self) -> None:
        self.at_us: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []  # of (instant, number), some outdated

    def put(self, number: int, at_us: int) -> None:
        """Set a slice's instant."""
        self.at_us[number] = at_us
        if at_us != FREE and at_us < NEVER_US:
            heappush(self._heap, (at_us, number))

    def forget(self, number: int) -> None:
        """Forget a slice, known or not."""
        self.at_us.pop(number, None)

    @property
    def first_us(self) -> int:
        """The first instant that was not popped; NEVER_US if there is none."""
        heap = self._heap
        while heap and self.at_us.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if len(heap) > len(self.at_us) + _SPARE:
            self._heap = heap = [each for each in heap if self.at_us.get(each[1]) == each[0]]
            heapify(heap)
        return heap[0][0] if heap else NEVER_US

    def pop(self) -> int:
        """Pass the first instant over, right after `first_us` was asked for; return its slice."""
        return heappop(self._heap)[1]


class LikeSlices:
    """Slices that hold replicas of the same models and variants, with profiles of the same kind.

    `models`: those. `free`: the numbers of the slices that may start a batch now; `ripe`: of those to which a
    batch may be sent ahead, as of the latest call of `Roster.ripen`. Both are in the order in which slices
    came. `count`: how many slices there are; `suspects`: how many of them cannot be counted on. `opens`: from
    when on each busy slice takes a batch ahead.
    """

    __slots__ = ("count", "free", "models", "opens", "ripe", "suspects")

    def __init__(self, models: frozenset[str]) -> None:
        self.models = models
        self.free: list[int] = []
        self.ripe: list[int] = []
        self.opens = Instants()
        self.count = 0
        self.suspects = 0

    def opens_us(self, now_us: int) -> int:
        """Return when the next busy slice takes a batch ahead, later than now; NEVER_US if none will."""
        opens = self.opens
        while opens.first_us <= now_us:
            opens.pop()
        return opens.first_us


class Roster:
    """Slices by number, in the order in which they came, and those that are alike.

    `steady`: how many can be counted on; `suspects`: the numbers of the others. `alike`: all slices, as like
    slices.
    """

    __slots__ = ("_alike_of", "_by_key", "_doubts", "_of_model", "_opens", "_suspected", "alike", "suspects")

    def __init__(self) -> None:
        self.alike: list[LikeSlices] = []
        self.suspects: list[int] = []
        self._by_key: dict[Hashable, LikeSlices] = {}
        self._of_model: dict[str, list[LikeSlices]] = {}
        self._alike_of: dict[int, LikeSlices] = {}
        self._suspected: dict[int, bool] = {}  # of each slice
        self._opens = Instants()
        self._doubts = Instants()

    def __len__(self) -> int:
        return len(self._suspected)

    @property
    def steady(self) -> int:
        """How many slices are not suspect."""
        return len(self._suspected) - len(self.suspects)

    def of_model(self, model: str) -> list[LikeSlices]:
        """Return the like slices that hold the model: a list that follows what comes and goes."""
        return self._of_model.setdefault(model, [])

    def enroll(self, number: int, key: Hashable, models: Iterable[str]) -> None:
        """Put a slice among the like slices of `key`, which hold these models."""
        before, there = self._alike_of.get(number), self._by_key.get(key)
        if there is None:
            there = self._by_key[key] = LikeSlices(frozenset(models))
            self.alike.append(there)
            for model in there.models:
                self.of_model(model).append(there)
        if before is there:
            return
        if before is not None:
            self._leave(number, before)
        self._alike_of[number] = there
        there.count += 1
        if number in self._suspected:
            there.suspects += self._suspected[number]
            self._join(number, there, self._opens.at_us[number])

    def note(self, number: int, suspect: bool, opens_us: int, doubt_us: int) -> None:
        """Note what an enrolled slice is at. `opens_us`: FREE if it is free."""
        there, before = self._alike_of[number], self._suspected.get(number)
        if suspect is not bool(before):
            there.suspects += 1 if suspect else -1
            if suspect:
                insort(self.suspects, number)
            else:
                self.suspects.remove(number)
        self._suspected[number] = suspect
        if before is None or opens_us != self._opens.at_us[number]:
            self._part(number, there)
            self._join(number, there, opens_us)
        if doubt_us != self._doubts.at_us.get(number, NEVER_US):
            self._doubts.put(number, doubt_us)

    def _join(self, number: int, there: LikeSlices, opens_us: int) -> None:
        """Show among its like slices what a slice is at; `ripen` finds it again if it is ripe."""
        self._opens.put(number, opens_us)
        there.opens.put(number, opens_us)
        if opens_us == FREE:
            insort(there.free, number)

    def _part(self, number: int, there: LikeSlices) -> None:
        """Show it no more."""
        there.opens.forget(number)
        for numbers in (there.free, there.ripe):
            place = bisect_left(numbers, number)
            if place < len(numbers) and numbers[place] == number:
                del numbers[place]

    def _leave(self, number: int, there: LikeSlices) -> None:
        """Take a slice out of its like slices; where it was the last, they are gone."""
        self._part(number, there)
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
        self._opens.forget(number)
        self._doubts.forget(number)

    def ripen(self, now_us: int) -> None:
        """Find the slices to which a batch may be sent ahead from now on."""
        while self._opens.first_us <= now_us:
            number = self._opens.pop()
            ripe = self._alike_of[number].ripe
            place = bisect_left(ripe, number)
            if place == len(ripe) or ripe[place] != number:
                ripe.insert(place, number)

    @property
    def opens_us(self) -> int:
        """When the next busy slice that is not ripe takes a batch ahead; NEVER_US if none will."""
        return self._opens.first_us

    @property
    def doubt_us(self) -> int:
        """When a batch will be suspected next, or given up; NEVER_US if none is out."""
        return self._doubts.first_us


def is_free(alike: Iterable[LikeSlices]) -> bool:
    """Return whether one of these may start a batch now."""
    for each in alike:  # noqa: SIM110  any() of a generator costs 3 times more, per request
        if each.free:
            return True
    return False
