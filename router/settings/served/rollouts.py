"""`rollout:` of an entry in `models:` as a RolloutSpec: which model it is to take the place of, and how."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, one_of, unknown_name
from router.settings.values.schema import RolloutSection
from serving.values.rollouts import (
    ACCURACY,
    ACCURACY_MARGIN,
    AGREEMENT,
    AGREEMENT_MARGIN,
    MARGINS,
    RolloutSpec,
)
from serving.values.specs import ServedModel

PERCENT: Final = 100.0


def read_rollout(findings: Findings, loc: Loc, section: RolloutSection | None, of: str) -> RolloutSpec | None:
    """Return the rollout in the place of the model `of`, if the section names none; None without the
    section."""
    if section is None:
        return None
    of = section.of or of
    defaults = RolloutSpec(of)
    steps = tuple(each / PERCENT for each in section.steps) or defaults.steps
    if any(later <= earlier for earlier, later in pairwise(steps)):
        expected = "ascending percentages, such as [5, 25, 50, 100]"
        findings.add((*loc, "steps"), fault("not in ascending order", section.steps, expected))
    return RolloutSpec(
        of,
        steps if steps[-1] == 1.0 else (*steps, 1.0),
        defaults.hold_us if section.hold_s is None else round(section.hold_s * 1_000_000),
        section.sticky,
        _margins(findings, (*loc, "margins"), section),
        shadow=0.0 if section.shadow is None else section.shadow / PERCENT,
    )


def _margins(findings: Findings, loc: Loc, section: RolloutSection) -> Mapping[str, float]:
    found = {**MARGINS, **({AGREEMENT: AGREEMENT_MARGIN} if section.shadow is not None else {})}
    for name, margin in section.margins.items():
        if name == AGREEMENT and section.shadow is None:
            message = "only copies can agree; expected `shadow: 10`, say, beside it"
            findings.add((*loc, name), message, at_key=True)
        elif name not in found and name not in MARGINS and name != ACCURACY:
            known = [*dict.fromkeys((*found, ACCURACY))]
            findings.add((*loc, name), unknown_name("unknown margin", name, known), at_key=True)
        elif margin is False:
            found.pop(name, None)
        elif name == ACCURACY and margin is True:
            found[name] = ACCURACY_MARGIN
        elif isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 <= margin < 1:
            expected = "how much worse the share may be, such as 0.01, or false for no such margin"
            findings.add((*loc, name), fault("not a share", margin, expected))
        else:
            found[name] = float(margin)
    if not found.keys() - {AGREEMENT}:
        findings.add(loc, f"no margin is left; expected one of {one_of(MARGINS)}")
    return found


def check_rollouts(findings: Findings, models: Sequence[ServedModel | None]) -> None:
    """Check that each candidate can take the place of the model that it names."""
    served = {model.name: model for model in models if model is not None}
    taken: dict[str, str] = {}
    for index, model in enumerate(models):
        if model is None or model.rollout is None:
            continue
        loc, of = ("models", index, "rollout", "of"), model.rollout.of
        present = served.get(of)
        if present is None or present is model:
            others = [name for name in served if name != model.name]
            findings.add(loc, unknown_name("no other model", of, others))
        elif of in taken:
            findings.add(loc, f"{of} has a candidate already: {taken[of]}; expected one at a time")
        elif why := _unlike(present, model):
            findings.add(loc, f"{model.name} cannot take the place of {of}: {why}")
        elif key := _uncompared(model):
            why = (
                f"{model.name} is decoupled: its requests have any number of answers, which are not compared"
            )
            findings.add(
                (*loc[:-1], key), f"{why}; expected no shadow, and no margin of accuracy", at_key=True
            )
        taken.setdefault(of, model.name)


def _unlike(present: ServedModel, candidate: ServedModel) -> str:
    """Return why a candidate cannot answer the requests of a model, "" if it can."""
    if present.rollout is not None:
        return f"{present.name} is a candidate itself"
    old, new = present.spec, candidate.spec
    for what, theirs, ours in (("inputs", old.inputs, new.inputs), ("outputs", old.outputs, new.outputs)):
        if [(each.name, each.datatype, each.shape) for each in theirs] != [
            (each.name, each.datatype, each.shape) for each in ours
        ]:
            return f"its {what} are others; expected the same names, datatypes and shapes"
    if old.parameters != new.parameters:
        return "its parameters are others"
    if old.decoupled != new.decoupled:
        return f"only one of them is decoupled: {present.name if old.decoupled else candidate.name}"
    for each in (present, candidate):
        if each.selection is not None or each.spec.sequence is not None:
            return f"{each.name} selects variants or keeps sequences, which no rollout does"
    return ""


def _uncompared(candidate: ServedModel) -> str:
    """Return the key of a rollout that compares single answers, where the model gives any number; else ""."""
    spec = candidate.rollout
    if spec is None or not candidate.spec.decoupled:
        return ""
    return "shadow" if spec.shadow else "margins" if ACCURACY in spec.margins else ""
