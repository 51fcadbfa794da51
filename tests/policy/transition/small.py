"""Fleets and placements of a few slices, each of one replica whose batches have one row."""

from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share
from tests.policy.transition.fleets import GIB, MIG

HALF, WHOLE = Share("mps", 50.0), Share("mps", 100.0)


def option(share: Share, rate: float, gib: float = 1, **others: float) -> Option:
    """One row a batch; `rate` batches a second."""
    kind = "A100" if share.kind == "mig" else "B"
    return Option(kind, share, "fp16", ((1, 1e6 / rate),), int(gib * GIB), **others)  # type: ignore[arg-type]


def slot(model: str, share: Share, rate: float, gib: float = 1, start: int = -1, **others: float) -> Slot:
    one = option(share, rate, gib, **others)
    return Slot(share, (PlacedReplica(model, one, 1, rate),), start)


def problem_of(pool: Pool, *placements: Placement, domains_min: int = 1) -> PlacementProblem:
    """With a demand for each model that is there, for which the options are those that are there."""
    options: dict[str, dict[Option, None]] = {}
    for placement in placements:
        for slots in placement.values():
            for each in slots:
                for one in each.residents:
                    options.setdefault(one.model, {})[one.option] = None
    demands = [Demand(model, 1.0, 1e6, tuple(each), domains_min) for model, each in options.items()]
    return PlacementProblem(tuple(demands), (pool,))


def devices(count: int, domains: int = 1) -> tuple[PlacementDevice, ...]:
    return tuple(PlacementDevice(f"gpu-{number}", f"host-{number % domains}") for number in range(count))


def mps(count: int, memory_gib: int = 0, domains: int = 1) -> Pool:
    return Pool("b", "B", Parts("mps", 100.0), devices(count, domains), memory_bytes=memory_gib * GIB)


def mig(count: int) -> Pool:
    return Pool("a", "A100", Instances(MIG), devices(count))
