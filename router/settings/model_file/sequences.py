"""`sequence:` of a model.yaml: how the model serves sequences of requests. The words are Triton's."""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from router.settings.model_file.schema import ModelFile
from router.settings.values.fields import DAY_S, Text, known
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, shown, unknown_name
from router.settings.values.schema import Section
from serving.values.sequences import (
    CONTROLS,
    FLAG_DATATYPES,
    ID_DATATYPES,
    STATE_BYTES_MAX,
    STRATEGIES,
    ControlSpec,
    SequenceSpec,
    StateSpec,
)
from serving.values.tensor import ITEM_BYTES

SLOTS_MAX: Final = 65536
IDLE_S: Final = 1.0
"""As Triton's max_sequence_idle_microseconds, if none is stated."""
OLDEST_SLOTS: Final = 1024

_STATED: Final = tuple(name for name, size in ITEM_BYTES.items() if size)
_LOC: Final = ("sequence",)


class ControlSection(Section):
    """An entry of `controls:`."""

    kind: Annotated[str, AfterValidator(known("kind of control", CONTROLS))]
    name: Text
    datatype: str | None = None  # which it may be depends on the kind


class StateSection(Section):
    """An entry of `state:`."""

    input: Text
    output: Text
    datatype: Annotated[str, AfterValidator(known("datatype of a state", _STATED))]
    shape: Annotated[list[Annotated[int, Field(ge=1, le=1 << 30)]], Field(min_length=1, max_length=8)]


class SequenceSection(Section):
    """`sequence:`."""

    strategy: Annotated[str, AfterValidator(known("strategy", STRATEGIES))] = STRATEGIES[0]
    slots: Annotated[int, Field(ge=1, le=SLOTS_MAX)] | None = None
    idle_s: Annotated[float, Field(ge=0.001, le=DAY_S, allow_inf_nan=False)] = IDLE_S
    controls: list[ControlSection] = Field(default_factory=list)
    state: list[StateSection] = Field(default_factory=list)


def read_sequence(findings: Findings, model: ModelFile) -> SequenceSpec | None:
    """Return the section as it is for this model; None where there is none, or a faulty one."""
    if model.sequence is None:
        return None
    section = findings.parse(SequenceSection, _LOC)
    if section is None:
        return None
    _check_deterministic(findings, model)
    direct = section.strategy == "direct"
    if model.batch_max == 0:
        findings.add(("batch_max",), "each sequence has a row of the batch; got 0, expected 1 or more")
    if direct and section.slots is not None and section.slots > model.batch_max:
        expected = f"at most batch_max, {model.batch_max}: with direct each sequence has a row of the batch"
        findings.add((*_LOC, "slots"), fault("too many", section.slots, expected))
    _check_names(findings, model, section)
    for index, control in enumerate(section.controls):
        _check_control(findings, index, control, section.controls)
    spec = SequenceSpec(
        strategy=section.strategy,
        slots=section.slots or (model.batch_max if direct else OLDEST_SLOTS),
        idle_us=round(section.idle_s * 1e6),
        controls=tuple(
            ControlSpec(each.kind, each.name, each.datatype or _datatypes(each.kind)[0])
            for each in section.controls
        ),
        state=tuple(
            StateSpec(each.input, each.output, each.datatype, tuple(each.shape)) for each in section.state
        ),
    )
    row_bytes = sum([prod(each.shape) * ITEM_BYTES[each.datatype] for each in spec.state])
    if spec.slots * row_bytes > STATE_BYTES_MAX and findings.sound(_LOC):
        what = f"{spec.slots} slots of {row_bytes} bytes"
        expected = f"at most {STATE_BYTES_MAX} bytes for a replica; state fewer slots"
        findings.add((*_LOC, "state"), fault("too large", what, expected), at_key=True)
    return spec if findings.sound(_LOC) else None


def _datatypes(kind: str) -> Sequence[str]:
    return ID_DATATYPES if kind == "corrid" else FLAG_DATATYPES


def _check_deterministic(findings: Findings, model: ModelFile) -> None:
    """Check that no variant says that equal requests have equal answers: they follow from the sequence."""
    message = "a model with sequences answers equal requests unequally; expected no deterministic: true"
    if model.deterministic:
        findings.add(("deterministic",), message, at_key=True)
    for index, variant in enumerate(model.variants):
        if variant.deterministic:
            findings.add(("variants", index, "deterministic"), message, at_key=True)


def _check_control(
    findings: Findings, index: int, control: ControlSection, controls: Sequence[ControlSection]
) -> None:
    loc: Loc = (*_LOC, "controls", index)
    if control.kind in [each.kind for each in controls[:index]]:
        findings.add((*loc, "kind"), f"{shown(control.kind)} is stated twice; expected each kind once")
    allowed = _datatypes(control.kind)
    if control.datatype is not None and control.datatype not in allowed:
        what = f"unknown datatype of {control.kind}"
        findings.add((*loc, "datatype"), unknown_name(what, control.datatype, allowed))


def _check_names(findings: Findings, model: ModelFile, section: SequenceSection) -> None:
    """Check that what the worker adds has names of its own."""
    inputs = {each.name for each in model.inputs}
    outputs = {each.name for each in model.outputs}
    places: list[tuple[Loc, str, set[str]]] = [
        ((*_LOC, "controls", index, "name"), each.name, inputs) for index, each in enumerate(section.controls)
    ]
    for index, each in enumerate(section.state):
        places.append(((*_LOC, "state", index, "input"), each.input, inputs))
        places.append(((*_LOC, "state", index, "output"), each.output, outputs))
    for loc, name, taken in places:
        if name in taken:
            findings.add(loc, f"{shown(name)} is used twice; each needs its own name")
        taken.add(name)
