"""Predicts each step of a guarded rollout: the simulator plays the load of both models, and what a slice of
each carries (the tables of autoscaling) says how many slices they fill."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

from router.observing.rollout_status import RolloutPrediction, StepPrediction, no_candidate
from router.settings import Settings
from router.settings.profiles import known_profiles
from router.settings.values.problems import one_of
from router.verbs.place.candidate.words import sentences
from router.verbs.simulate.traffic import SimulateRequestError
from router.verbs.simulate.what_if import Place, WhatIfBody, WhatIfTask, forecast
from serving.control.commands import FindCapacity
from serving.planning.task import AskedRate
from serving.policy.scaling.carried.capacity import Capacity
from serving.profile.curve import Profile
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.simulation.tables import find_capacity
from serving.simulation.traffic.traffic import Mix
from serving.values.rollouts import RolloutSpec
from serving.values.specs import ServedModel

REQUESTS: Final = 8_000
"""Of a step, with the neighbours': of all steps together some three seconds for the simulator."""
SECONDS_MAX: Final = 400.0
"""Of a step: that many seconds have REQUESTS at 20 a second."""


@dataclass(frozen=True, slots=True)
class RolloutTask:
    """The task of one job. `settings`: with the candidate, without their document. `model`: the one whose
    place it is to take. By model: `rates`, where requests that the candidate has already count as the
    model's, and the `sizes` of requests where they are known. `ratios`: as of WhatIfTask."""

    settings: Settings
    model: str
    rates: Mapping[str, AskedRate]
    sizes: Mapping[str, Mix]
    ratios: Mapping[Place, float]


def predict(asked: RolloutTask) -> Iterator[RolloutPrediction | str]:
    """Yield the prediction, or a sentence that says why there is none."""
    try:
        yield _predict(asked)
    except SimulateRequestError as error:
        yield str(error)


def candidate_of(settings: Settings, model: str) -> tuple[ServedModel, RolloutSpec]:
    """Return the candidate for a model's place, and its rollout. Raises SimulateRequestError if there is
    none."""
    found = {each.rollout.of: (each, each.rollout) for each in settings.models if each.rollout is not None}
    if model not in found:
        what = no_candidate(model)
        raise SimulateRequestError(f"{what}; expected {one_of(found)}" if found else what)
    return found[model]


def as_one(rates: Mapping[str, AskedRate], model: str, candidate: str) -> dict[str, AskedRate]:
    """Return the rates with the candidate's as a part of the model's."""
    both = [rates[name] for name in (model, candidate) if name in rates]
    others = {name: rate for name, rate in rates.items() if name not in (model, candidate)}
    if not both:
        return others
    return others | {model: replace(both[0], requests=sum(each.requests for each in both))}


def _predict(asked: RolloutTask) -> RolloutPrediction:
    candidate, spec = candidate_of(asked.settings, asked.model)
    present = next(each for each in asked.settings.models if each.name == asked.model)
    rate = asked.rates.get(asked.model)
    if rate is None or rate.requests <= 0:
        what = f"{asked.model} is asked for nothing now, so there is no load to predict for"
        raise SimulateRequestError(f"{what}; state one, such as `--rates {asked.model}=50`")
    beside = _beside(asked.settings, present, candidate) - {present.name, candidate.name}
    others = {name: each for name, each in asked.rates.items() if name in beside and each.requests > 0}
    shares = (0.0, *spec.steps)
    played = [_played(asked, others, (present.name, candidate.name), share) for share in shares]
    old, new = _carried(asked, present), _carried(asked, candidate)
    rows = rate.rows_per_s
    steps = [
        StepPrediction(
            share=share,
            slices=_known(new.filled(rows * share)),
            freed=_known(old.filled(rows) - old.filled(rows * (1 - share))),
            broken=share * _broken(found, candidate.name) + (1 - share) * _broken(found, present.name),
            candidate_broken=_broken(found, candidate.name) if share > 0 else None,
            present_broken=_broken(found, present.name) if share < 1 else None,
            others={name: _broken(found, name) for name in others},
        )
        for share, found in zip(shares, played, strict=True)
    ]
    made = RolloutPrediction(
        model=present.name,
        candidate=candidate.name,
        rate=rate.requests,
        slices=len(candidate.slices),
        steps=steps,
        said=[],
    )
    notes = dict.fromkeys(note for each in played for note in each["left_out"])
    made["said"] = [*sentences(made, rate.rows.mean), *notes]
    return made


def _beside(settings: Settings, present: ServedModel, candidate: ServedModel) -> set[str]:
    """Return the models that meet these two on slices, or meet one that does."""
    places = {*present.slices, *candidate.slices}
    while True:
        found = [each for each in settings.models if places & {*each.slices}]
        more = {name for each in found for name in each.slices}
        if more <= places:
            return {each.name for each in found}
        places |= more


def _played(
    asked: RolloutTask, others: Mapping[str, AskedRate], pair: tuple[str, str], share: float
) -> WhatIfBody:
    """Return the forecast where the second of the pair has that share of the requests for the first."""
    whole, parts = asked.rates[pair[0]], zip(pair, (1 - share, share), strict=True)
    loads = {**others, **{name: replace(whole, requests=whole.requests * part) for name, part in parts}}
    sized = {each.name for each in asked.settings.models if each.spec.size_hint is not None}
    known = {**asked.sizes, **{name: asked.sizes[pair[0]] for name in pair if pair[0] in asked.sizes}}
    task = WhatIfTask(
        asked.settings,
        {name: each.requests for name, each in loads.items()},
        {},
        {name: each.rows for name, each in loads.items()},
        {name: known[name] for name in loads if name in sized and name in known},
        asked.ratios,
        REQUESTS,
        SECONDS_MAX,
    )
    found = next(forecast(task))
    if isinstance(found, str):
        raise SimulateRequestError(found)
    return found


def _carried(asked: RolloutTask, model: ServedModel) -> Capacity:
    """Return what slices like the model's first that was measured carry of it, as Poisson requests come."""
    settings, variant = asked.settings, model.answering_variant
    known = known_profiles(settings, ProfileStore(settings.profiles))
    for each in settings.slices:
        profile = known.get((each.name, model.name, variant))
        if each.name in model.slices and profile is not None:
            ratio = asked.ratios.get((each.name, model.name, variant), 1.0)
            kind = f"{device_kind(each)} {each.share}"
            task = FindCapacity(model, variant, kind, _slower(profile, ratio), len(model.slices))
            return next(find_capacity(task))  # its first row: a CV of 1
    raise SimulateRequestError(f"never measured: {model.name} {variant} on {', '.join(model.slices)}")


def _slower(profile: Profile, ratio: float) -> Profile:
    points = (
        replace(each, p50_us=each.p50_us * ratio, p95_us=each.p95_us * ratio) for each in profile.points
    )
    return profile if ratio == 1.0 else replace(profile, points=tuple(points))


def _broken(found: WhatIfBody, name: str) -> float:
    """Return the share of a model's requests that is not in time; 0 where it has none."""
    in_time = [each["in_time"] for each in found["models"] if each["model"] == name]
    return 1 - in_time[0] if in_time and in_time[0] is not None else 0.0


def _known(slices: float) -> float | None:
    return slices if isfinite(slices) else None
