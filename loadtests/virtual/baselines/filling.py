"""The GPUs of a pool while MIG instances are put on them: which may lie together, not yet where."""

from collections import defaultdict
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from serving.policy.placement.terms.geometry import Geometry, Multiset, arrangements, multiset
from serving.policy.placement.terms.plan import Slot

Rank = Callable[[int, Multiset], tuple[float, ...]]
"""A GPU's rank, by its index and its instances. Of the GPUs with room, the lowest rank is taken. Of GPUs with
the same instances, the lowest index is taken."""


class Filling:
    """GPUs that are being filled. `devices`: the slices of each GPU that was begun, at most `limit`.

    GPUs with the same instances are equal, and there are only some dozens of such sets. So the search looks
    at the first GPU of each set, whatever the size of the fleet.
    """

    def __init__(self, geometry: Geometry, limit: float = inf) -> None:
        self.devices: list[list[Slot]] = []
        self._geometry = geometry
        self._limit = limit
        self._names: list[Multiset] = []
        self._alike: dict[Multiset, list[int]] = defaultdict(list)
        self._known: dict[tuple[Multiset, str], bool] = {}

    def place(self, slot: Slot, rank: Rank) -> bool:
        """Put the slot on the GPU that has room for it and ranks lowest; return False if there is none."""
        open_to = [
            (rank(first, names), first)
            for names in list(self._alike)
            if self._fits(names, slot.share.label) and (first := self._first(names)) is not None
        ]
        fresh = len(self.devices)
        if fresh < self._limit and self._fits((), slot.share.label):
            open_to.append((rank(fresh, ()), fresh))
        if not open_to:
            return False
        _, index = min(open_to)
        if index == fresh:
            self.devices.append([])
            self._names.append(())
        self.devices[index].append(slot)
        self._sort_in(index)
        return True

    def remove(self, index: int, slot: Slot) -> None:
        """Remove the slot from that GPU, which has it."""
        self.devices[index].remove(slot)
        self._sort_in(index)

    def _sort_in(self, index: int) -> None:
        self._names[index] = multiset(self._geometry, (slot.share.label for slot in self.devices[index]))
        heappush(self._alike[self._names[index]], index)

    def _first(self, names: Multiset) -> int | None:
        """Return the first GPU with those instances, or None.

        On the way, drop GPUs that have changed since they were listed.
        """
        heap = self._alike[names]
        while heap and self._names[heap[0]] != names:
            heappop(heap)
        return heap[0] if heap else None

    def _fits(self, there: Multiset, name: str) -> bool:
        """Return whether one more instance can lie with those."""
        if (there, name) not in self._known:
            joined = (*there, name)
            self._known[there, name] = bool(arrangements(self._geometry, joined))
        return self._known[there, name]
