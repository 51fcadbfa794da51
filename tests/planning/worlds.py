"""Questions in memory, for what is foretold of placements: devices alike, requests of one row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from serving.planning.task import AskedRate, PlanningTask
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
from serving.values.specs import Limits, ServedModel
from tests.builders import model_spec, served

KIND = "cpu-test"
ONE = Share("cores", 1.0)
ROWS = (1, 2, 4, 8)


def option(row_us: float = 1000.0, **changes: object) -> Option:
    """A batch takes `row_us`, and as much for each further row."""
    found = Option(KIND, ONE, "a", tuple((rows, row_us * rows) for rows in ROWS), load_us=1_000_000)
    return replace(found, **changes)  # type: ignore[arg-type]


def resident(model: str, of: Option | None = None, rows: int = 8) -> PlacedReplica:
    """It carries what it would alone on its slice."""
    of = of or option()
    return PlacedReplica(model, of, rows, of.processes * rows * 1e6 / of.latency_us(rows))


def slot(*residents: PlacedReplica) -> Slot:
    """A slice of the share of its first resident."""
    return Slot(residents[0].option.share, residents)


def question(
    rates: Mapping[str, float], devices: int = 1, slo_ms: int = 50, division: Parts | Instances | None = None
) -> PlanningTask:
    """Models of these rates (requests of one row a second), and devices d-0, d-1 and so on."""
    models = tuple(_model(name, slo_ms) for name in rates)
    demands = tuple(Demand(name, rate, slo_ms * 1000.0, (option(),)) for name, rate in rates.items())
    names = tuple(PlacementDevice(f"d-{number}", f"d-{number}") for number in range(devices))
    pool = Pool("d", KIND, division or Parts("cores", 64.0), names)
    return PlanningTask(
        models,
        (),
        Limits(),
        PlacementProblem(demands, (pool,)),
        {},
        {name: AskedRate(rate) for name, rate in rates.items()},
    )


def _model(name: str, slo_ms: int) -> ServedModel:
    return served(model_spec(name, slo_ms=slo_ms))


def on_one(slots: Sequence[Slot]) -> Placement:
    """All of them on the first device."""
    return {"d-0": tuple(slots)}


def on_each(slots: Sequence[Slot]) -> Placement:
    """One on each device."""
    return {f"d-{number}": (each,) for number, each in enumerate(slots)}
