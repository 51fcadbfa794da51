"""What a placement is asked to carry: each model's rate, SLO, and the ways to run it that were measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from router.settings import Settings
from router.verbs.simulate.traffic import SimulateRequestError
from serving.planning.task import AskedRate
from serving.policy.placement.terms.problem import Demand, Option, Pool
from serving.profile.curve import Profile
from serving.profile.derived.carrying import carried
from serving.profile.derived.interference import Slowdown
from serving.profile.derived.latency import Latency
from serving.profile.files.corun import CoRun, Tenant
from serving.profile.files.store import ProfileStore
from serving.values.specs import ServedModel

_EXAMPLES: Mapping[str, str] = {
    "cores": "--shares 1,2",
    "mps": "--device cuda:0 --shares 20,50,100",
    "mig": "--device cuda:0 --shares mig:1g.18gb,mig:3g.71gb",
    "whole": "--device cuda:0 --shares whole:1",
}
"""How `penstock profile` is asked for shares of each kind."""


def demands(
    settings: Settings, rates: Mapping[str, AskedRate], pools: Sequence[Pool], reserve: float
) -> tuple[tuple[Demand, ...], list[str]]:
    """Return (the demands of all models that have a rate, in the settings' order; sentences on what they rest
    on).

    `reserve`: the share of a rate that is to be carried beyond it. Raises SimulateRequestError that names
    every model that no device of these pools can run within its SLO, and what would help. A model with rate 0
    needs nothing.
    """
    store = ProfileStore(settings.profiles)
    kinds = dict.fromkeys(pool.kind for pool in pools)
    neighbours = {kind: Neighbours(store.co_runs(kind)) for kind in kinds}
    found: list[Demand] = []
    obstacles: list[str] = []
    notes: list[str] = []
    for model in settings.models:
        rate = rates.get(model.name)
        if rate is None:
            continue
        profiles = list(_profiles(store, model, neighbours))
        options = tuple(_option(model, each, neighbours[each.device_kind]) for each in profiles)
        demand = Demand(
            model.name, rate.rows_per_s * (1 + reserve), float(model.slo_us), options, model.domains_min
        )
        found.append(demand)
        if rate.requests:
            obstacles += _obstacles(model, demand, pools)
            notes += _premises(model, profiles)
    if obstacles:
        raise SimulateRequestError("\n".join((*obstacles, *store.problems)))
    return tuple(found), [*notes, *store.problems]


def _profiles(
    store: ProfileStore, model: ServedModel, kinds: Mapping[str, "Neighbours"]
) -> Iterator[Profile]:
    """Yield the answering variant's profiles on all shares of these kinds."""
    for kind in kinds:
        known = store.read_set(kind, model.name, model.answering_variant)
        yield from known.profiles if known else ()


def _option(model: ServedModel, profile: Profile, neighbours: "Neighbours") -> Option:
    """Return a replica as it was measured with rows of the largest size, in batches as large as its policy
    forms."""
    rows_max = min(model.spec.batch_max, model.batching.size or model.spec.batch_max)
    size, latency = _size(model), Latency(profile)
    measured = profile.curves()[latency.measured_size(size)].rows
    rows = [each for each in measured if each <= rows_max] or [rows_max]
    curve = tuple((each, latency.predict_us(each, size)) for each in rows)
    fitting = [each for each, us in curve if us <= model.slo_us / 2]
    batch = max(fitting, default=rows[0])
    pressure, sensitivity = neighbours.of(Tenant(model.name, profile.variant, profile.share, batch, size))
    processes = profile.share.processes
    alone = carried(latency, model.own.slo_us, model.spec.batch_max, size)
    held_bytes = profile.process_bytes + max(each.activation_bytes for each in profile.points)
    return Option(
        kind=profile.device_kind,
        share=profile.share.with_processes(1),
        variant=profile.variant,
        curve=curve,
        memory_bytes=processes * held_bytes,
        load_us=profile.load_us + profile.warm_us,
        processes=processes,
        pressure=pressure,
        sensitivity=sensitivity,
        profiled=alone and replace(alone, rate=processes * alone.rate),
    )


def _size(model: ServedModel) -> int:
    """Return the size of the rows that are planned for: the largest bucket's, 0 for a model without sizes."""
    hint = model.spec.size_hint
    return hint.buckets[-1] if hint else 0


class Neighbours:
    """What tenants of a kind of device press on others and suffer from them; 0 where nothing was measured."""

    def __init__(self, runs: Sequence[CoRun]) -> None:
        self._fit = Slowdown.fit(runs) if runs else None

    def of(self, tenant: Tenant) -> tuple[float, float]:
        """Return (pressure, sensitivity). A factor is 1 + sensitivity * pressure, so each follows from the
        factor beside the tenant that has most of the other."""
        if self._fit is None:
            return 0.0, 0.0
        sensitivity, pressure = self._fit.sensitivity, self._fit.pressure
        feels, presses = (
            max(sensitivity, key=sensitivity.__getitem__),
            max(pressure, key=pressure.__getitem__),
        )
        if not (sensitivity[feels] and pressure[presses]):
            return 0.0, 0.0
        overloaded = (self._fit.factor(feels, [tenant]) - 1) / sensitivity[feels]
        return overloaded, (self._fit.factor(tenant, [presses]) - 1) / pressure[presses]


def _premises(model: ServedModel, profiles: Sequence[Profile]) -> Iterator[str]:
    """Yield what the operator should know of the profiles that are planned with."""
    if hint := model.spec.size_hint:
        size = f"{hint.buckets[-1]} ({hint.unit})"
        yield f"{model.name} is planned as if every row were of the largest size, {size}"
    if imported := [f"{each.share} of {each.device_kind}" for each in profiles if each.imported]:
        yield f"{model.name} was not measured here on {', '.join(imported)}: its profile is imported"
    if predicted := [f"{each.share} of {each.device_kind}" for each in profiles if each.predicted]:
        yield f"{model.name} was not measured on {', '.join(predicted)}: that is predicted"


def _obstacles(model: ServedModel, demand: Demand, pools: Sequence[Pool]) -> Iterator[str]:
    """Yield why no device of the pools can run the model within its SLO; nothing if one can."""
    name = f"{model.name} ({model.answering_variant})"
    kinds = ", ".join(dict.fromkeys(pool.kind for pool in pools))
    if not demand.options:
        yield f"{name} was never measured on {kinds}: {_measure(model, pools)}"
        return
    fitting = [each for each in demand.options if any(pool.fits(each) for pool in pools)]
    if not fitting:
        shares = ", ".join(f"{each.share} of {each.kind}" for each in demand.options)
        lacking = f"{name} was measured on {shares} only, which no device here has to give"
        yield f"{lacking}: {_measure(model, pools)}"
        return
    best = min(fitting, key=lambda each: each.latency_us(1))
    least_us = best.latency_us(1)
    budget_us = demand.slack * demand.slo_us
    if least_us > budget_us:
        yield (
            f"{name} keeps its SLO of {demand.slo_us / 1000:g} ms nowhere: a batch may take "
            f"{budget_us / 1000:.4g} ms of it, and one row alone takes {least_us / 1000:.4g} ms at least, on "
            f"{best.share} of {best.kind}; an slo_ms of {least_us / demand.slack / 1000:.4g} would do"
        )


def _measure(model: ServedModel, pools: Sequence[Pool]) -> str:
    """Return the commands that measure what is missing."""
    ways = dict.fromkeys(pool.division.kind for pool in pools)
    command = f"penstock profile {model.name} --variant {model.answering_variant}"
    return "measure it there with " + " or ".join(f"`{command} {_EXAMPLES[way]}`" for way in ways)
