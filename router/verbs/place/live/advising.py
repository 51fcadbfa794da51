"""Another placement for a running gateway: what a job finds, and the command that applies the same."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isnan

from router.management.operations.applied import PlannedFor, applied
from router.settings import Settings
from router.verbs.place.live.applying import Json, Running, body, with_sharing
from router.verbs.place.live.outages import Outages, left
from router.verbs.place.options import PlaceOptions
from router.verbs.place.question.asked import posed, terms_of
from router.verbs.place.question.rates import AskedRates
from router.verbs.simulate.traffic import SimulateRequestError
from serving.planning.proposing import Proposal, propose
from serving.planning.task import AskedRate
from serving.policy.transition.steps import TransitionRefused
from serving.simulation.traffic.traffic import Mix, read_mix

OPTIONS = PlaceOptions()
"""As `penstock place` decides if no option says otherwise: its command then finds the same plan."""

_DIGITS = 4  # of a rate: the command shows the number that the plan is made for


@dataclass(frozen=True, slots=True)
class AdviceTask:
    """The task of one job.

    - `settings`: those in force, without their document.
    - `reason`: why control asks for another plan.
    - `rates`: by model, as observed.
    - `door`: the address of the gateway's admin door, for the command.
    """

    settings: Settings
    reason: str
    outages: Outages
    rates: Mapping[str, AskedRate]
    door: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Another placement. `body`: the body of `PUT /v2/placement`; `command` applies the same.

    `slices`: the models on each slice. `refused`: the promises that it breaks; if there are any, nothing
    applies it.
    """

    reason: str
    verdict: str
    body: bytes
    slices: Mapping[str, list[str]]
    attainment: Mapping[str, float]
    refused: tuple[str, ...]
    command: str


def advise(asked: AdviceTask) -> Iterator[Advice | str]:
    """Yield another placement for the gateway, or a sentence that says why there is none."""
    try:
        yield _advice(asked)
    except SimulateRequestError as error:
        yield str(error)


def _advice(asked: AdviceTask) -> Advice | str:
    settings = asked.settings
    rates = _spoken(settings, asked.rates)
    posed_task = posed(settings, AskedRates(rates, ()), OPTIONS.reserve)
    task, running = left(posed_task, Running.of(settings), asked.outages)
    found = propose(task.planning, asked.reason, terms_of(OPTIONS))
    if isinstance(found, str):
        return found
    task, decision = with_sharing(task, found.decision)
    if isinstance(decision.transition, TransitionRefused) and decision.taken:
        return f"there is no way to the plan: {decision.transition.reason}"
    said = {} if found.refused else body(task, decision, running)[0]
    return Advice(
        asked.reason,
        found.verdict,
        json.dumps(said).encode(),
        _slices(said),
        _known(found),
        found.refused,
        "" if found.refused else _command(asked, rates),
    )


def _slices(said: Json) -> dict[str, list[str]]:
    on: dict[str, list[str]] = {each["name"]: [] for each in said.get("slices", ())}
    for model, each in said.get("models", {}).items():
        for name in each["slices"]:
            on[name].append(model)
    return on


def _known(found: Proposal) -> dict[str, float]:
    return {name: share for name, share in found.attainment.items() if not isnan(share)}


def _spoken(settings: Settings, rates: Mapping[str, AskedRate]) -> dict[str, AskedRate]:
    """Return the rates in the command's form. A model without requests has the load of its placement."""
    kept = applied(settings)
    planned = kept.loads if kept else {}
    found = {}
    for model in settings.models:
        rate = rates.get(model.name) or _planned(planned.get(model.name))
        if rate is not None and rate.requests > 0:
            requests = float(f"{rate.requests:.{_DIGITS}g}")
            found[model.name] = AskedRate(requests, read_mix(_mix(rate.rows)))
    return found


def _planned(load: PlannedFor | None) -> AskedRate | None:
    if load is None:
        return None
    low = max(int(load.rows), 1)
    part = max(load.rows - low, 0.0)
    return AskedRate(load.requests, Mix((low, low + 1), (1 - part, part)))


def _mix(rows: Mix) -> str:
    """Return the mix as --rows takes it."""
    if len(rows.values) == 1:
        return str(rows.values[0])
    total = sum(rows.shares)
    pairs = zip(rows.values, rows.shares, strict=True)
    shares = [(value, round(share / total, 2)) for value, share in pairs]
    told = [f"{value}:{share:g}" for value, share in shares if share]
    return "+".join(told) if len(told) > 1 else told[0].partition(":")[0]


def _command(asked: AdviceTask, rates: Mapping[str, AskedRate]) -> str:
    words = ["penstock", "place", str(asked.settings.path)]
    words += ["--rates", ",".join(f"{name}={rate.requests:g}" for name, rate in rates.items())]
    rows = {name: _mix(rate.rows) for name, rate in rates.items()}
    if several := [f"{name}={mix}" for name, mix in rows.items() if mix != "1"]:
        words += ["--rows", ",".join(several)]
    return shlex.join([*words, *asked.outages.options, "--apply", "--url", asked.door])


def without_document(settings: Settings) -> Settings:
    """Return the settings as a job needs them: small, and without what their file said."""
    return replace(settings, document=None, warnings=())
