"""A model folder, `model.yaml` and what its build measured, as a ModelSpec."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from router.settings.model_file.applications import read_application
from router.settings.model_file.backends import check_backends
from router.settings.model_file.folders import MODEL_FILE, ModelFolder, locate, versions_in
from router.settings.model_file.padding import check_hint, check_padding, hint_of
from router.settings.model_file.schema import (
    InputSection,
    ModelFile,
    ParameterSection,
    TensorSection,
    VariantSection,
)
from router.settings.model_file.sequences import read_sequence
from router.settings.model_file.validation import read_validation
from router.settings.values.document import read_document
from router.settings.values.fields import SIZES
from router.settings.values.findings import Findings
from router.settings.values.labels import read_labels
from router.settings.values.problems import (
    Loc,
    SettingsError,
    SettingsProblem,
    fault,
    nearest_path,
    one_of,
    shown,
    unknown_name,
)
from router.settings.values.versions import missing
from router.tensors.request.parameters import PRIORITY, READ
from router.tensors.request.sequences import SEQUENCE
from serving.values.specs import (
    Labels,
    ModelSpec,
    ParameterSpec,
    Priorities,
    TensorSpec,
    Validation,
    VariantSpec,
    padded_sizes,
)
from serving.values.tensor import ANY

_ROOT = Path(__file__).resolve().parents[3]
SAMPLES, MAKEFILE = _ROOT / "models", _ROOT / "Makefile"
"""The sample models, and what builds all of them: there in a clone of this project, and nowhere else."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "string": (str,),
}


def load_model(folder: Path, version: int = 0) -> ModelSpec:
    """Return the model in `folder`, with absolute paths; SettingsError with all that is wrong with it.

    `version`: of a model with versions, 0 for the highest or for the one whose folder `folder` is.
    """
    files = ModelFolder(folder, version) if version else locate(folder)
    if not os.path.isfile(files.model_file):  # unlike Path.is_file, never an OSError
        raise SettingsError([SettingsProblem(str(folder / MODEL_FILE), 1, 1, "", missing_model(folder))])
    findings = Findings(read_document(files.model_file))
    model = findings.parse(ModelFile)
    if model is None:
        raise SettingsError(findings.problems)
    _check_tensors(findings, model)
    _check_variants(findings, model)
    check_backends(findings, model)
    for index, parameter in enumerate(model.parameters):
        _check_parameter(findings, ("parameters", index), parameter)
    _check_distinct(findings, ("parameters",), model.parameters)
    accuracy: Mapping[str, float] = {}
    if model.decoupled:
        _check_decoupled(findings, model)
    _check_priorities(findings, model)
    _check_built(findings, model, files)
    _check_version(findings, model, files)
    if model.accuracy is not None and not findings.problems:  # its names are checked against the variants
        accuracy = _read_accuracy(findings, files.own / model.accuracy.file, model)
    validation = None
    if model.validation is not None and not findings.problems:
        names = [variant.name for variant in model.variants]
        validation = read_validation(findings, files.own / model.validation.file, names)
    labels = _read_labels(findings, model, files)
    sequence = read_sequence(findings, model)
    application = read_application(findings, model, files.path)
    findings.stop_if_any()
    spec = _spec(model, ModelFolder(Path(os.path.abspath(files.home)), files.version), accuracy, validation)
    answered = {output.name for output in model.outputs if output.parameter}
    outputs = tuple(
        replace(output, labels=labels.get(output.name), parameter=output.name in answered)
        for output in spec.outputs
    )
    return replace(spec, outputs=outputs, sequence=sequence, application=application)


def missing_model(folder: Path) -> str:
    """Return why `folder` holds no model, with the neighbour that may be meant."""
    if os.path.isdir(folder):
        return f"{shown(folder)} is no model folder: it has no {MODEL_FILE}"
    near = nearest_path(folder)
    return fault("no such folder", folder, f"a model folder with a {MODEL_FILE}", near)


def _check_distinct(
    findings: Findings, loc: Loc, sections: Sequence[TensorSection | VariantSection | ParameterSection]
) -> None:
    seen: set[str] = set()
    for index, section in enumerate(sections):
        if section.name in seen:
            findings.add(
                (*loc, index, "name"), f"{shown(section.name)} is used twice; each needs its own name"
            )
        seen.add(section.name)


def _check_tensors(findings: Findings, model: ModelFile) -> None:
    _check_distinct(findings, ("inputs",), model.inputs)
    _check_distinct(findings, ("outputs",), model.outputs)
    _check_batch(findings, model)
    if model.inputs[0].optional or model.inputs[0].mask:
        expected = "expected an input first that every request has: it says how many rows there are"
        findings.add(("inputs", 0, "optional"), f"the first input is optional; {expected}")
    _check_answered(findings, model)
    check_hint(findings, model)
    check_padding(findings, model)


def _check_batch(findings: Findings, model: ModelFile) -> None:
    """Add tensors without a batch dimension, of a model that takes batches."""
    if model.batch_max == 0 or not findings.sound(("batch_max",)):
        return
    for key, tensors in (("inputs", model.inputs), ("outputs", model.outputs)):
        for index, tensor in enumerate(tensors):
            if tensor.sizes[0] != -1 or tensor.names[0]:
                expected = f"expected -1 (the batch) and then {SIZES}; batch_max: 0 is without a batch"
                findings.add((key, index, "shape"), f"not a shape; got {tensor.shape}, {expected}")


def _check_answered(findings: Findings, model: ModelFile) -> None:
    """Check that outputs which become parameters of an answer have one value a row, and that others are
    left."""
    for index, output in enumerate(model.outputs):
        shape = output.sizes
        if output.parameter and (len(shape) > 2 or shape[1:] not in ([], [1]) or output.datatype == ANY):
            message = f"{shown(output.name)} has no single value a row; expected shape [-1] or [-1, 1]"
            findings.add(("outputs", index, "parameter"), f"{message} and a datatype", at_key=True)
    if all(output.parameter for output in model.outputs):
        findings.add(("outputs",), "all are parameters; expected an output without `parameter: true`")


def _check_variants(findings: Findings, model: ModelFile) -> None:
    _check_distinct(findings, ("variants",), model.variants)
    names = [variant.name for variant in model.variants]
    if not findings.sound(("variants",)):
        return  # their names are not known
    if model.default_variant is None:
        if len(names) > 1:
            message = (
                f"several variants, and none is said to answer; expected default_variant: {one_of(names)}"
            )
            findings.add(("variants",), message, at_key=True)
    elif model.default_variant not in names:
        findings.add(("default_variant",), unknown_name("unknown variant", model.default_variant, names))


def _check_decoupled(findings: Findings, model: ModelFile) -> None:
    """Add what cannot be had of a model whose requests have any number of answers."""
    told = "with decoupled: true a request has any number of answers"
    if model.deterministic or any(variant.deterministic for variant in model.variants):
        findings.add(("decoupled",), f"{told}, which are never kept; expected deterministic: false")
    if model.validation is not None:
        findings.add(("validation",), f"{told}, which cannot vote; expected no validation")
    if model.sequence is not None:
        findings.add(("sequence",), f"{told}, and a sequence counts one; expected decoupled: false")
    if model.batch_max == 0:
        findings.add(("batch_max",), f"{told}, each of one row of a batch; got 0, expected 1 or more")


def _check_priorities(findings: Findings, model: ModelFile) -> None:
    """Check that the default is a level, and that no parameter takes the name in which requests state one."""
    first = model.priorities
    if first is None:
        return
    if first.default > first.levels:
        message = f"no level; got {first.default}, expected 1 to {first.levels}"
        findings.add(("priorities", "default"), message)
    if any(each.name == PRIORITY for each in model.parameters):
        message = f"the parameter {PRIORITY!r} states a request's level; expected no parameter of that name"
        findings.add(("priorities",), message, at_key=True)


def _check_parameter(findings: Findings, loc: Loc, parameter: ParameterSection) -> None:
    default, low, high = parameter.default, parameter.minimum, parameter.maximum
    number = isinstance(default, int | float) and not isinstance(default, bool)
    if parameter.name in (*READ, *SEQUENCE):
        taken = one_of((*READ, *SEQUENCE))
        message = f"{shown(parameter.name)} is the gateway's own; expected a name other than {taken}"
        findings.add((*loc, "name"), message)
    if not isinstance(default, _TYPES[parameter.type]) or (
        parameter.type != "bool" and isinstance(default, bool)
    ):
        findings.add((*loc, "default"), fault("of another type", default, f"type {parameter.type}"))
    elif not number and (low is not None or high is not None):
        key = "minimum" if low is not None else "maximum"
        findings.add(
            (*loc, key), f"type {parameter.type} has no order; expected this key only with int or float"
        )
    elif not number and parameter.time_unit is not None:
        message = f"type {parameter.type} is no time; expected this key only with int or float"
        findings.add((*loc, "time_unit"), message)
    elif low is not None and high is not None and low > high:
        findings.add((*loc, "maximum"), fault("below the minimum", high, f"{low:g} or more"))
    elif isinstance(default, int | float) and low is not None and default < low:
        findings.add((*loc, "default"), fault("below the minimum", default, f"{low:g} or more"))
    elif isinstance(default, int | float) and high is not None and default > high:
        findings.add((*loc, "default"), fault("above the maximum", default, f"{high:g} or less"))


def _read_labels(findings: Findings, model: ModelFile, files: ModelFolder) -> dict[str, Labels | None]:
    """Return the labels by output, of those that have any."""
    return {
        output.name: read_labels(
            findings,
            ("outputs", index, "labels"),
            output.labels,
            (output.datatype, _tensor(output, model).shape),
            files.path,
        )
        for index, output in enumerate(model.outputs)
        if output.labels is not None
    }


def _check_built(findings: Findings, model: ModelFile, files: ModelFolder) -> None:
    """Add a problem at the first file that model.yaml names and that is missing.

    What was measured of one version is not true of others, so it counts in the version's own folder only.
    """
    named: list[tuple[Loc, str]] = [
        (("variants", index, "artifact"), variant.artifact)
        for index, variant in enumerate(model.variants)
        if variant.artifact is not None
    ]
    if model.code is not None:
        named.append((("code",), model.code))
    paths = [(loc, file, files.path(file)) for loc, file in named]
    if model.accuracy is not None:
        paths.append((("accuracy", "file"), model.accuracy.file, files.own / model.accuracy.file))
    if model.validation is not None:
        paths.append((("validation", "file"), model.validation.file, files.own / model.validation.file))
    for loc, file, path in paths:
        if not os.path.exists(path):
            build = None if files.version else model.build
            findings.add(loc, f"{shown(file)} is missing; {_remedy(files.own, file, build)}")
            return


def _check_version(findings: Findings, model: ModelFile, files: ModelFolder) -> None:
    """Check which versions are to be served, and that a version's own model.yaml names the same model."""
    policy = model.version_policy
    if policy is not None and (why := missing(policy, versions_in(files.home))):
        findings.add(("version_policy",), why)
    beside = files.home / MODEL_FILE
    if files.model_file != beside and (name := read_document(beside).at(("name",))) != model.name:
        message = f"another model; got {shown(model.name)}, expected {shown(name)}, as {beside} has it"
        findings.add(("name",), message)


def _remedy(folder: Path, file: str, build: str | None) -> str:
    """Return what brings a missing file: the model's own build, by make too where it is a sample of this
    project."""
    if build is None:
        return f"expected a file or folder {folder / file}"
    make = "`make setup`, or " if SAMPLES in folder.resolve().parents and MAKEFILE.exists() else ""
    return f"{folder} is not built: run {make}python {folder / build}"


def _read_accuracy(findings: Findings, file: Path, model: ModelFile) -> Mapping[str, float]:
    """Return the accuracy of each variant that was measured; JSON is read as the YAML that it is."""
    try:
        measured = Findings(read_document(file))
    except SettingsError as error:
        findings.absorb(error)
        return {}
    accuracy: dict[str, float] = {}
    names = [variant.name for variant in model.variants]
    table = measured.document.value
    if not isinstance(table, dict):
        measured.add((), fault("not a mapping", table, "variants and their accuracy"))
        table = {}
    for name, share in table.items():
        if name not in names:
            measured.add((name,), unknown_name("unknown variant", name, names), at_key=True)
        elif type(share) not in (int, float) or not 0 <= share <= 1:
            measured.add((name,), fault("not an accuracy", share, "a number from 0 to 1"))
        else:
            accuracy[name] = float(share)
    findings.problems.extend(measured.problems)
    return accuracy


def _spec(
    model: ModelFile, files: ModelFolder, accuracy: Mapping[str, float], validation: Validation | None
) -> ModelSpec:
    first = model.priorities
    inputs = tuple(_input(each, model) for each in model.inputs)
    return ModelSpec(
        name=model.name,
        folder=files.own,
        version=files.version,
        inputs=inputs,
        outputs=tuple(_tensor(each, model) for each in model.outputs),
        variants=tuple(_variant(each, model, files, accuracy) for each in model.variants),
        default_variant=model.default_variant or model.variants[0].name,
        slo_us=round((model.slo_ms or 0) * 1000),
        slo_rows=model.slo_rows or 0,
        priorities=Priorities(first.levels, first.default) if first else None,
        batch_max=model.batch_max or 1,
        unbatched=model.batch_max == 0,
        accuracy_metric=model.accuracy.metric if model.accuracy else "",
        size_hint=hint_of(model),
        padded=padded_sizes(inputs),
        parameters=tuple(
            ParameterSpec(
                each.name, each.type, each.default, each.minimum, each.maximum, each.time_unit or ""
            )
            for each in model.parameters
        ),
        description=model.description.strip(),
        validation=validation,
        decoupled=model.decoupled,
        code=files.code(model.code),
    )


def _tensor(section: TensorSection, model: ModelFile) -> TensorSpec:
    """Return the tensor, with a batch dimension also where the model has none."""
    batch = (-1,) if model.batch_max == 0 else ()
    names = ("", *section.names) if batch else section.names
    return TensorSpec(
        section.name, section.datatype, (*batch, *section.sizes), names=names if any(names) else ()
    )


def _input(section: InputSection, model: ModelFile) -> TensorSpec:
    pad = 0 if section.mask and section.pad is None else section.pad
    optional = section.optional or section.mask
    return replace(_tensor(section, model), optional=optional, pad=pad, mask=section.mask)


def _variant(
    section: VariantSection, model: ModelFile, files: ModelFolder, accuracy: Mapping[str, float]
) -> VariantSpec:
    deterministic = model.deterministic if section.deterministic is None else section.deterministic
    return VariantSpec(
        name=section.name,
        artifact=files.path(section.artifact) if section.artifact is not None else None,
        options=tuple(sorted(section.options.items())),
        accuracy=accuracy.get(section.name),
        deterministic=deterministic,
        compile=section.compile,
        backend=section.backend,
    )
