"""What the eviction of models is compared with: recency, frequency, GreedyDual as published, and an oracle.

All but the oracle let everybody in. They are told of every request (`used`).
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from serving.policy.residency import Candidate, Key, Newcomer, least
from serving.values.vocabulary import NEVER_US


class Lru:
    """Evicts first the model that was last asked for the longest time ago."""

    def __init__(self) -> None:
        self._used_us: dict[Key, int] = {}

    def used(self, key: Key, now_us: int) -> None:
        """Note that the model was asked for."""
        self._used_us[key] = now_us

    def enter(self, key: Key, now_us: int) -> None:
        """Note that the model was loaded, as `EvictionPolicy` says."""
        self._used_us[key] = now_us

    def choose(
        self,
        newcomer: Newcomer,
        residents: Sequence[Candidate],
        now_us: int,  # noqa: ARG002  that of the protocol
    ) -> Sequence[Candidate]:
        """Choose the models to evict, as `EvictionPolicy` says."""
        return least(residents, (self._used_us[one.key] for one in residents), newcomer.short_bytes)


class Lfu:
    """Evicts first the model that was asked for least since it was loaded."""

    def __init__(self) -> None:
        self._counts: dict[Key, int] = {}

    def used(self, key: Key, now_us: int) -> None:  # noqa: ARG002  as the others'
        """Note that the model was asked for."""
        self._counts[key] = self._counts.get(key, 0) + 1

    def enter(self, key: Key, now_us: int) -> None:  # noqa: ARG002  that of the protocol
        """Note that the model was loaded, as `EvictionPolicy` says."""
        self._counts[key] = 1

    def choose(
        self,
        newcomer: Newcomer,
        residents: Sequence[Candidate],
        now_us: int,  # noqa: ARG002  that of the protocol
    ) -> Sequence[Candidate]:
        """Choose the models to evict, as `EvictionPolicy` says."""
        return least(residents, (self._counts[one.key] for one in residents), newcomer.short_bytes)


class Gdsf:
    """GreedyDual-Size-Frequency as published: H = clock + count * cost / size as of the last use, the least H
    goes first and is the clock then (Cherkasova, HP Labs HPL-98-69R1, 1998)."""

    def __init__(self) -> None:
        self._clock = 0.0
        self._used: dict[Key, tuple[float, int]] = {}  # the clock at the last use, and uses since it came

    def used(self, key: Key, now_us: int) -> None:  # noqa: ARG002  as the others'
        """Note that the model was asked for."""
        self._used[key] = (self._clock, self._used.get(key, (0.0, 0))[1] + 1)

    def enter(self, key: Key, now_us: int) -> None:  # noqa: ARG002  that of the protocol
        """Note that the model was loaded, as `EvictionPolicy` says."""
        self._used[key] = (self._clock, 1)

    def choose(
        self,
        newcomer: Newcomer,
        residents: Sequence[Candidate],
        now_us: int,  # noqa: ARG002  that of the protocol
    ) -> Sequence[Candidate]:
        """Choose the models to evict, as `EvictionPolicy` says."""
        victims = least(residents, map(self._credit, residents), newcomer.short_bytes)
        self._clock = max(self._clock, *map(self._credit, victims))
        return victims

    def _credit(self, one: Candidate) -> float:
        clock, count = self._used[one.key]
        return clock + count * one.load_us / one.memory_bytes


class Belady:
    """Evicts first the model with the latest next request (Belady, IBM Systems Journal 5(2), 1966). It evicts
    no model that is needed before the newcomer. `arrivals_us`: by model, all of them, ascending.

    If sizes or costs differ, they weigh the rate of one request in the time until it comes. That is no longer
    the optimum, but the policy knows the future.
    """

    def __init__(self, arrivals_us: Mapping[Key, Sequence[int]]) -> None:
        self._arrivals_us = arrivals_us

    def used(self, key: Key, now_us: int) -> None:
        """Do nothing: the policy has known it."""

    def enter(self, key: Key, now_us: int) -> None:
        """Do nothing: the policy has known it."""

    def choose(
        self, newcomer: Newcomer, residents: Sequence[Candidate], now_us: int
    ) -> Sequence[Candidate] | None:
        """Choose the models to evict, as `EvictionPolicy` says."""
        ranks = [self._worth(one, now_us) / one.memory_bytes for one in residents]
        victims = least(residents, ranks, newcomer.short_bytes)
        worth = sum(self._worth(one, now_us) for one in victims)
        return None if worth > self._worth(newcomer.model, now_us) else victims

    def _worth(self, one: Candidate, now_us: int) -> float:
        arrivals_us = self._arrivals_us.get(one.key, ())
        place = bisect_right(arrivals_us, now_us)
        next_us = arrivals_us[place] if place < len(arrivals_us) else NEVER_US
        return one.load_us / (next_us - now_us)
