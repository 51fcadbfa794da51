"""The runs of each case, and what came of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

from router.verbs.simulate.cases import Case
from router.verbs.simulate.traffic import SimulateRequestError, Traffic
from serving.policy.cost import cost_per_hour, cost_per_million
from serving.simulation.capacity import SiteCapacity, search
from serving.simulation.devices.device import BatchDevice, NoisyDevice, Physics, truths_of
from serving.simulation.devices.disturbance import DisturbedDevice
from serving.simulation.devices.faults import Fault, Hazards
from serving.simulation.devices.held import Replicas, shares, together
from serving.simulation.devices.losses import Loss, LossFigures
from serving.simulation.devices.site import Site, chooses
from serving.simulation.governed.governed import Governed, Mishaps, NotReadyError
from serving.simulation.results.choices import VariantSeries, VariantShares, choice, course
from serving.simulation.results.series import (
    Chronicle,
    Columns,
    RunFigures,
    RunSeries,
    Span,
    busy_slices,
    figures,
    series,
)
from serving.simulation.traffic.arrivals import Arrival
from serving.values.disturbance import Disturbance
from serving.values.vocabulary import NEVER_US

_STRIDE = 1000  # requests between two reports of progress
_SEARCHED_MAX = 5_000_000  # requests of one run in a search; it makes some fifty

Advance = Callable[[str, float], None]
"""Told what goes on, and how many simulated seconds have passed since it was last told."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How the runs are made: one for each seed. `price`: of each slice for an hour, where it is not
    as the settings say."""

    physics: Physics
    hazards: Hazards
    seeds: tuple[int, ...]
    price: float | None = None
    disturbances: tuple[Disturbance, ...] = ()
    losses: tuple[Loss, ...] = ()

    def device(self, site: Site, seed: int) -> BatchDevice:
        """Return what batches of the site take in the run of that seed."""
        device = NoisyDevice(truths_of(site.residents), self.physics, seed)
        return DisturbedDevice(device, self.disturbances, seed) if self.disturbances else device


@dataclass(frozen=True, slots=True)
class Cost:
    """In the currency of the price: for an hour, and for a million requests answered in time."""

    per_hour: float
    per_million: float


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a case. `figures` and `series`: by model (the series of the first seed); `busy`: by
    slice.

    `choices` and `courses`: by model, which variants answered; `crashes` and `stalls`: in all runs.
    `cost_per_hour`: by model, empty if no price is known; `capacity`: if asked for, in requests a second of
    all models. `replicas`: by model, if control says what is where; `held`: by slice, the share of the time
    in which it was held. `guessed`: variants with replicas of unknown capacity; `losses`: what became of each
    loss in each run.
    """

    case: Case
    total: RunFigures
    figures: dict[str, RunFigures]
    series: dict[str, RunSeries]
    busy: dict[str, float]
    choices: dict[str, VariantShares]
    courses: dict[str, VariantSeries]
    crashes: int
    stalls: int
    cost_per_hour: dict[str, float]
    replicas: dict[str, Replicas]
    held: dict[str, float]
    guessed: tuple[str, ...]
    losses: tuple[LossFigures, ...] = ()
    capacity: SiteCapacity | None = None

    @property
    def chosen(self) -> tuple[str, ...]:
        """The models with requests that several variants may answer."""
        return tuple(model.name for model in self.case.site.served if chooses(model))

    def accuracy(self, model: str, variant: str) -> float:
        """Return the measured accuracy of a variant; nan if it was not measured."""
        share = next(each for each in self.case.site.served if each.name == model).accuracy(variant)
        return nan if share is None else share

    @property
    def least(self) -> tuple[str, RunFigures]:
        """The model with the least attainment of those that were asked for."""
        asked = [(name, each) for name, each in self.figures.items() if each.offered]
        return min(asked, key=lambda each: each[1].attainment)

    def cost(self, model: str | None) -> Cost | None:
        """Return what a model costs (None: all together); None where no price is known."""
        if not self.cost_per_hour:
            return None
        figures = self.total if model is None else self.figures[model]
        per_hour = sum(self.cost_per_hour.values()) if model is None else self.cost_per_hour[model]
        return Cost(per_hour, cost_per_million(per_hour, figures.goodput))


def play(case: Case, traffic: Traffic, conditions: Conditions, advance: Advance) -> Result:
    """Return all runs of a case; UsageError where the traffic holds no request."""
    site, span = case.site, Span(case.site.settle_us, int(traffic.seconds * 1e6) + 1)
    played: list[Chronicle] = []
    for count, seed in enumerate(conditions.seeds, start=1):
        what = f"{case.name}: run {count} of {len(conditions.seeds)}"
        arrivals = traffic.arrivals(site.served, seed, 1.0)
        run = _run(case, conditions, traffic.seconds, seed)
        _play(run, _told(arrivals, what, traffic.seconds, advance))
        played.append(run)
    runs = [each.columns() for each in played]
    answered = [each.by_variant() for each in played]
    faults = [fault for each in played for fault in each.broken]
    governed = [each for each in played if isinstance(each, Governed)]
    held = shares([each.held(span) for each in governed]) if governed else {}
    total = figures(runs, None, len(site.slices), span)
    if not total.offered:
        raise SimulateRequestError("no request comes in the simulated time; raise --rate or --seconds")
    served = dict(enumerate(site.served))
    seen = {model.name: series(runs[0], number, traffic.seconds) for number, model in served.items()}
    return Result(
        case,
        total,
        {each.name: figures(runs, place, case.slices_of(each.name), span) for place, each in served.items()},
        seen,
        dict(zip(site.slices, busy_slices(runs, len(site.slices), span), strict=True)),
        {each.name: choice(answered, place, each, span) for place, each in served.items()},
        {each.name: course(answered[0], place, each, seen[each.name]) for place, each in served.items()},
        crashes=sum(fault.crash for fault in faults),
        stalls=sum(not fault.crash for fault in faults),
        cost_per_hour=_costs(site, runs, span, held),
        replicas=_replicas([each.replicas(span) for each in governed]),
        held=held,
        guessed=tuple(sorted({name for each in governed for name in each.guessed})),
        losses=tuple(loss for each in governed for loss in each.losses()),
    )


def _run(case: Case, conditions: Conditions, seconds: float, seed: int) -> Chronicle:
    """Return a run of a case, to be played."""
    site, device = case.site, conditions.device(case.site, seed)
    faults = _faults(site, conditions.hazards, seconds, seed)
    if case.governance is None:
        return Chronicle(site, device, faults)
    mishaps = Mishaps(faults, conditions.losses)
    return Governed(site, device, mishaps, case.governance, seed, int(seconds * 1e6) + 1)


def _play(run: Chronicle, arrivals: Iterable[Arrival]) -> None:
    try:
        run.play(arrivals)
    except NotReadyError as error:
        raise SimulateRequestError(str(error)) from None


def _replicas(found: Sequence[Mapping[str, Replicas]]) -> dict[str, Replicas]:
    return {name: together([each[name] for each in found]) for name in found[0]} if found else {}


def _faults(site: Site, hazards: Hazards, seconds: float, seed: int) -> list[Fault]:
    try:
        return hazards.draw(site.slices, seconds, seed)
    except ValueError as error:
        raise SimulateRequestError(f"--crash-every, --stall-every: {error}") from None


def _costs(site: Site, runs: Sequence[Columns], span: Span, held: Mapping[str, float]) -> dict[str, float]:
    """Return what each model costs an hour; nothing where no price is known. `held`: by slice, the share of
    the time for which it is paid; one that it does not name is paid always."""
    prices = {each.slice: each.price * held.get(each.slice, 1.0) for each in site.residents}
    if not any(prices.values()):
        return {}
    here = {(each.slice, each.model) for each in site.residents}
    busy: dict[str, dict[str, float]] = {name: {} for name in site.slices}
    for number, model in enumerate(site.served):
        shares = busy_slices(runs, len(site.slices), span, number)
        for name, share in zip(site.slices, shares, strict=True):
            if (name, model.name) in here:
                busy[name][model.name] = share
    return cost_per_hour(prices, busy)


def find_capacity(
    case: Case, traffic: Traffic, conditions: Conditions, aim: float, advance: Advance
) -> SiteCapacity:
    """Return the highest rate of all models together at which `aim` of each model's requests are answered in
    time.

    The models' rates are scaled alike. Raises SimulateRequestError if a run would have to be too long.
    """
    site, span = case.site, Span(case.site.settle_us, NEVER_US)
    base, bound = _scale(list(traffic.arrivals(site.served, conditions.seeds[0], 1.0)), traffic.seconds, site)

    def attainment(rate: float, seed: int) -> float:
        advance(f"{case.name}: capacity, {rate:.3g} requests/s", 0.0)
        if rate * traffic.seconds > _SEARCHED_MAX:
            raise SimulateRequestError(
                f"--capacity: {rate:.3g} requests/s for {traffic.seconds:g} s are too many for a search; "
                f"--seconds {_SEARCHED_MAX / bound:.1g} would do"
            )
        chosen = conditions.seeds[0] + seed
        run = _run(case, conditions, traffic.seconds, chosen)
        _play(run, traffic.arrivals(site.served, chosen, rate / base))
        columns = [run.columns()]
        each = (figures(columns, number, 1, span).attainment for number in range(len(site.served)))
        return min((share for share in each if not isnan(share)), default=1.0)

    high = base
    while high < bound and attainment(high, 0) >= aim:
        high *= 2
    return search(attainment, aim, min(high, bound))


def _scale(arrivals: Sequence[Arrival], seconds: float, site: Site) -> tuple[float, float]:
    """Return the rate of arrivals, and one that their slices cannot carry even if all ran in their best
    batches."""
    if not arrivals:
        raise SimulateRequestError("no request comes in the simulated time; raise --rate or --seconds")
    rows = Counter[tuple[int, int]]()
    for arrival in arrivals:
        rows[arrival.model, arrival.size] += arrival.rows
    base = len(arrivals) / seconds
    needs_us: dict[int, float] = defaultdict(float)  # slices' time for all arrivals, by model
    for (number, size), count in rows.items():
        model = site.served[number]
        here = [each.latency for each in site.residents if each.model == model.name]
        needs_us[number] += count * min(
            latency.predict_us(batch, size) / batch
            for latency in here
            for batch in range(1, min(model.spec.batch_max, latency.rows_within(model.slo_us, size)) + 1)
        )
    shares = [len(site.served[number].slices) / max(need_us, 1e-9) for number, need_us in needs_us.items()]
    together = len(site.slices) / max(sum(needs_us.values()), 1e-9)
    return base, 1.1 * base * seconds * 1e6 * min(*shares, together)


def _told(arrivals: Iterable[Arrival], what: str, seconds: float, advance: Advance) -> Iterator[Arrival]:
    """Yield the same arrivals, with progress told on the way; in all it comes to `seconds`."""
    told_s = 0.0
    advance(what, 0.0)
    for count, arrival in enumerate(arrivals):
        if count % _STRIDE == 0:
            now_s = min(arrival.at_us / 1e6, seconds)
            advance(what, now_s - told_s)
            told_s = now_s
        yield arrival
    advance(what, seconds - told_s)
