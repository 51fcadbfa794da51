"""Flights whose answer is first looked for where other gateways keep theirs.

A search ends within the budget of a look, but for one that finds that another gateway computes the answer:
it waits for that, looking again now and then (`serving.cache.shared_wait`), as long as a computation here
would still be in time. Whatever the other gateway or Redis does, nobody is later than that for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Protocol

from serving.cache.entries import KeptAnswer
from serving.cache.shared_wait import again_us, lease_us, patience_us
from serving.runtime.caching.redis_tier import FaultOf, Found, RedisQuery
from serving.runtime.clocks.alarm import Alarm
from serving.runtime.clocks.clock import now_us

LOOK_US = 30
"""Gateway CPU of a look: 60 to 95 us by itself, 7 to 13 where 32 share a round trip (answers of 1 KB;
loadtests/memory/redis_cost.py)."""


class SharedTier(Protocol):
    """Where other gateways keep their answers; `serving.runtime.caching.redis_tier.RedisTier` is the one."""

    budget_us: int
    on_invalidated: Callable[[str], object]
    on_healed: Callable[[], object]

    @property
    def usable(self) -> bool:
        """Whether it is worth asking."""
        ...

    def look(self, look: RedisQuery) -> None:
        """Ask; `look.told` is called within the budget."""
        ...

    def withdraw(self, look: RedisQuery) -> None:
        """Withdraw a query because its caller is gone."""
        ...

    def put(self, key: bytes, entry: KeptAnswer) -> None:
        """Keep an answer for others."""
        ...

    def release(self, name: bytes) -> None:
        """End the lease: this gateway computes the answer no more."""
        ...

    def invalidate(self, model: str = "") -> None:
        """Let no gateway use what was computed before."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What a flight is about, and how soon its answer is wanted: by `deadline_us`, where computing it takes
    at least `least_us`. `fault_of` says what is wrong with an answer to it, "" where nothing is."""

    model: str
    key: bytes
    deadline_us: int
    least_us: int
    fault_of: FaultOf = lambda _entry: ""


class _Search:
    __slots__ = ("began_us", "least_us", "look", "next_us", "until_us")

    def __init__(self, look: RedisQuery, began_us: int, until_us: int, least_us: int) -> None:
        self.look = look  # the last one
        self.began_us = began_us
        self.until_us = until_us
        self.least_us = least_us
        self.next_us = 0  # when it looks again, 0 while it looks


class Searches:
    """By flight. `ended(flight, entry)` is called when a search is over, with the answer, or None where it is
    to be computed here; it stays until it is closed or dropped. `looked(model, result, took_us)` counts each
    look. Without a `tier` there are no searches. `shares`: whether it is worth it for a model.
    """

    def __init__(
        self, ended: Callable[[bytes, KeptAnswer | None], None], looked: Callable[[str, str, int], None]
    ) -> None:
        self.tier: SharedTier | None = None
        self.shares: Callable[[str], bool] = lambda _model: True
        self._ended = ended
        self._looked = looked
        self._searches: dict[bytes, _Search] = {}
        self._leases: dict[bytes, bytes] = {}  # names of what is computed here, by flight
        self._again: list[tuple[int, bytes]] = []  # heap of (instant, flight); the ended leave lazily
        self._alarm = Alarm(self._wake)

    def __len__(self) -> int:
        """Return the number of searches under way."""
        return len(self._searches)

    def __contains__(self, flight: bytes) -> bool:
        return flight in self._searches

    def begin(self, flight: bytes, question: Question, now: int) -> bool:
        """Look for the flight's answer; False where it had better be computed at once."""
        tier = self.tier
        if tier is None or not self.shares(question.model):
            return False
        if not tier.usable:
            self._looked(question.model, "skipped", 0)
            return False
        wait_us = patience_us(question.deadline_us, question.least_us, now)
        if wait_us < tier.budget_us:
            return False
        lease = lease_us(question.deadline_us, now)
        look = RedisQuery(question.model, question.key, lease, partial(self._told, flight), question.fault_of)
        self._searches[flight] = _Search(look, now, now + wait_us, question.least_us)
        tier.look(look)
        return True

    def hurry(self, flight: bytes, deadline_us: int, now: int) -> None:
        """Shorten a search, because another call waits for the flight's answer and needs it by
        `deadline_us`."""
        search = self._searches.get(flight)
        if search is None:
            return
        search.until_us = min(search.until_us, now + patience_us(deadline_us, search.least_us, now))
        if search.until_us < search.next_us:
            self._wait(flight, search, search.until_us, now)

    def drop(self, flight: bytes) -> None:
        """Drop a search: no call waits for the flight any more, or its request ended without an answer."""
        search, name = self._searches.pop(flight, None), self._leases.pop(flight, None)
        if self.tier is not None and search is not None:
            self.tier.withdraw(search.look)
        if self.tier is not None and name is not None:
            self.tier.release(name)

    def close(self, flight: bytes) -> None:
        """Close a search: what was found is in good hands, and what was not is now computed here."""
        del self._searches[flight]

    def offer(self, flight: bytes, key: bytes, entry: KeptAnswer) -> None:
        """Let other gateways have the flight's answer, which was asked for since the last invalidation."""
        self._leases.pop(flight, None)  # it ends with the answer
        if self.tier is not None and self.shares(entry.model):
            self.tier.put(key, entry)

    def invalidate(self, model: str) -> None:
        """Let no other gateway have what was computed before."""
        if self.tier is not None:
            self.tier.invalidate(model)

    def _told(self, flight: bytes, found: Found) -> None:
        now, search = now_us(), self._searches.get(flight)
        if search is None:
            return  # its last member went, and asked the same again, as this was told
        look = search.look
        self._looked(look.model, _result(found), now - look.asked_us)
        if isinstance(found, KeptAnswer):
            self._ended(flight, found)
        elif found:
            self._wait(flight, search, again_us(search.began_us, now, min(search.until_us, now + found)), now)
        else:
            if found == 0:
                self._leases[flight] = look.name
            self._ended(flight, None)

    def _wait(self, flight: bytes, search: _Search, at_us: int, now: int) -> None:
        search.next_us = at_us
        heappush(self._again, (at_us, flight))
        self._alarm.set(self._again[0][0], now)

    def _wake(self, now: int) -> None:
        again = self._again
        while again and again[0][0] <= now:
            at_us, flight = heappop(again)
            search = self._searches.get(flight)
            if self.tier is None or search is None or search.next_us != at_us:
                continue
            if now >= search.until_us or not self.tier.usable:
                self._ended(flight, None)
                continue
            search.next_us = 0
            last = search.look
            search.look = RedisQuery(last.model, last.key, last.lease_us, last.told, last.fault_of)
            self.tier.look(search.look)
        if again:
            self._alarm.set(again[0][0], now)


def _result(found: Found) -> str:
    if isinstance(found, KeptAnswer):
        return "hit"
    if found is None:
        return "timeout"
    return "taken" if found else "miss"
