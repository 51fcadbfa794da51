"""Places of connections: regular ones, and a reserve for probes, status and operators when none is left."""

import re
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, Protocol

from serving.policy.limits.crowding import leavers
from serving.values.specs import Limits

GRACE_S = 0.5
"""A connection that has been idle for less is not pushed out: a proxy may just be about to use it. Not Final:
compiled code could not be given another in tests."""
SCAN_S: Final = 0.25
"""How long the order in which idle connections are to go is believed: a look at 4,096 takes 2 ms."""
SCANNED: Final = 64
"""How many are found in one look."""

RESERVED_PATHS: Final = re.compile(
    rb"/(livez|readyz|healthz|v2/health/\w+|v2/models/[^/?]+(/versions/[^/?]+)?/ready|v2/(status|cells)"
    rb"|v2/(placement|repository|slices)(/[^?]*)?)(\?.*)?\Z"
)
"""What a connection of the reserve may ask for: probes, status, and what operators change."""

REGULAR, RESERVED, NONE = range(3)
"""Kinds of places."""


class PlacedConnection(Protocol):
    """A connection, as far as its place matters."""

    def address(self) -> str:
        """Return the address of its client."""
        ...

    def idle_s(self, now_s: float) -> float:
        """Return for how long it has had no request under way; `serving.policy.limits.crowding.BUSY` while it
        has one."""
        ...

    def push_out(self) -> None:
        """Close it, though its client has done nothing wrong."""
        ...


class Places:
    """The places and their connections. `pushed_out`, `refused`: connections that lost their place, or found
    none. `now_s` reads a clock, in seconds."""

    def __init__(self, limits: Limits, now_s: Callable[[], float]) -> None:
        self.pushed_out = 0
        self.refused = 0
        self._now_s = now_s
        self._regular = _Room(limits.connection_count, GRACE_S)
        # Whoever comes for the reserve asks at once: the longest silent may go however short that is.
        self._reserve = _Room(limits.reserved_connection_count, 0.0)

    def enter(self, guest: PlacedConnection) -> int:
        """Return the kind of place that it gets. For that, idle connections of the address that has most may
        go."""
        for kind, room in ((REGULAR, self._regular), (RESERVED, self._reserve)):
            if room.is_full and (leaver := room.leaver(guest.address(), self._now_s())) is not None:
                self.leave(leaver)
                self.pushed_out += 1
                leaver.push_out()
            if not room.is_full:
                room.guests[guest] = None
                return kind
        self.refused += 1
        return NONE

    def leave(self, guest: PlacedConnection) -> None:
        """Take away a connection that is gone, or about to go; a second time does nothing."""
        self._regular.guests.pop(guest, None)
        self._reserve.guests.pop(guest, None)

    def counts(self) -> tuple[int, int]:
        """Return how many regular places are taken, and how many of the reserve."""
        return len(self._regular.guests), len(self._reserve.guests)


class _Room:
    """A limited number of places, and the order in which idle connections are to go."""

    def __init__(self, count: int, grace_s: float) -> None:
        self.guests: dict[PlacedConnection, None] = {}
        self._count = count
        self._grace_s = grace_s
        self._order: deque[PlacedConnection] = deque()
        self._scanned_s = float("-inf")
        self._found = 0  # by that look

    @property
    def is_full(self) -> bool:
        return len(self.guests) >= self._count

    def leaver(self, comer: str, now_s: float) -> PlacedConnection | None:
        """Return which of them is to make room for one from that address; None where none is."""
        has_more = not self._order and self._found == SCANNED
        if has_more or now_s - self._scanned_s >= SCAN_S or self._count <= SCANNED:
            self._scanned_s = now_s
            guests: Collection[PlacedConnection] = self.guests
            seen = [(each.address(), each.idle_s(now_s)) for each in guests]
            listed = list(guests)
            self._order = deque(listed[at] for at in leavers(seen, comer, self._grace_s, SCANNED))
            self._found = len(self._order)
        while self._order:
            first = self._order.popleft()
            if first in self.guests and first.idle_s(now_s) >= self._grace_s:
                return first
        return None
