"""Which idle connections go where there is no place for another one."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

BUSY: Final = -1.0
"""In place of how long a connection has been idle: it has a request under way."""


def leavers(connections: Sequence[tuple[str, float]], comer: str, grace_s: float, count: int) -> list[int]:
    """Return the places of at most `count` connections that are to go, the first to go first.

    `connections`: the address of each, and for how many seconds it has been idle, or BUSY; `comer`: the
    address of the one that wants a place. Each time the address that holds most loses the one that has been
    idle for longest. None goes that is BUSY, was idle for less than `grace_s`, or is of an address with less
    than its share of those that are left, which is the same for all addresses there.
    """
    held = {comer: 1}
    idle: dict[str, list[tuple[float, int]]] = {}
    for place, (address, idle_s) in enumerate(connections):
        held[address] = held.get(address, 0) + 1
        if idle_s >= grace_s:
            idle.setdefault(address, []).append((idle_s, place))
    for each in idle.values():
        each.sort()  # the longest idle last
    heap = [(-held[address], -each[-1][0], address) for address, each in idle.items()]
    heapify(heap)
    found: list[int] = []
    while heap and len(found) < count and -heap[0][0] * len(held) >= len(connections) + 1 - len(found):
        most, _, address = heappop(heap)
        left = idle[address]
        found.append(left.pop()[1])
        if left:
            heappush(heap, (most + 1, -left[-1][0], address))
    return found
