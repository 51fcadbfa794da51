"""Swaps: two slices change places if a model is in fewer failure domains than it should be.

This is for fleets that are too large for the exact program (`program.py`). Each swap leaves one model better
and none worse.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from serving.policy.placement.assignment.dealing import Spread, Unit
from serving.policy.placement.assignment.lots import Slots, Spot, models

LOOKED_AT = 100
"""The number of swaps that are compared, out of all that help a model."""

Stays = Callable[[Spot, Slots], float]
"""The starting time that is saved when slices come to a spot."""


def repair(units: Sequence[Unit], spread: Spread, least: Mapping[str, int], stays: Stays) -> None:
    """Swap units until every model is in as many domains as `least` says, or until no swap helps.

    Each time, the two that start least are swapped. `spread` is kept up to date.
    """
    alike: dict[Hashable, list[Unit]] = defaultdict(list)
    homes: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        alike[unit.kind].append(unit)
        for model in models(unit.slots):
            homes[model].append(unit)
    for model in sorted(least):
        while len(spread[model]) < least[model]:
            own = [unit for unit in homes[model] if model in models(unit.slots)]
            helping = _helping(own, alike, spread, least, model)
            best = min(islice(helping, LOOKED_AT), key=lambda two: _cost(two[0], two[1], stays), default=None)
            if best is None:
                break
            _change(best[0], best[1], spread)
            for unit in best:
                for moved in models(unit.slots):
                    homes[moved].append(unit)


def _helping(
    own: Iterable[Unit],
    alike: Mapping[Hashable, Sequence[Unit]],
    spread: Spread,
    least: Mapping[str, int],
    model: str,
) -> Iterator[tuple[Unit, Unit]]:
    """Yield (own unit, other unit) for each swap that brings the model into one more domain."""
    for unit in own:
        if spread[model][unit.spot.domain] > 1:
            for other in alike[unit.kind]:
                if other.spot.domain not in spread[model] and _harmless(unit, other, spread, least):
                    yield unit, other


def _harmless(one: Unit, other: Unit, spread: Spread, least: Mapping[str, int]) -> bool:
    """Return whether a swap leaves every model that needs its domains in as many."""
    first, second = models(one.slots), models(other.slots)
    for named, both, leaves, enters in (
        (first, second, one.spot.domain, other.spot.domain),
        (second, first, other.spot.domain, one.spot.domain),
    ):
        for model in named:
            if model in both or model not in least:
                continue
            there = spread[model]
            lost, won = there[leaves] == 1, there[enters] == 0
            if len(there) - lost + won < min(len(there), least[model]):
                return False
    return True


def _cost(one: Unit, other: Unit, stays: Stays) -> float:
    """Return the starting time that a swap adds."""
    before = stays(one.spot, one.slots) + stays(other.spot, other.slots)
    return before - stays(one.spot, other.slots) - stays(other.spot, one.slots)


def _change(one: Unit, other: Unit, spread: Spread) -> None:
    for unit, to in ((one, other.spot.domain), (other, one.spot.domain)):
        for model in models(unit.slots):
            spread[model][unit.spot.domain] -= 1
            spread[model] += Counter((to,))  # this also drops the domains with a count of 0
    one.slots, other.slots = other.slots, one.slots
