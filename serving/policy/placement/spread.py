"""Spread: where pieces go that have to be in failure domains of their own."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from serving.policy.placement.demand_pieces import DemandPiece, Way, cut
from serving.policy.placement.problem import Demand, Option, Pool
from serving.policy.placement.shared_slices import NEAR, Turn

CROWDED = 0.8
"""Of a failure domain's devices, what may be taken before what has to be apart goes to another one."""


class Spread:
    """Says where pieces go that have to be apart: each of a model to a domain of its own, the first that is
    not crowded, large domains first, so that what may share a slice meets there."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._there: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for pool in pools:
            self._there[pool.kind, pool.division.kind].update(device.domain for device in pool.devices)
        self._load: dict[str, float] = defaultdict(float)
        self._taken: dict[str, set[str]] = defaultdict(set)

    def apart(self, demand: Demand, ways: Sequence[Way], slices_max: int) -> Iterator[DemandPiece]:
        """Its pieces, as many of them with a domain as the demand asks for, or as there are."""
        count = min(demand.domains_min, len({each for way in ways for each in self._there_of(way.option)}))
        for place, piece in enumerate(cut(replace(demand, domains_min=count), ways, slices_max)):
            yield self._assign(piece, ways) if place < count and count > 1 else piece

    def _assign(self, piece: DemandPiece, ways: Sequence[Way]) -> DemandPiece:
        """The piece with a domain, run in another way where only that one has more domains; as it is where
        none has that carries it."""
        (turn,) = piece.stack
        others = (way.option for way in ways if way.throughput >= turn.rate * (1 - NEAR))
        for option in (turn.option, *others):
            free = self._free(turn.model, option)
            if free:
                calm = [each for each in free if self._load[each] + piece.part <= CROWDED * free[each]]
                domain = calm[0] if calm else min(free, key=lambda each: self._load[each] / free[each])
                self._load[domain] += piece.part
                self._taken[turn.model].add(domain)
                return replace(piece, stack=(replace(turn, option=option),), domain=domain)
        return piece

    def _there_of(self, option: Option) -> Counter[str]:
        """The devices that such an option may be on, by domain."""
        return self._there[option.kind, option.share.kind]

    def _free(self, model: str, option: Option) -> dict[str, int]:
        """The devices of the domains where the model has no piece yet, most first."""
        there, taken = self._there_of(option), self._taken[model]
        order = sorted(there, key=lambda each: (-there[each], each))
        return {each: there[each] for each in order if each not in taken}

    def instead(self, turn: Turn, domain: str | None) -> Iterator[str | None]:
        """Where such a piece may go, the best first; a domain that was not asked for is taken only then."""
        if domain is not None:
            yield domain
            for other in self._free(turn.model, turn.option):
                self._taken[turn.model].add(other)
                yield other
        yield None
