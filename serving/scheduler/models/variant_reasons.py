"""Why the variants of a model answer that do, in figures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from serving.policy.batching.rules.targets import worth_target
from serving.profile.derived.carrying import ProfiledCapacity, carried
from serving.scheduler.models.models import ScheduledModel
from serving.scheduler.slices.ladders import Selector, cost
from serving.scheduler.slices.slices import steady
from serving.values.objectives import Objective


@dataclass(frozen=True)
class RungReasons:
    """A variant that a slice may run a batch by. `row_us`: what a row takes of its time in batches of `rows`,
    as they are aimed at; `one_us`: what one row alone is planned with; `cost`: of a million rows in full
    batches, 0 where the slice has no price. `profiled`: its profiled capacity, `lately`: the same with what
    batches typically took of late; None where no batch is within half the SLO."""

    variant: str
    accuracy: float | None
    row_us: float
    rows: int
    one_us: float
    cost: float
    profiled: ProfiledCapacity | None = None
    lately: ProfiledCapacity | None = None


@dataclass(frozen=True)
class LadderReasons:
    """Of one slice, for one objective. `rungs`: the most accurate first, each quicker than those before; of
    them `preferred` answers without pressure, `carrying` at the present load."""

    slice: str
    rungs: tuple[RungReasons, ...]
    preferred: int
    carrying: int


@dataclass(frozen=True)
class VariantReasons:
    """`rate` in rows a second, `slices` the live ones of the model. `load`: what of their time the model
    takes at the rungs that carry it. `afford_us`: what a row of its own objective may take of a slice's time,
    inf for as much as it likes. `ladders`: by tier, "" for the model's own, of each slice."""

    model: str
    rate: float
    waiting_rows: int
    slices: int
    afford_us: float
    load: float
    ladders: Mapping[str, tuple[LadderReasons, ...]]


def variant_reasons_of(model: ScheduledModel, now_us: int) -> VariantReasons:
    """Return the reasons of this moment, as of the last review of rates and latencies."""
    served = model.served
    rate = sum([flow.rate.peak(now_us) for flow in model.flows.values()], 0.0)
    objectives = {"": served.own, **served.by_tier}
    ladders = {tier: _ladders(model, each, rate) for tier, each in objectives.items()}
    allowance = model.queue.allowances.get(served.own.wants)
    return VariantReasons(
        served.name,
        rate * 1e6,
        model.queue.backlog.rows,
        len(model.slices),
        inf if allowance is None else allowance.afford_us,
        load_of(model, now_us),
        ladders,
    )


def load_of(model: ScheduledModel, now_us: int) -> float:
    """Return the share of its slices' time that a model takes, at the rungs that carry its own objective. It
    is more than 1 if more comes than they can do."""
    wants = model.served.own.wants
    carries: list[float] = []
    for live in model.slices:
        selector = live.queues[model.served.name].selector
        rungs = selector.ladder(wants).rungs
        if rungs:
            carries.append(rungs[selector.carrying(wants)].row_us)
    rate = sum([flow.rate.peak(now_us) for flow in model.flows.values()], 0.0)
    row_us = sum(carries, 0.0) / len(carries) if carries else 0.0
    return rate * row_us / max(steady(model.slices), 1)


def _ladders(model: ScheduledModel, objective: Objective, rate: float) -> tuple[LadderReasons, ...]:
    found: Iterable[tuple[str, Selector]] = (
        (live.name, live.queues[model.served.name].selector) for live in model.slices
    )
    return tuple(_ladder(model, objective, rate, name, selector) for name, selector in found)


def _ladder(
    model: ScheduledModel, objective: Objective, rate: float, name: str, selector: Selector
) -> LadderReasons:
    wants, rows_max, slo_us = objective.wants, model.served.spec.batch_max, objective.slo_us
    ladder = selector.ladder(wants)
    rungs = []
    for rung in ladder.rungs:
        replica = selector.replicas[rung.variant]
        rows = worth_target(replica, replica.size_max, model.served.slo_us, rate)
        one_us = replica.predict_us(1, replica.size_max)
        size = replica.size_max
        profiled = carried(replica.profiled, slo_us, rows_max, size)
        lately = carried(replica.latency, slo_us, rows_max, size, replica.factor)
        priced = cost(replica)
        rungs.append(
            RungReasons(rung.variant, replica.accuracy, rung.row_us, rows, one_us, priced, profiled, lately)
        )
    return LadderReasons(name, tuple(rungs), ladder.first, selector.carrying(wants) if rungs else 0)
