"""Spread: the failure domains of pieces that have to be apart."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from serving.policy.placement.packing.demand_pieces import DemandPiece, Way, cut
from serving.policy.placement.packing.shared_slices import NEAR, Turn
from serving.policy.placement.terms.problem import Demand, Option, Pool

CROWDED = 0.8
"""The part of a failure domain's devices that may be taken before pieces that have to be apart go to another
domain."""


class Spread:
    """Chooses where pieces go that have to be apart: each piece of a model to a domain of its own.

    It takes the first domain that is not crowded, large domains first. So pieces that may share a slice meet
    there.
    """

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._there: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for pool in pools:
            self._there[pool.kind, pool.division.kind].update(device.domain for device in pool.devices)
        self._load: dict[str, float] = defaultdict(float)
        self._taken: dict[str, set[str]] = defaultdict(set)

    def apart(self, demand: Demand, ways: Sequence[Way], slices_max: int) -> Iterator[DemandPiece]:
        """Yield the demand's pieces.

        As many of them have a domain as the demand asks for, or as there are domains.
        """
        count = min(demand.domains_min, len({each for way in ways for each in self._there_of(way.option)}))
        for place, piece in enumerate(cut(replace(demand, domains_min=count), ways, slices_max)):
            yield self._assign(piece, ways) if place < count and count > 1 else piece

    def _assign(self, piece: DemandPiece, ways: Sequence[Way]) -> DemandPiece:
        """Return the piece with a domain.

        It runs in another way if only that way has more domains. It stays as it is if no domain is left that
        carries it.
        """
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
        """Return how many devices such an option may be on, by domain."""
        return self._there[option.kind, option.share.kind]

    def _free(self, model: str, option: Option) -> dict[str, int]:
        """Return how many devices each domain has where the model has no piece yet, the largest first."""
        there, taken = self._there_of(option), self._taken[model]
        order = sorted(there, key=lambda each: (-there[each], each))
        return {each: there[each] for each in order if each not in taken}

    def instead(self, turn: Turn, domain: str | None) -> Iterator[str | None]:
        """Yield the domains where such a piece may go, the best first, and None (any) at the end.

        A domain that was not asked for is taken only when it is yielded.
        """
        if domain is not None:
            yield domain
            for other in self._free(turn.model, turn.option):
                self._taken[turn.model].add(other)
                yield other
        yield None
