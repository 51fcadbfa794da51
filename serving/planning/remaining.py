"""What is left of a placement problem where devices are lost and loads fail."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from serving.policy.placement.terms.geometry import Layout, without
from serving.policy.placement.terms.problem import Demand, Instances, Parts, PlacementProblem, Pool
from serving.values.slice_specs import Share


@dataclass(frozen=True, slots=True)
class Outage:
    """What a plan must do without.

    - `devices`: the lost devices.
    - `amounts`: by device, how much of a divided device is lost.
    - `instances`: by device, the MIG instances that are lost, with their places.
    - `failing`: (kind, model, share) of loads that fail. The share None means every share of that kind.
    """

    devices: Collection[str] = ()
    amounts: Mapping[str, float] = field(default_factory=dict)
    instances: Mapping[str, Layout] = field(default_factory=dict)
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
        if each.name in outage.devices:
            continue
        division = _smaller(pool.division, each.name, outage)
        if division == pool.division:
            whole.append(each)
        elif division is not None:
            name = pool.name if len(pool.devices) == 1 else f"{pool.name}: {each.name}"
            yield replace(pool, name=name, division=division, devices=(each,))
    if whole:
        yield replace(pool, devices=tuple(whole))


def _smaller(division: Parts | Instances, device: str, outage: Outage) -> Parts | Instances | None:
    """Return how the device can be divided without its lost parts; None if nothing is left."""
    if isinstance(division, Parts):
        left = division.total - outage.amounts.get(device, 0.0)
        return replace(division, total=left) if left > 0 else None
    geometry = without(division.geometry, outage.instances.get(device, ()))
    return replace(division, geometry=geometry) if geometry else None


def _without(demand: Demand, failing: Collection[tuple[str, str, Share | None]]) -> Demand:
    options = tuple(
        each
        for each in demand.options
        if (each.kind, demand.model, None) not in failing
        and (each.kind, demand.model, each.worker_share) not in failing
    )
    return replace(demand, options=options)
