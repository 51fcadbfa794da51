"""Whether what is promised can be kept by what is served, as far as that needs no measured latency: floors of
accuracy, and limits of cost."""

from collections.abc import Iterator, Mapping, Sequence
from math import floor, inf

from router.settings.served.promises import FLOORS, stated_at
from router.settings.values.findings import Findings
from router.settings.values.problems import dotted
from serving.policy.variants.voting import Panel, convene
from serving.values.objectives import SELECTION_POLICIES, Objective, ranked
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ModelSpec, ServedModel, Validation

ENSEMBLE = SELECTION_POLICIES[0]

_DIGITS = 4


def accuracy_text(share: float) -> str:
    """Return an accuracy in few digits, rounded down: what is reached must not look like more."""
    return f"{floor(share * 10**_DIGITS + 1e-6) / 10**_DIGITS:g}"


def objectives(model: ServedModel) -> Iterator[Objective]:
    """Yield the model's own objective, then the objective of each tier."""
    yield model.own
    yield from model.by_tier.values()


def answering(model: ServedModel, objective: Objective) -> tuple[str, ...]:
    """Return the variants that may answer, or take part in it where several do, with the most accurate
    first."""
    if model.selection is None:
        return objective.variants
    floor = 0.0 if model.selection.policy == ENSEMBLE else objective.accuracy_min
    return ranked({name: model.accuracy(name) for name in model.selection.members}, floor)


def reach(model: ServedModel) -> dict[str, float]:
    """Return what answers, and how accurately if that was measured: variants, or the vote of an ensemble."""
    selection, names = model.selection, model.variants
    if selection is not None and selection.policy == ENSEMBLE:
        panel = convened(model.spec, selection.members, selection.output)
        return {f"the vote of {', '.join(selection.members)}": panel.accuracy_max}
    if selection is not None:
        names = selection.members
    return {name: share for name in names if (share := model.accuracy(name)) is not None}


def convened(spec: ModelSpec, members: Sequence[str], output: str) -> Panel:
    """Return the members as they vote. ValueError where they cannot."""
    classes = next(tensor.shape[-1] for tensor in spec.outputs if tensor.name == output)
    return convene(spec.validation or Validation((), ()), members, classes)


def check_floors(findings: Findings, index: int, model: ServedModel) -> None:
    """Check that what answers for `models[index]` reaches each floor."""
    floors = [
        (each, loc)
        for each in objectives(model)
        if (loc := stated_at(findings, index, each.tier, FLOORS)) is not None
    ]
    reached = reach(model) if floors else {}
    for each, loc in floors:
        if each.accuracy_min and not ranked(reached, each.accuracy_min):
            sentence = _out_of_reach(model, each, reached) + _remedy(index, each.tier, loc[0] == "tiers")
            findings.add(loc, sentence)
        elif loc[-1] == "tolerance" and not reached and len(model.variants) > 1:
            message = f"nobody has measured how accurate the variants of {model.name} are: any may answer"
            findings.warn(loc, f"{_tier(each)}{message}")


def _tier(objective: Objective) -> str:
    return f"tier {objective.tier}: " if objective.tier else ""


def _out_of_reach(model: ServedModel, objective: Objective, reached: Mapping[str, float]) -> str:
    least = objective.accuracy_min
    if reached:
        best = max(reached, key=reached.__getitem__)
        most = f"{model.name} reaches at most {accuracy_text(reached[best])} ({best})"
    else:
        most = f"nobody has measured how accurate {model.name} is"
    others = [
        f"{each.name} ({accuracy_text(each.accuracy)})"
        for each in model.spec.variants
        if each.name not in model.variants and each.accuracy is not None and each.accuracy >= least
    ]
    others = others if model.selection is None else []  # its members answer, and no one else
    would = f"; served too, {' or '.join(others)} would do" if others else ""
    return f"{_tier(objective)}{most}; {least:.10g} cannot be met{would}"


def _remedy(index: int, tier: str, general: bool) -> str:
    if not general:
        return ""
    return f"; say in {dotted(('models', index, 'tiers', tier))} what the tier means for this model"


def check_prices(
    findings: Findings, models: Sequence[ServedModel | None], slices: Sequence[SliceSpec]
) -> None:
    """Check that the slices of models with a limit of cost have a price."""
    prices = {each.name: each.price for each in slices}
    for index, model in enumerate(models):
        if model is None or not findings.sound(("models", index, "slices")):
            continue
        for each in objectives(model):
            loc = stated_at(findings, index, each.tier, ("cost_max",))
            if loc is None or each.cost_max == inf:
                continue
            free = [name for name in model.slices if not prices.get(name, 0.0)]
            names, has = ", ".join(free), "has" if len(free) == 1 else "have"
            if len(free) == len(model.slices):
                what = f"{_tier(each)}no slice of {model.name} has a price ({names})"
                findings.add(loc, f"{what}; expected a key `price` there, what an hour of the slice costs")
            elif free:
                what = f"{_tier(each)}{names} {has} no price: what {model.name} computes there costs nothing"
                findings.warn(loc, what)
