"""What the simulator foretells of a placement: the settings' scheduler on its slices, at the asked rates."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from statistics import fmean

import numpy as np

from serving.planning.parts import PlacementPart, cut, placed
from serving.planning.task import PlanningTask
from serving.policy.placement.terms.plan import PlacedReplica, Placement
from serving.policy.placement.terms.problem import Option
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.simulation.assumed import NOISE, OVERHEAD_US
from serving.simulation.devices.device import NoisyDevice, Physics, truths_of
from serving.simulation.devices.site import Site, SiteReplica
from serving.simulation.results.series import Chronicle, RunFigures, Span, busy_slices, figures
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, draw
from serving.simulation.traffic.traffic import constant, merge, stream
from serving.values.objectives import Needs

PHYSICS = Physics(noise=NOISE, overhead_us=OVERHEAD_US)
"""As `penstock simulate` has it where nothing is said."""

_SETTLE_S_MAX, _SETTLE_SHARE = 1.0, 0.1  # of a run, what is not counted: rates are not known at its start
_STRIDE = 1000  # requests between two reports of progress

Advance = Callable[[str, float], None]
"""Told what is simulated, and what share of the whole was since it was last told."""


@dataclass(frozen=True, slots=True)
class Foretold:
    """Of a model. `offered` and `goodput`: requests a second of all its replicas, `goodput` those in time;
    `attainment`: the share of requests in time, nan where none came; p50 and p99 of answers in milliseconds,
    nan where there is none; `requests` that were counted in `seconds`; `share` of its rate and of its
    capacity that was simulated."""

    offered: float
    attainment: float
    p50_ms: float
    p99_ms: float
    goodput: float
    requests: int
    seconds: float
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """`models`: the models that are asked for, by name; `busy`: by slice, the share of its time that it
    computes. `scaled`: sentences on what was simulated in part. `left_out`: models that were not simulated;
    `models` and `busy` say nothing of them."""

    models: Mapping[str, Foretold]
    busy: Mapping[str, float]
    scaled: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def predict(
    task: PlanningTask, placement: Placement, seconds: float, seed: int, advance: Advance | None = None
) -> Prediction:
    """Return what becomes of independent clients' requests (Poisson) at the asked rates, without the reserve.

    Each worker of a slice is a slice of the simulator. A resident's batches take what was measured for rows
    of the largest size, as much longer as its neighbours slow it down, with 5 % of noise. How long it goes
    on, and what is simulated of a large fleet: `parts.cut`. A model without a replica has nothing in time.
    The same seed gives the same prediction.
    """
    rates = {name: rate.requests for name, rate in task.rates.items()}
    parts, left_out = cut(task.problem, placement, rates, seconds)
    works = [part.work(rates) for part in parts]
    found: dict[str, Foretold] = {}
    busy: dict[str, float] = {}
    for part, work in zip(parts, works, strict=True):
        _play(task, part, seed, _counted(advance, work / (sum(works) or 1.0)), (found, busy))
    there = {model for part in parts for model in part.kept}
    for name, rate in rates.items():
        if rate and name not in there and name not in left_out:
            found[name] = Foretold(rate, 0.0, nan, nan, 0.0, 0, 0.0)
    models = {name: found[name] for name in rates if name in found}
    names = [each.name for each in placed(task.problem, placement)]
    busy = {name: busy[name] for name in names if name in busy}
    return Prediction(models, busy, tuple(_scaled(models, left_out)), tuple(left_out))


def _counted(advance: Advance | None, share: float) -> Advance:
    return (lambda what, done: advance(what, done * share)) if advance else (lambda _what, _done: None)


def _play(
    task: PlanningTask,
    part: PlacementPart,
    seed: int,
    advance: Advance,
    into: tuple[dict[str, Foretold], dict[str, float]],
) -> None:
    """Simulate one part; add its models' figures and its slices' load to those of `into`."""
    site = _site(task, part)
    span = Span(site.settle_us, int(part.seconds * 1e6) + 1)
    run = Chronicle(site, NoisyDevice(truths_of(site.residents), PHYSICS, seed))
    run.play(_told(_arrivals(task, site, part, seed), site, part.seconds, advance))
    columns = [run.columns()]
    models, busy = into
    for number, model in enumerate(site.served):
        if task.rates[model.name].requests:
            share = part.kept[model.name]
            counted = figures(columns, number, len(model.slices), span)
            models[model.name] = _foretold(counted, part.seconds, share)
    shares = dict(zip(site.slices, busy_slices(columns, len(site.slices), span), strict=True))
    busy |= {each.name: fmean(shares[name] for name in each.workers) for each in part.slices}


def _foretold(found: RunFigures, seconds: float, share: float) -> Foretold:
    scale = 1 / (share or 1.0)
    return Foretold(
        found.offered_rate * scale, found.attainment, found.p50_ms, found.p99_ms, found.goodput * scale,
        found.offered, seconds, share,
    )  # fmt: skip


def _site(task: PlanningTask, part: PlacementPart) -> Site:
    """Return the part's models on its slices."""
    served = []
    for model in task.models:
        if model.name in part.kept and model.name in task.rates:
            names = tuple(name for each in part.slices if model.name in each.models for name in each.workers)
            variant = model.answering_variant
            alone = replace(
                model, slices=names, variants=(variant,), default_variant=variant,
                needs=Needs(slo_rows=model.needs.slo_rows), tiers=(), selection=None,
            )  # fmt: skip
            served.append(alone)
    latencies: dict[tuple[Option, float], Latency] = {}  # those of equal replicas are one
    residents = tuple(
        SiteReplica(name, resident.model, resident.option.variant, latency, resident.option.load_us)
        for each in part.slices
        for name in each.workers
        for resident, slowdown in zip(each.slot.residents, each.slowdowns, strict=True)
        for latency in [_latency(resident, slowdown, latencies)]
    )
    settle_us = int(min(_SETTLE_S_MAX, _SETTLE_SHARE * part.seconds) * 1e6)
    return Site(tuple(served), residents, task.tenants, task.limits, settle_us=settle_us)


def _latency(resident: PlacedReplica, slowdown: float, known: dict[tuple[Option, float], Latency]) -> Latency:
    option = resident.option
    key = (option, slowdown)
    if key not in known:
        points = tuple(Point(0, rows, us * slowdown, us * slowdown, 1) for rows, us in option.curve)
        known[key] = Latency(
            Profile(
                resident.model, option.variant, option.kind, points,
                option.load_us, option.memory_bytes, share=option.share,
            )
        )  # fmt: skip
    return known[key]


def _arrivals(task: PlanningTask, site: Site, part: PlacementPart, seed: int) -> Iterable[Arrival]:
    """Return the arrivals of a part. Each model's are its own, whatever else is in the part. Rows are of the
    largest size."""
    places = {model.name: place for place, model in enumerate(task.models)}
    streams = []
    for number, model in enumerate(site.served):
        rng = np.random.default_rng([seed, places[model.name]])
        rate = task.rates[model.name]
        due_s = draw([RateStep(rate.requests * part.kept[model.name], part.seconds)], POISSON_CV, rng)
        hint = model.spec.size_hint
        sizes = (constant(hint.buckets[-1]), hint) if hint else None
        streams.append(stream(number, due_s, rate.rows, sizes, rng))
    return merge(streams)


def _told(arrivals: Iterable[Arrival], site: Site, seconds: float, advance: Advance) -> Iterator[Arrival]:
    """Yield the same arrivals, with progress told on the way; in all it comes to 1."""
    what = ", ".join(model.name for model in site.served)
    told = 0.0
    advance(what, 0.0)
    for count, arrival in enumerate(arrivals, start=1):
        if count % _STRIDE == 0:
            now = arrival.at_us / 1e6 / seconds
            advance(what, now - told)
            told = now
        yield arrival
    advance(what, 1 - told)


def _scaled(models: Mapping[str, Foretold], left_out: Sequence[str]) -> Iterator[str]:
    """Yield sentences on what was not simulated as a whole."""
    for name, each in models.items():
        if 0 < each.share < 1:
            yield f"of {name} {each.share:.2g} of the rate and of the replicas was simulated"
    if left_out:
        yield f"{len(left_out)} models were not simulated, as that would take too long"
