"""The earliest of many instants, each of which may change: O(log n) a change, and O(1) to look."""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from serving.values.vocabulary import NEVER_US

Name = TypeVar("Name", bound=Hashable)
_SPARE = 64
"""How many outdated entries the heap may hold beyond as many as there are instants."""


class Earliest(Generic[Name]):
    """Instants by name. A name without an instant is due never."""

    def __init__(self) -> None:
        self._at_us: dict[Name, int] = {}
        self._heap: list[tuple[int, int, Name]] = []  # outdated entries are skipped as they come up
        self._count = 0

    def set(self, name: Name, at_us: int) -> None:
        """Set an instant; NEVER_US removes it."""
        if self._at_us.get(name, NEVER_US) == at_us:
            return
        if at_us == NEVER_US:
            del self._at_us[name]
            return
        self._at_us[name] = at_us
        self._count += 1
        heappush(self._heap, (at_us, self._count, name))
        if len(self._heap) > 2 * len(self._at_us) + _SPARE:
            self._heap = [(at_us, number, name) for number, (name, at_us) in enumerate(self._at_us.items())]
            heapify(self._heap)

    @property
    def least_us(self) -> int:
        """The earliest instant; NEVER_US without any."""
        heap = self._heap
        while heap and self._at_us.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else NEVER_US

    def due(self, now_us: int) -> list[Name]:
        """Remove the names whose instants have come, and return them."""
        found: list[Name] = []
        while self.least_us <= now_us:
            name = heappop(self._heap)[2]
            del self._at_us[name]
            found.append(name)
        return found
