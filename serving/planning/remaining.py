"""What is left of a placement problem where devices are lost and loads fail."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from serving.policy.placement.problem import Demand, Parts, PlacementProblem, Pool
from serving.specs import Share


@dataclass(frozen=True, slots=True)
class Outage:
    """What a plan must do without.

    - `devices`: the lost devices.
    - `amounts`: by device, how much of a divided device is lost.
    - `failing`: (kind, model, share) of loads that fail. The share None means every share of that kind.
    """

    devices: Collection[str] = ()
    amounts: Mapping[str, float] = field(default_factory=dict)
    failing: Collection[tuple[str, str, Share | None]] = ()


def remaining(problem: PlacementProblem, outage: Outage) -> PlacementProblem:
    """Return the problem without what is lost, and without the options with loads that fail."""
    pools = tuple(left for pool in problem.pools for left in _left(pool, outage))
    demands = tuple(_without(demand, outage.failing) for demand in problem.demands)
    return PlacementProblem(demands, pools)


def _left(pool: Pool, outage: Outage) -> Iterator[Pool]:
    """Yield what is left of a pool; a device that lost a part is a pool of its own, before the others."""
    whole = []
    for each in pool.devices:
        lost, division = outage.amounts.get(each.name, 0.0), pool.division
        if each.name in outage.devices:
            continue
        if not lost:
            whole.append(each)
        elif isinstance(division, Parts) and division.total > lost:
            name = pool.name if len(pool.devices) == 1 else f"{pool.name}: {each.name}"
            smaller = replace(division, total=division.total - lost)
            yield replace(pool, name=name, division=smaller, devices=(each,))
    if whole:
        yield replace(pool, devices=tuple(whole))


def _without(demand: Demand, failing: Collection[tuple[str, str, Share | None]]) -> Demand:
    options = tuple(
        each
        for each in demand.options
        if (each.kind, demand.model, None) not in failing
        and (each.kind, demand.model, each.share) not in failing
    )
    return replace(demand, options=options)
