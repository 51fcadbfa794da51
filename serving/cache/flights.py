"""Single flight: one computation that equal requests share.

Every flight has a leader, the request that the scheduler knows; its followers only wait. If the leader's
client leaves, the leader's request goes on for the followers, and a successor becomes leader. If the request
ends without an answer, a successor tries again, or the flight ends. (Clipper left such an entry pending
forever.)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from serving.values.vocabulary import Kind

FAILURES_MAX: Final = 1
"""Failures of a flight after which another follower still tries. A request that kills workers, or on which
the model raises, ends for all with the second failure."""


@dataclass(frozen=True)
class Lead:
    """The asking request leads a new flight: submit it."""


@dataclass(frozen=True)
class Join:
    """The asking request follows `leader`.

    `tighten_us`: the instant that the leader's request is now due by; None if its deadline stays.
    """

    leader: int
    tighten_us: int | None


class _Flight:
    __slots__ = ("deadline_us", "failures", "leader", "members")

    def __init__(self, leader: int, deadline_us: int) -> None:
        self.leader = leader
        self.deadline_us = deadline_us
        self.failures = 0
        self.members = {leader: deadline_us}  # leader and followers, in the order in which they asked


class Flights:
    """All flights under way. A member is the id of a leader or follower, in one flight at most.

    Deadlines are instants, NEVER_US for none.
    """

    __slots__ = ("_flights", "_keys")

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight] = {}
        self._keys: dict[int, bytes] = {}

    def __len__(self) -> int:
        """Return the number of flights under way."""
        return len(self._flights)

    def leader(self, key: bytes) -> int | None:
        """Return the leader of the flight; None if there is no such flight."""
        flight = self._flights.get(key)
        return None if flight is None else flight.leader

    def deadline_us(self, key: bytes) -> int:
        """Return when the leader's request is due.

        That is the tightest deadline among the members, of those that could be met when they asked. KeyError
        if there is no such flight.
        """
        return self._flights[key].deadline_us

    def ask(
        self, key: bytes, member: int, deadline_us: int, now_us: int = 0, least_us: int = 0
    ) -> Lead | Join:
        """Add a request to the flight of `key`, as its leader if there is none.

        A computation takes at least `least_us` from `now_us`. If that misses the request's deadline, the
        flight keeps its own deadline. Otherwise the shared request would be given up for all.

        ValueError if the request waits already.
        """
        if member in self._keys:
            raise ValueError(f"member {member} waits already")
        self._keys[member] = key
        flight = self._flights.get(key)
        if flight is None:
            self._flights[key] = _Flight(member, deadline_us)
            return Lead()
        flight.members[member] = deadline_us
        if not now_us + least_us <= deadline_us < flight.deadline_us:
            return Join(flight.leader, None)
        flight.deadline_us = deadline_us
        return Join(flight.leader, deadline_us)

    def landed(self, key: bytes) -> list[int]:
        """End a flight for all, and return its members: leader first, then in the order in which they asked.

        Call it on an answer, and on an end that another attempt would share, such as a model that raises on
        this input. KeyError if there is no such flight.
        """
        flight = self._flights.pop(key)
        for member in flight.members:
            del self._keys[member]
        del flight.members[flight.leader]
        return [flight.leader, *flight.members]

    def fell(self, key: bytes, kind: Kind, now_us: int, least_us: int) -> tuple[int | None, list[int]]:
        """End the leader's request without an answer; return the new leader, and the members that end.

        The successor is the follower with the latest deadline that an attempt of `least_us` can still meet,
        the first among equals. None: the flight is over. The ended members are the old leader, first, and all
        that cannot be answered in time any more. KeyError if there is no such flight.

        `kind` is how the request ended. Where it was rejected, or more than FAILURES_MAX requests of the
        flight failed, another attempt would fare the same: the flight is over for all.
        """
        flight = self._flights[key]
        flight.failures += kind is Kind.FAILED
        if kind is Kind.REJECTED or flight.failures > FAILURES_MAX:
            return None, self.landed(key)
        fallen, members = flight.leader, flight.members
        self._remove(flight, fallen)
        ended = [member for member, deadline_us in members.items() if deadline_us < now_us + least_us]
        for member in ended:
            self._remove(flight, member)
        if not members:
            del self._flights[key]
            return None, [fallen, *ended]
        flight.leader = max(members, key=members.__getitem__)
        flight.deadline_us = min(members.values())
        return flight.leader, [fallen, *ended]

    def expiring(self, members: Iterable[int]) -> Iterator[tuple[int, bool]]:
        """Yield the members in the order in which their own deadlines end them, each with whether it leads.

        Leaders are last, so that their requests go on for the followers that are left. Flights may change
        between two of them: a leader that no longer leads is left out.
        """
        leaders = []
        for member in members:
            if self._is_leader(member):
                leaders.append(member)
            else:
                yield member, False
        for member in leaders:
            if self._is_leader(member):
                yield member, True

    def leave(self, member: int) -> None:
        """Remove a follower after its client left; an unknown id changes nothing. ValueError for a leader."""
        key = self._keys.get(member)
        if key is None:
            return
        flight = self._flights[key]
        if member == flight.leader:
            raise ValueError(f"member {member} leads: others may wait for its request")
        self._remove(flight, member)

    def resign(self, key: bytes, now_us: int, least_us: int) -> int | None:
        """Replace a leader that leaves, and return the successor; the leader's request goes on for it.

        The successor is the follower with the latest deadline, the first that asked among equals. None: there
        is no follower, and the leader stays. The request is due by the tightest deadline that the rest of its
        work, `least_us`, can meet. Followers with tighter deadlines still get its answer. KeyError if there
        is no such flight.
        """
        flight = self._flights[key]
        if len(flight.members) == 1:
            return None
        self._remove(flight, flight.leader)
        members = flight.members
        flight.leader = max(members, key=members.__getitem__)
        latest_us = members[flight.leader]
        flight.deadline_us = min(
            (due_us for due_us in members.values() if due_us >= now_us + least_us), default=latest_us
        )
        return flight.leader

    def _is_leader(self, member: int) -> bool:
        key = self._keys.get(member)
        return key is not None and self._flights[key].leader == member

    def _remove(self, flight: _Flight, member: int) -> None:
        del flight.members[member]
        del self._keys[member]


def ends_alike(kind: Kind) -> bool:
    """Return whether the followers that end with their leader get its outcome, else DEADLINE_UNMET."""
    return kind is Kind.REJECTED or kind is Kind.FAILED
