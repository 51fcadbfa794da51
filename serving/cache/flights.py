"""Single flight: who waits for which answer under way, and on whose account it is computed.

Every flight has a leader, whose request the scheduler knows; joiners only wait. When the leader's client
goes, its request goes on for the others and another leads; when the request ends without an answer, another
tries again or the flight is over: Clipper left such an entry pending for good.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lead:
    """Nobody computes this yet: submit it."""


@dataclass(frozen=True)
class Join:
    """`leader` has it computed. `tighten_us`: the instant its request is now due by; None where that was no
    later before."""

    leader: int
    tighten_us: int | None


class _Flight:
    __slots__ = ("deadline_us", "leader", "waiters")

    def __init__(self, leader: int, deadline_us: int) -> None:
        self.leader = leader
        self.deadline_us = deadline_us
        self.waiters = {leader: deadline_us}  # in the order in which they asked


class Flights:
    """Waiters are ids, each in one flight at most; deadlines are instants, NEVER_US for none."""

    __slots__ = ("_flights", "_keys")

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight] = {}
        self._keys: dict[int, bytes] = {}

    def __len__(self) -> int:
        """Flights under way."""
        return len(self._flights)

    def leader(self, key: bytes) -> int | None:
        """Who leads the flight; None where there is none."""
        flight = self._flights.get(key)
        return None if flight is None else flight.leader

    def deadline_us(self, key: bytes) -> int:
        """When the leader's request is due: the tightest deadline among its waiters that it could meet when
        they asked. KeyError where nothing is under way."""
        return self._flights[key].deadline_us

    def ask(
        self, key: bytes, waiter: int, deadline_us: int, now_us: int = 0, least_us: int = 0
    ) -> Lead | Join:
        """A waiter wants the answer. Where none can be there in time for it, which takes `least_us` from
        `now_us`, it waits without hurrying the others: a hopeless deadline would have the request given up.

        ValueError where the waiter waits already.
        """
        if waiter in self._keys:
            raise ValueError(f"waiter {waiter} waits already")
        self._keys[waiter] = key
        flight = self._flights.get(key)
        if flight is None:
            self._flights[key] = _Flight(waiter, deadline_us)
            return Lead()
        flight.waiters[waiter] = deadline_us
        if not now_us + least_us <= deadline_us < flight.deadline_us:
            return Join(flight.leader, None)
        flight.deadline_us = deadline_us
        return Join(flight.leader, deadline_us)

    def landed(self, key: bytes) -> list[int]:
        """The flight is over for all: its waiters, leader first, then as they asked.

        So it is with an answer, and with an end that another attempt would share, as a model that raises on
        this input. KeyError where nothing is under way.
        """
        flight = self._flights.pop(key)
        for waiter in flight.waiters:
            del self._keys[waiter]
        del flight.waiters[flight.leader]
        return [flight.leader, *flight.waiters]

    def fell(self, key: bytes, now_us: int, least_us: int) -> tuple[int | None, list[int]]:
        """The leader's request ended without an answer: who leads now, and whom that end is for.

        The new leader is the waiter with the latest deadline that an attempt of `least_us` can still meet,
        the first that asked among equals; None ends the flight. The others are the fallen leader, first, and
        those who cannot be answered in time any more. KeyError where nothing is under way.
        """
        flight = self._flights[key]
        fallen, waiters = flight.leader, flight.waiters
        self._remove(flight, fallen)
        ended = [waiter for waiter, deadline_us in waiters.items() if deadline_us < now_us + least_us]
        for waiter in ended:
            self._remove(flight, waiter)
        if not waiters:
            del self._flights[key]
            return None, [fallen, *ended]
        flight.leader = max(waiters, key=waiters.__getitem__)
        flight.deadline_us = min(waiters.values())
        return flight.leader, [fallen, *ended]

    def leave(self, waiter: int) -> None:
        """A joiner's client is gone; nothing where it waits no more. ValueError for a leader."""
        key = self._keys.get(waiter)
        if key is None:
            return
        flight = self._flights[key]
        if waiter == flight.leader:
            raise ValueError(f"waiter {waiter} leads: others may wait for its request")
        self._remove(flight, waiter)

    def resign(self, key: bytes, now_us: int, least_us: int) -> int | None:
        """The leader's client is gone, its request goes on: whose it is now, the waiter with the latest
        deadline, the first that asked among equals. None where nobody else waits: the leader stays it.

        The request is due by the tightest deadline that what is left of it, `least_us`, can meet; an answer
        that comes too late for the others is theirs still. KeyError where nothing is under way.
        """
        flight = self._flights[key]
        if len(flight.waiters) == 1:
            return None
        self._remove(flight, flight.leader)
        waiters = flight.waiters
        flight.leader = max(waiters, key=waiters.__getitem__)
        latest_us = waiters[flight.leader]
        flight.deadline_us = min(
            (due_us for due_us in waiters.values() if due_us >= now_us + least_us), default=latest_us
        )
        return flight.leader

    def _remove(self, flight: _Flight, waiter: int) -> None:
        del flight.waiters[waiter]
        del self._keys[waiter]
