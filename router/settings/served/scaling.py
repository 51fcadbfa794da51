"""`scaling:` and the `replicas:` of models: how many of them follow the load, and what that may cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from router.settings.served.holding import Ask, SliceOwners
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, one_of
from router.settings.values.schema import ReplicasSection, ScalingSection
from serving.values.objectives import SCALING_POLICIES, ReplicaSpec, ScalingSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel

_LOC = ("scaling",)
_COST = (*_LOC, "cost_max_per_hour")
_UNAIMED = ("slo", "fixed")
"""Policies that have no number to aim at: what they are to reach is the model's SLO, or stated."""

_REPLICAS, _SCALING = ReplicaSpec(), ScalingSpec()
_ROUNDING = 1e-9
_NAMED_MAX = 6


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Slices that are held at least and at most, whatever the load, and what an hour of them costs. `most`
    before any ceiling."""

    least: tuple[str, ...]
    most: tuple[str, ...]
    cost_least: float
    cost_most: float


def read_scaling(findings: Findings) -> ScalingSpec:
    """Return what `scaling:` says, over the defaults."""
    section = None
    if isinstance(findings.document.at(_LOC), dict):
        section = findings.parse(ScalingSection, _LOC)
    if section is None:
        return _SCALING
    policy = section.policy or _SCALING.policy
    if section.target is not None and policy in _UNAIMED and findings.sound((*_LOC, "policy")):
        aimed = one_of([name for name in SCALING_POLICIES if name not in _UNAIMED])
        default = "" if section.policy else ", which is the default,"
        what = f"policy {policy}{default} aims at no number"
        findings.add(
            (*_LOC, "target"), fault(what, section.target, f"policy: {aimed} beside it"), at_key=True
        )
    elif policy == "hpa" and section.target is not None and section.target > 1:
        what = "more than all of the slices' time, of which hpa aims at a share"
        findings.add((*_LOC, "target"), fault(what, section.target, "above 0 and at most 1, such as 0.7"))
    cost_max = section.cost_max_per_hour
    return ScalingSpec(policy, section.target, inf if cost_max is None else cost_max, section.fair)


def read_replicas(
    findings: Findings, loc: Loc, value: int | str | dict[str, object] | None
) -> ReplicaSpec | None:
    """Return what `replicas:` at `loc` says, None where nothing or something faulty."""
    if value is None:
        return None
    if isinstance(value, str):
        return _REPLICAS
    if isinstance(value, int):
        return ReplicaSpec(value, value)
    section = findings.parse(ReplicasSection, loc)
    if section is None or not findings.sound(loc):
        return None
    least = _REPLICAS.least if section.min is None else section.min
    if section.max is not None and section.max < least:
        findings.add((*loc, "max"), fault("below the minimum", section.max, f"{least} or more"))
        return None
    return ReplicaSpec(least, section.max, section.priority)


def check_replicas(findings: Findings, loc: Loc, model: ServedModel) -> None:
    """Check that the model at `loc` has as many slices as its `replicas` ask for."""
    spec = model.replicas
    there = len(model.slices)
    if spec is None or not findings.sound((*loc, "slices")) or not there:
        return
    of = f"{model.name} may use {_listed(model.slices)}"
    for key, count in (("min", spec.least), ("max", spec.most)):
        if count is not None and count > there:
            place = (*loc, "replicas", key)
            stated = place if findings.document.at(place) is not None else (*loc, "replicas")
            expected = f"at most {there}: {of}, with one replica on each"
            findings.add(stated, fault("more than there are slices", count, expected))
            return


def check_scaling(
    findings: Findings,
    models: Sequence[ServedModel | None],
    slices: Sequence[SliceSpec],
    scaling: ScalingSpec,
) -> None:
    """Check that the slices suffice for all models at their minimum, and the ceiling for what that costs."""
    if not findings.sound(("slices",)) or not findings.sound(("models",)) or None in models:
        return
    served = [model for model in models if model is not None]
    _check_memory(findings, served, slices)
    if all(model.replicas is None for model in served):
        if findings.document.at(_LOC):
            message = "no model has `replicas:`, so nothing is scaled; expected replicas: auto of one of them"
            findings.warn(_LOC, message)
        return
    held = SliceOwners(_asks(served, least=True))
    held.take(each.name for each in slices)
    crowded, among = held.short()
    if crowded:
        places = {model.name: index for index, model in enumerate(served)}
        last = max(crowded, key=places.__getitem__)
        message = _crowded(served, crowded, among, "smaller minimums, or")
        findings.add(("models", places[last], "replicas"), message)
    elif scaling.cost_max < inf and findings.sound(_LOC):
        _check_cost(findings, span(served, slices), scaling, priced=any(each.price for each in slices))


def _check_memory(findings: Findings, models: Sequence[ServedModel], slices: Sequence[SliceSpec]) -> None:
    limited = {each.name for each in slices if each.memory_bytes}
    for index, model in enumerate(models):
        if model.replicas is not None and (on := [name for name in model.slices if name in limited]):
            message = f"{_listed(on)} with memory_mb: there models are loaded when they are asked for"
            expected = "slices without it, or no `replicas`"
            findings.add(
                ("models", index, "replicas"), f"{model.name} may be on {message}; expected {expected}"
            )


def crowding(models: Sequence[ServedModel], slices: Iterable[str]) -> str:
    """Return why models with `replicas` cannot be where they are placed, as each needs a slice to itself; ""
    where they can. One that may be let go of needs one too: it is placed for a load."""
    scaled = [(model, model.replicas) for model in models if model.replicas is not None]
    placed = [replace(model, replicas=replace(spec, least=max(spec.least, 1))) for model, spec in scaled]
    held = SliceOwners(_asks(placed, least=True))
    held.take(slices)
    crowded, among = held.short()
    return _crowded(placed, crowded, among, "other slices for them, or") if crowded else ""


def _crowded(
    models: Sequence[ServedModel], crowded: Sequence[str], among: Sequence[str], expected: str
) -> str:
    least = {model.name: model.replicas.least for model in models if model.replicas}
    needs = " and ".join(f"{name} {least[name]}" for name in crowded)
    total = sum(least[name] for name in crowded)
    more = total - len(among)
    return (
        f"only one model with `replicas` gets batches on a slice, and there are too few: at least "
        f"{needs}, that is {total}, on {_listed(among)}; expected {expected} {more} more"
    )


def _check_cost(findings: Findings, held: HeldRange, scaling: ScalingSpec, *, priced: bool) -> None:
    if not priced:
        message = "no slice has a price, so there is nothing to limit"
        findings.add(
            _COST, f"{message}; expected `prices:` with what an hour of a core costs, beside `slices:`"
        )
    elif held.cost_least > scaling.cost_max + _ROUNDING:
        what = f"below what the least costs ({_listed(held.least)})"
        findings.add(
            _COST, fault(what, scaling.cost_max, f"{held.cost_least:.6g} or more, or smaller minimums")
        )


def span(models: Sequence[ServedModel], slices: Sequence[SliceSpec]) -> HeldRange:
    """Return a slice on which only scaled models may be is held while one of them has it, the others always.
    At the minimum the cheapest that suffice, spot slices only where there are too few others; at the maximum
    the dearest that can be had."""
    ups = {name for model in models if model.replicas is not None for name in model.slices}
    stay = {name for model in models if model.replicas is None for name in model.slices}
    always = {each.name for each in slices if each.name in stay or each.name not in ups}
    extra = {each.name: 0.0 if each.name in always else each.price for each in slices}
    cheap = sorted(extra, key=lambda name: extra[name])
    spot = {each.name: each.spot for each in slices}
    firm = sorted(cheap, key=lambda name: spot[name])
    least = _held(_asks(models, least=True), firm) | always
    most = _held(_asks(models, least=False), reversed(cheap)) | always
    return HeldRange(
        tuple(each.name for each in slices if each.name in least),
        tuple(each.name for each in slices if each.name in most),
        sum(each.price for each in slices if each.name in least),
        sum(each.price for each in slices if each.name in most),
    )


def _held(asks: Mapping[str, Ask], order: Iterable[str]) -> set[str]:
    holding = SliceOwners(asks)
    holding.take(order)
    return {*holding.given}


def _asks(models: Sequence[ServedModel], *, least: bool) -> dict[str, Ask]:
    found = {}
    for model in models:
        if model.replicas is not None:
            most = model.replicas.most
            count = model.replicas.least if least else len(model.slices) if most is None else most
            found[model.name] = Ask(model.slices, min(count, len(model.slices)))
    return found


def _listed(names: Sequence[str]) -> str:
    """Return `slice a`, `slices a, b`; of many the first ones, and how many there are."""
    if len(names) == 1:
        return f"slice {names[0]}"
    if len(names) > _NAMED_MAX:
        return f"{len(names)} slices ({', '.join(names[:3])} ... {names[-1]})"
    return f"{len(names)} slices ({', '.join(names)})"
