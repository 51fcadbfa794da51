"""What if: the settings in force, for other rates and other SLOs, in the simulator. The page asks this of a
running gateway; a child process answers within seconds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isnan
from typing import Final, TypedDict

from router.settings import Settings
from router.verbs.simulate.cases import AS_CONFIGURED, Case, SimulatedDeployment, case_of
from router.verbs.simulate.runs import Conditions, Result, play
from router.verbs.simulate.traffic import DrawnTraffic, OfferedLoad, Shape, SimulateRequestError
from serving.simulation.assumed import NOISE, OVERHEAD_US
from serving.simulation.devices.device import Physics
from serving.simulation.devices.faults import Hazards
from serving.simulation.traffic.traffic import Mix

REQUESTS: Final = 20_000
"""A run is as long as so many requests take: a second or two for the simulator."""
SECONDS_MIN, SECONDS_MAX = 2.0, 30.0
CONDITIONS: Final = Conditions(Physics(noise=NOISE, overhead_us=OVERHEAD_US), Hazards(), (1,))
"""As `penstock simulate` assumes them if no option says otherwise."""


Place = tuple[str, str, str]
"""Slice, model and variant."""


class ForecastBody(TypedDict):
    """What is predicted of a model. `in_time`: the share (0..1) of its requests; None where none comes.
    `variants`: the share of each in the answers."""

    model: str
    rate: float
    slo_ms: float
    objective: float
    in_time: float | None
    goodput: float
    p50_ms: float | None
    p99_ms: float | None
    variants: dict[str, float]


class WhatIfBody(TypedDict):
    """The forecast. `busy`: by slice, the share of its time. `seconds`: how long was simulated."""

    models: list[ForecastBody]
    busy: dict[str, float]
    seconds: float
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class WhatIfTask:
    """The task of one job. `settings`: in force, without their document. By model: `rates` in requests a
    second, `slo_ms` where it is to be another, `rows` and `sizes` of its requests where they are known.
    `ratios`: by slice, model and variant, what its batches take over its profile. `requests` and
    `seconds_max`: a run has about so many, if it takes no longer."""

    settings: Settings
    rates: Mapping[str, float]
    slo_ms: Mapping[str, float]
    rows: Mapping[str, Mix]
    sizes: Mapping[str, Mix]
    ratios: Mapping[Place, float]
    requests: int = REQUESTS
    seconds_max: float = SECONDS_MAX


def forecast(asked: WhatIfTask) -> Iterator[WhatIfBody | str]:
    """Yield the forecast, or a sentence that says why there is none."""
    try:
        yield _forecast(asked)
    except SimulateRequestError as error:
        yield str(error)


def _forecast(asked: WhatIfTask) -> WhatIfBody:
    settings = replace(
        asked.settings,
        models=tuple(
            replace(each, slo_us=round(asked.slo_ms[each.name] * 1000)) if each.name in asked.slo_ms else each
            for each in asked.settings.models
        ),
    )
    rates = {name: rate for name, rate in asked.rates.items() if rate > 0}
    if not rates:
        raise SimulateRequestError("no model has a rate above 0")
    seconds = min(max(asked.requests / sum(rates.values()), SECONDS_MIN), asked.seconds_max)
    rows = {name: mix for name, mix in asked.rows.items() if name in rates}
    loads = [OfferedLoad(name, f"{rate:.6g}") for name, rate in rates.items()]
    sizes = {name: mix for name, mix in asked.sizes.items() if name in rates}
    traffic = DrawnTraffic(loads, Shape(seconds, rows=rows, sizes=sizes))
    case = as_batches_say(case_of(settings, AS_CONFIGURED, SimulatedDeployment(), traffic), asked.ratios)
    result = play(case, traffic, CONDITIONS, lambda _what, _seconds: None)
    return WhatIfBody(
        models=[_model(result, name, rate) for name, rate in rates.items()],
        busy=result.busy,
        seconds=seconds,
        left_out=[*case.notes, *case.left_out],
    )


def as_batches_say(case: Case, ratios: Mapping[Place, float]) -> Case:
    """Return the case with latencies as the gateway's batches have them, where those do not bear out the
    profile."""
    residents = tuple(
        replace(each, latency=each.latency.scaled(_always(ratio)))
        if (ratio := ratios.get((each.slice, each.model, each.variant)))
        else each
        for each in case.site.residents
    )
    return replace(case, site=replace(case.site, residents=residents))


def _always(ratio: float) -> Callable[[int, int], float]:
    return lambda _size, _rows: ratio


def _model(result: Result, name: str, rate: float) -> ForecastBody:
    model = next(each for each in result.case.site.served if each.name == name)
    figures = result.figures[name]
    chosen = result.choices[name]
    return ForecastBody(
        model=name,
        rate=rate,
        slo_ms=model.slo_us / 1000,
        objective=model.own.percentile / 100,
        in_time=_known(figures.attainment),
        goodput=figures.goodput,
        p50_ms=_known(figures.p50_ms),
        p99_ms=_known(figures.p99_ms),
        variants={variant: share for variant, share in chosen.shares.items() if share > 0},
    )


def _known(value: float) -> float | None:
    return None if isnan(value) else value
