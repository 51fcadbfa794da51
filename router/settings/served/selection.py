"""`selection:` of a served model as a SelectionSpec: who votes, or whose choice is learnt."""

from collections.abc import Sequence

from router.settings.served.floors import ENSEMBLE, accuracy_text, convened
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, one_of, shown, unknown_name
from router.settings.values.schema import SelectionSection
from serving.values.objectives import SelectionSpec
from serving.values.specs import ModelSpec, ServedModel, TensorSpec

MEMBERS_MIN = 2
CLASS_COUNT_MIN = 2
_SCORES = ("FP32", "FP64")
_LADDER_KEYS = ("optimize", "cost_max")


def read_selection(
    findings: Findings, loc: Loc, section: SelectionSection | None, model: ServedModel
) -> SelectionSpec | None:
    """Return the section at `loc` as it is for this model; None where there is none, or a faulty one."""
    if section is None:
        return None
    if model.spec.sequence is not None:
        message = f"{shown(model.name)} has sequences, and each stays on one variant; expected no selection"
        findings.add(loc, message, at_key=True)
        return None
    for key in _LADDER_KEYS:
        if (value := findings.document.at((*loc[:-1], key))) is not None:
            message = fault("selection says already who answers", value, f"no {key} or no selection")
            findings.add((*loc[:-1], key), message, at_key=True)
    if model.spec.decoupled:
        why = f"{model.name} is decoupled: its requests have any number of answers, which cannot be compared"
        findings.add(loc, f"{why}; expected no selection", at_key=True)
        return None
    _check_members(findings, loc, section, model)
    output = _read_output(findings, loc, section, model.spec)
    members = tuple(section.members)
    if section.policy == ENSEMBLE and findings.sound(loc):
        try:
            convened(model.spec, members, output)
        except ValueError as error:
            findings.add((*loc, "members"), str(error))
    if not findings.sound(loc):
        return None
    keep_us = SelectionSpec("", (), "").keep_us if section.keep_s is None else round(section.keep_s * 1e6)
    return SelectionSpec(section.policy, members, output, keep_us)


def _check_members(findings: Findings, loc: Loc, section: SelectionSection, model: ServedModel) -> None:
    known = [variant.name for variant in model.spec.variants]
    place = (*loc, "members")
    for at, name in enumerate(section.members):
        if name not in known:
            findings.add((*place, at), unknown_name("unknown variant", name, known))
        elif name not in model.variants:
            expected = f"one that `variants` lists: {one_of(model.variants)}"
            findings.add((*place, at), fault("a variant that is not served", name, expected))
    if len(section.members) < MEMBERS_MIN:
        expected = f"at least {MEMBERS_MIN} variants"
        findings.add(place, fault("nothing to select from", section.members, expected))
    if not findings.sound(place):
        return
    if section.policy == ENSEMBLE:
        _check_validated(findings, (*loc, "policy"), section.members, model.spec)
    elif model.own.accuracy_min:
        _warn_of_floor(findings, place, section.members, model)


def _check_validated(findings: Findings, loc: Loc, members: Sequence[str], spec: ModelSpec) -> None:
    """Check that validation data holds what the members say of the same rows: weights and joint accuracy
    follow from it."""
    there = [name for name, _ in spec.validation.predictions] if spec.validation else []
    missing = [name for name in members if name not in there]
    if missing:
        what = f"nothing says what {', '.join(missing)} of {spec.name} answered on validation data"
        findings.add(loc, f"{what}; expected that in the file of `validation` in its model.yaml")


def _warn_of_floor(findings: Findings, loc: Loc, members: Sequence[str], model: ServedModel) -> None:
    """Warn of members that are less accurate than the model's own floor; they take no part there."""
    for at, name in enumerate(members):
        if name not in model.own.variants:
            share = model.accuracy(name)
            reached = "of unknown accuracy" if share is None else accuracy_text(share)
            floor = f"the floor of {model.name}, {model.own.accuracy_min:.10g}"
            message = f"{name} ({reached}) is below {floor}: it answers only in tiers with a lower one"
            findings.warn((*loc, at), message)


def _read_output(findings: Findings, loc: Loc, section: SelectionSection, spec: ModelSpec) -> str:
    outputs = {tensor.name: tensor for tensor in spec.outputs}
    fitting = [name for name, tensor in outputs.items() if _scores(tensor)]
    expected = f"one of {' or '.join(_SCORES)} and shape [-1, N], a score for each of N >= 2 classes"
    name = section.output
    if name is None:
        if len(fitting) == 1:
            return fitting[0]
        which = one_of(fitting) if fitting else f"{expected}; {spec.name} has none"
        findings.add((*loc, "output"), f"this key is required; expected {which}", at_key=True)
    elif name not in outputs:
        findings.add((*loc, "output"), unknown_name("unknown output", name, outputs))
    elif name not in fitting:
        tensor = outputs[name]
        what = f"{shown(name)} is {tensor.datatype} {[*tensor.shape]}"
        findings.add((*loc, "output"), f"{what}; expected {expected}")
    return name or ""


def _scores(tensor: TensorSpec) -> bool:
    return tensor.datatype in _SCORES and len(tensor.shape) == 2 and tensor.shape[1] >= CLASS_COUNT_MIN
