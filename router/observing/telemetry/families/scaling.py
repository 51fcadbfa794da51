"""How many replicas there are to be, and what they cost, as Prometheus text; for people and for external
scalers (docs/autoscaling.md)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

from router.observing.telemetry.counting.counts import ModelCounts, escape
from router.observing.telemetry.counting.heading import head
from router.observing.telemetry.counting.spending import Resident, Spending
from serving.policy.cost import cost_per_million
from serving.policy.variants.climbing import LOAD_SHARE

_ROUNDING: Final = 1e-9  # 3 slices that are just enough are not 4
_COSTS: Final = (
    (
        "penstock_cost_total",
        "counter",
        "Cost of all slices while they were held, in the currency of the prices.",
    ),
    ("penstock_cost_per_hour", "gauge", "Cost of an hour of all slices that are held now."),
)


@dataclass(frozen=True, slots=True)
class ScalePresent:
    """Read at a scrape. `demands`: by model, the pressure on its replicas (1: they are just enough), and how
    many it should have; `changes`: how often it was given more, and fewer; `resident`: the models on each
    slice that is held; `held`: how many are, by kind and whether they are spot; `cost_max` of an hour."""

    demands: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    changes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    resident: Resident = field(default_factory=dict)
    held: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    cost_max: float = inf


def demand(load: float, slices: int) -> tuple[float, int]:
    """Return (the pressure on a model's slices, how many slices it should have). The model takes the share
    `load` of their time. The number may exceed the slices there are: an operator that adds gateways adds
    slices."""
    pressure = load / LOAD_SHARE
    return pressure, max(ceil(pressure * slices - _ROUNDING), 1)


def blocks(
    models: Sequence[ModelCounts], spending: Spending, present: ScalePresent, now_us: int
) -> Iterator[str]:
    """Yield the blocks of the models that are served."""
    name = "penstock_slo_pressure"
    yield head(
        name, "gauge", "Load over what the model's replicas can carry in time; at 1 they are just enough."
    )
    for model, (pressure, _) in present.demands.items():
        yield f'{name}{{model="{escape(model)}"}} {pressure:.6g}\n'
    name = "penstock_desired_replicas"
    yield head(name, "gauge", "Replicas that the model should have.")
    for model, (_, desired) in present.demands.items():
        yield f'{name}{{model="{escape(model)}"}} {desired}\n'
    name = "penstock_scaling_changes_total"
    yield head(name, "counter", "Changes of the number of the model's replicas, by direction.")
    for model, counts in present.changes.items():
        for direction, count in zip(("up", "down"), counts, strict=True):
            yield f'{name}{{model="{escape(model)}",direction="{direction}"}} {count}\n'
    name = "penstock_held_slices"
    yield head(name, "gauge", "Slices that are held, by kind of device and whether they are spot.")
    for (kind, spot), held in present.held.items():
        yield f'{name}{{kind="{escape(kind)}",spot="{str(spot).lower()}"}} {held}\n'
    yield from _costs(models, spending, present, now_us)


def _costs(
    models: Sequence[ModelCounts], spending: Spending, present: ScalePresent, now_us: int
) -> Iterator[str]:
    bill = spending.bill(present.resident, now_us)
    for (name, kind, text), cost in zip(_COSTS, (bill.total, bill.per_hour), strict=True):
        yield f"{head(name, kind, text)}{name} {cost:.10g}\n"
    name = "penstock_model_cost_per_hour"
    yield head(
        name, "gauge", "The model's part of the cost of an hour, by computing time of the last 5 minutes."
    )
    for model, cost in bill.parts.items():
        yield f'{name}{{model="{escape(model)}"}} {cost:.6g}\n'
    name = "penstock_cost_per_million_good"
    yield head(
        name, "gauge", "Cost of a million requests completed by their deadline, over the last 5 minutes."
    )
    for each in [model for model in models if model.name in bill.lately]:
        good = 0
        for flow in [*each.flows.values()]:
            good += flow.window_counts(now_us)[0][1]
            yield ""  # of many tenants the scrape may be at its next step
        if good:
            rate = good / bill.window_us * 1e6
            yield f"{name}{{{each.labels}}} {cost_per_million(bill.lately[each.name], rate):.6g}\n"
    name = "penstock_cost_ceiling_per_hour"
    yield head(name, "gauge", "Most that an hour of all held slices may cost; no sample without a limit.")
    if present.cost_max < inf:
        yield f"{name} {present.cost_max:.10g}\n"
