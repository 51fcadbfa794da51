"""`endpoints:` of a model.yaml: which applications' endpoints the model serves, and by which tensors."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field, PlainValidator

from router.settings.model_file.schema import ModelFile, TensorSection
from router.settings.values.fields import Text, known, refuse
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, one_of, shown, unknown_name
from router.settings.values.schema import Section
from serving.values.applications import ACTIVATIONS, CLASSIFY, EMBED, RERANK, TASKS, Application

LOC: Final = ("endpoints",)
Find = Callable[[str], Path]
"""Returns where a file of the model is that model.yaml names."""

FLOATS: Final = ("FP16", "BF16", "FP32", "FP64")
PACKAGE: Final = "package:"
"""Before the path of a file that a Python package carries."""

_ROLES: Final = {EMBED: ("input",), RERANK: ("query", "document"), CLASSIFY: ("input",)}
"""The keys that name a task's inputs."""


def _check_files(value: object) -> object:
    files = [value] if isinstance(value, str) else value
    if (
        isinstance(files, list)
        and files
        and all(type(each) is str and 0 < len(each) <= 4096 for each in files)
    ):
        return tuple(files)
    raise refuse(fault("not a file", value, "a path such as build/tokenizer.json, or a list of paths to try"))


def _check_lengths(value: object) -> object:
    if isinstance(value, list) and all(type(each) is int and 0 < each <= 1 << 20 for each in value):
        return tuple(sorted(set(value)))
    raise refuse(fault("not lengths", value, "a list of whole numbers such as [64, 128]"))


class EndpointsSection(Section):
    """`endpoints:`; what is left out follows from the model's tensors."""

    task: Annotated[str, AfterValidator(known("task", TASKS))]
    input: Text | None = None
    query: Text | None = None
    document: Text | None = None
    output: Text | None = None
    activation: Annotated[str, AfterValidator(known("activation", ACTIVATIONS))] = ACTIVATIONS[0]
    tokenizer: Annotated[tuple[str, ...] | None, PlainValidator(_check_files)] = None
    tokens_max: Annotated[int, Field(ge=4, le=1 << 20)] | None = None
    dimensions: Annotated[tuple[int, ...], PlainValidator(_check_lengths)] = ()


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Tensors among which a key finds its own. `kind`: what they are, in a message."""

    kind: str
    sections: Sequence[TensorSection]
    fitting: Sequence[TensorSection]


def read_application(findings: Findings, model: ModelFile, find: Find) -> Application | None:
    """Return what the model offers to applications; None if it says nothing, or if that is faulty."""
    if model.endpoints is None:
        return None
    section = findings.parse(EndpointsSection, LOC)
    if section is None:
        return None
    _check_keys(findings, section)
    _check_model(findings, model)
    inputs = _inputs(findings, section, model)
    output = _output(findings, section, model)
    if not findings.sound(LOC) or output is None:
        return None
    _check_dimensions(findings, section, output)
    return Application(
        task=section.task,
        inputs=inputs,
        output=output.name,
        activation=section.activation,
        tokenizer=find_tokenizer(section.tokenizer or (), find),
        tokenizers=section.tokenizer or (),
        tokens_max=section.tokens_max or 0,
        dimensions=section.dimensions,
    )


def _check_model(findings: Findings, model: ModelFile) -> None:
    """Add what a model cannot be whose rows are an application's texts, each with one answer."""
    if model.decoupled:
        findings.add(LOC, "an endpoint gives one answer; expected decoupled: false", at_key=True)
    if model.sequence is not None:
        findings.add(LOC, "an endpoint knows no sequences; expected no sequence", at_key=True)
    if model.batch_max == 0:
        findings.add(LOC, "each text is a row of a batch; expected batch_max: 1 or more", at_key=True)


def find_tokenizer(stated: Sequence[str], find: Find) -> Path | None:
    """Return the first of the files that exists; None if none does."""
    for each in stated:
        path = _in_package(each.removeprefix(PACKAGE)) if each.startswith(PACKAGE) else find(each)
        if path is not None and path.is_file():
            return path.resolve()
    return None


def _in_package(place: str) -> Path | None:
    name, _, path = place.partition("/")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent / path if spec is not None and spec.origin and path else None


def _check_keys(findings: Findings, section: EndpointsSection) -> None:
    """Check that no key belongs to another task."""
    task = section.task
    for key in ("input", "query", "document"):
        if getattr(section, key) is not None and key not in _ROLES[task]:
            expected = f"{' and '.join(_ROLES[task])} with task: {task}"
            findings.add((*LOC, key), f"no key of task {task}; expected {expected}", at_key=True)
    if section.dimensions and task != EMBED:
        findings.add((*LOC, "dimensions"), f"no key of task {task}; expected task: {EMBED}", at_key=True)
    if section.activation != ACTIVATIONS[0] and task == EMBED:
        findings.add((*LOC, "activation"), f"no key of task {task}; an embedding has none", at_key=True)
    if section.activation == "softmax" and task == RERANK:
        expected = "none or sigmoid: a document has one score"
        findings.add((*LOC, "activation"), fault("no activation of a score", "softmax", expected))
    if section.tokens_max is not None and section.tokenizer is None:
        what = "without a tokenizer no text is counted exactly"
        findings.add((*LOC, "tokens_max"), f"{what}; expected tokenizer beside it", at_key=True)


def _inputs(findings: Findings, section: EndpointsSection, model: ModelFile) -> tuple[str, ...]:
    """Return the names of the inputs in the order of the task's roles; () if they are faulty."""
    roles = _ROLES[section.task]
    if len(model.inputs) != len(roles):
        what = f"task {section.task} fills {len(roles)} input{'s' * (len(roles) > 1)}"
        findings.add((*LOC, "task"), f"{what}, but the model has {len(model.inputs)}")
        return ()
    texts = [each for each in model.inputs if _is_text(each)]
    fitting = model.inputs if section.task == CLASSIFY else texts
    names: list[str] = []
    for role in roles:
        stated = getattr(section, role)
        kind = "input that takes one text a row: BYTES of shape [-1] or [-1, 1]"
        if section.task == CLASSIFY:
            kind = "input"
        left = [each for each in fitting if each.name not in names]
        if stated is None and role == "query":
            left = [each for each in left if each.name != section.document]
        among = _Tensors(kind, model.inputs, left if stated is None else fitting)
        found = _find(findings, (*LOC, role), stated, among, first=section.task == RERANK)
        if found is None:
            return ()
        if found.name in names:
            findings.add((*LOC, role), f"{shown(found.name)} is the query's input, too; expected another")
            return ()
        names.append(found.name)
    return tuple(names)


def _output(findings: Findings, section: EndpointsSection, model: ModelFile) -> TensorSection | None:
    rank = {EMBED: "[-1, n]", RERANK: "[-1] or [-1, 1]", CLASSIFY: "[-1, n]"}[section.task]
    kind = f"output of floats of shape {rank}"
    fitting = [each for each in model.outputs if _is_answer(each, section.task)]
    stated = section.output
    return _find(findings, (*LOC, "output"), stated, _Tensors(kind, model.outputs, fitting), first=False)


def _find(
    findings: Findings, loc: Loc, stated: str | None, among: _Tensors, *, first: bool
) -> TensorSection | None:
    """Return the tensor that a key names, or the one that fits. `first`: the first of several will do."""
    fitting = among.fitting
    names = [each.name for each in fitting]
    if stated is not None:
        found = next((each for each in fitting if each.name == stated), None)
        if found is None and stated in {each.name for each in among.sections}:
            findings.add(loc, f"{shown(stated)} is no {among.kind}")
        elif found is None:
            known_names = [each.name for each in among.sections]
            findings.add(loc, unknown_name("unknown tensor", stated, known_names))
        return found
    if len(fitting) == 1 or (fitting and first):
        return fitting[0]
    if fitting:
        message = f"several tensors could be meant; expected {loc[-1]}: {one_of(names)}"
    else:
        message = f"the model has no {among.kind}, which this task needs"
    findings.add((*LOC, "task"), message)
    return None


def _is_text(tensor: TensorSection) -> bool:
    return tensor.datatype == "BYTES" and (len(tensor.sizes) == 1 or tensor.sizes[1:] in ([1], [-1]))


def _is_answer(tensor: TensorSection, task: str) -> bool:
    if tensor.datatype not in FLOATS:
        return False
    if task == RERANK:
        return len(tensor.sizes) == 1 or tensor.sizes[1:] == [1]
    return len(tensor.sizes) == 2


def _check_dimensions(findings: Findings, section: EndpointsSection, output: TensorSection) -> None:
    whole = output.sizes[-1]
    if section.dimensions and whole != -1 and section.dimensions[-1] >= whole:
        expected = f"less than the {whole} of {shown(output.name)}"
        findings.add((*LOC, "dimensions"), fault("too long", section.dimensions[-1], expected))
