"""Where a model is in fewer failure domains than are asked for: two slices change places.

For fleets that are too large for the exact program (`program.py`). One step at a time; each leaves one model
better and none worse.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from serving.policy.placement.assignment.dealing import Spread, Unit
from serving.policy.placement.assignment.lots import Slots, Spot, models

LOOKED_AT = 100
"""Of the changes that help a model so many are compared."""

Stays = Callable[[Spot, Slots], float]
"""What need not be started where slices come to a spot."""


def repair(units: Sequence[Unit], spread: Spread, least: Mapping[str, int], stays: Stays) -> None:
    """Has units change places until every model is in as many domains as `least` says or no change of two
    helps, each time the two that start least; `spread` is kept up to date."""
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
    """Which of its `own` units could change places with which others, so that the model is in one domain
    more."""
    for unit in own:
        if spread[model][unit.spot.domain] > 1:
            for other in alike[unit.kind]:
                if other.spot.domain not in spread[model] and _harmless(unit, other, spread, least):
                    yield unit, other


def _harmless(one: Unit, other: Unit, spread: Spread, least: Mapping[str, int]) -> bool:
    """Whether no model that needs its domains is in fewer once the two have changed places."""
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
    """What has to be started that had not to be before."""
    before = stays(one.spot, one.slots) + stays(other.spot, other.slots)
    return before - stays(one.spot, other.slots) - stays(other.spot, one.slots)


def _change(one: Unit, other: Unit, spread: Spread) -> None:
    for unit, to in ((one, other.spot.domain), (other, one.spot.domain)):
        for model in models(unit.slots):
            spread[model][unit.spot.domain] -= 1
            spread[model] += Counter((to,))  # and drops the domains where there is none
    one.slots, other.slots = other.slots, one.slots
