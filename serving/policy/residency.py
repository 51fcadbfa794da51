"""Which models stay on a slice that cannot hold all of its own, and who goes for a newcomer.

What is kept is worth what GreedyDual-Size-Frequency says: how often it is asked for, times the time that
loading it takes, for each byte of it (Cao and Irani, "Cost-Aware WWW Proxy Caching Algorithms", USITS 1997;
Cherkasova, HP Labs HPL-98-69R1, 1998). There the frequency is a count of hits, which a clock that rises with
each eviction makes old; here it is a forecast of arrivals, which forgets by itself. A clock beside it would
age everything twice, and the more the more there is to load (`loadtests/memory/residency.py` shows both).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

TURN_US: Final = 60_000_000
TURN_LOADS: Final = 100
"""A model that has been turned away for so long, and for so many times what it costs the others to let it in,
has its turn: nobody is kept out for ever, and who would be takes at most one per cent of the loading."""

Key = tuple[str, str]
"""A model and its variant."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that is there, or wants to be. `rate`: the requests a second that it is likely to have."""

    key: Key
    memory_bytes: int
    load_us: float
    rate: float

    @property
    def worth(self) -> float:
        """Microseconds of loading that its presence saves in a second."""
        return self.rate * self.load_us


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A model that a request waits for, for which others have to give up `short_bytes`. `wait_us`: until its
    loading can begin; `in_time`: it would be there early enough for that request."""

    model: Candidate
    short_bytes: int
    wait_us: float = 0.0
    in_time: bool = True


class EvictionPolicy(Protocol):
    """Which models are evicted for a newcomer. The policy hears of each model that is loaded."""

    def enter(self, key: Key, now_us: int) -> None:
        """Note that the model is loaded."""
        ...

    def choose(
        self, newcomer: Newcomer, residents: Sequence[Candidate], now_us: int
    ) -> Sequence[Candidate] | None:
        """Return those of `residents` that go; all of them together are enough. None: they are worth more."""
        ...


class ForecastGdsf:
    """The least worth for a byte goes first, and the newcomer is let in where it is worth more than all that
    go for it together.

    They are missed until first the newcomer and then they themselves have been loaded, so what comes in that
    time is compared. The newcomer has a request beside, if that can still be answered in time.
    """

    def __init__(self) -> None:
        self._entered_us: dict[Key, int] = {}
        self._turned_away_us: dict[Key, int] = {}  # first, since it was there

    def enter(self, key: Key, now_us: int) -> None:
        """Note that the model is loaded."""
        self._entered_us[key] = now_us
        self._turned_away_us.pop(key, None)

    def choose(
        self, newcomer: Newcomer, residents: Sequence[Candidate], now_us: int
    ) -> Sequence[Candidate] | None:
        """Return the models to evict, as the protocol says. Of equals, the model goes that has been there
        longest."""
        ranks = ((one.worth / one.memory_bytes, self._entered_us.get(one.key, 0)) for one in residents)
        victims = least(residents, ranks, newcomer.short_bytes)
        model = newcomer.model
        away_us = newcomer.wait_us + model.load_us + sum(one.load_us for one in victims)
        lost_us = sum(one.worth for one in victims) * away_us / 1e6
        gained_us = model.worth * away_us / 1e6 + (model.load_us if newcomer.in_time else 0.0)
        if lost_us > gained_us:
            since_us = self._turned_away_us.setdefault(model.key, now_us)
            if now_us - since_us < TURN_US + TURN_LOADS * away_us:
                return None
        return victims


def least(residents: Sequence[Candidate], ranks: Iterable[Any], short_bytes: int) -> list[Candidate]:
    """Return those of the lowest ranks (of whatever is ordered) that are `short_bytes` together, less those
    that the others make up for."""
    found: list[Candidate] = []
    held_bytes = 0
    for _, place in sorted((rank, place) for place, rank in enumerate(ranks)):
        if held_bytes >= short_bytes:
            break
        found.append(residents[place])
        held_bytes += residents[place].memory_bytes
    for one in found[::-1]:
        if held_bytes - one.memory_bytes >= short_bytes:
            held_bytes -= one.memory_bytes
            found.remove(one)
    return found
