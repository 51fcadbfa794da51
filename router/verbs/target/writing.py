"""The settings of a target, as files that an operator can read, edit and keep."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from router.settings.machine.slices import default_slices
from router.verbs.target.described import signature_of
from router.verbs.target.errors import TargetError
from router.verbs.target.target import Target
from serving.values.specs import TensorSpec
from serving.worker.backends.remote import MODEL, URL, parts_of
from serving.worker.backends.signature import Signature, Tensor, batch_max_of, options_of, specs_of

HOME: Final = Path(".penstock")
"""Where the files of a target lie that the operator did not ask for: below the folder of the command."""
SLO_FACTOR: Final = 10
"""A derived SLO leaves a request so many times what it takes alone: room for a queue and a batch."""
BULK, BULK_FACTOR = "bulk", 20
"""A tier for clients that can wait, such as those that send many rows at once: its SLO is so many times as
long."""
SLOS_MS: Final = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000)


@dataclass(frozen=True, slots=True)
class Written:
    """A settings file, and what it says, in lines for the operator."""

    settings: Path
    lines: tuple[str, ...]


def write_settings(
    target: Target, slo_ms: float | None, sizes: Mapping[str, int], save: Path | None, python: str = ""
) -> Written:
    """Write `penstock.yaml` and, if the target has none, `model.yaml`.

    `slo_ms`: None derives one from what a row takes here. `save`: the settings file; None writes both files
    below HOME, over those of an earlier call. `python`: the interpreter of the slices' workers, "" for this
    one's. Raises TargetError if the model cannot be served, or if a file
    that the operator named is there already.
    """
    file = save or _home(target) / "penstock.yaml"
    model = file.parent / ("models" if save else "model") / (target.name if save else "")
    for each in (file, *([model / "model.yaml"] if target.backend else [])):
        if save and each.exists():
            raise TargetError(f"{each} is there already; got --save {save}, expected a new file")
    if not target.backend:
        write_file(file, _settings(target, target.artifact, slo_ms, python))
        return Written(file, (f"{target.text}: served as its model.yaml says; settings are in {file}",))
    found = signature_of(target, sizes, python)
    asked = slo_ms or found.slo_ms
    stated = asked or derived_slo_ms(found.latency_ms)
    write_file(
        model / "model.yaml", model_text(target, found, sizes, f"`penstock serve {target.text}` found this")
    )
    write_file(file, _settings(target, str(model.relative_to(file.parent)), stated, python))
    return Written(file, tuple(_lines(target, found, (asked, stated), file)))


def _home(target: Target) -> Path:
    """Return a folder that no other target has: a gateway that serves one follows its settings file."""
    names = (target.name if number == 1 else f"{target.name}-{number}" for number in count(1))
    return next(HOME / name for name in names if _is_own(HOME / name / "penstock.yaml", target))


def _is_own(file: Path, target: Target) -> bool:
    return not file.exists() or file.read_text("utf-8").startswith(_said(target))


def _said(target: Target) -> str:
    return f"# `penstock serve {target.text}` wrote this."


def write_file(file: Path, text: str) -> None:
    """Write a file, and its folders. Raises TargetError if the system refuses."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    except OSError as error:
        raise TargetError(f"{file} cannot be written: {error.strerror}") from None


def derived_slo_ms(latency_ms: float) -> float:
    """Return the SLO for a model whose row takes so long."""
    return next((each for each in SLOS_MS if each >= SLO_FACTOR * latency_ms), SLOS_MS[-1])


def _settings(target: Target, path: str, slo_ms: float | None, python: str) -> str:
    bulk = "" if slo_ms is None else f"tiers:\n  - {{name: {BULK}, slo_ms: {BULK_FACTOR * slo_ms:g}}}\n"
    head = f"{_said(target)} Slices, tiers and more models go here too.\n"
    slices = f"slices:\n  - {_slices(python)}\n" if python else ""
    return f"{head}{slices}models:\n{entry(path, slo_ms)}{bulk}"


def _slices(python: str) -> str:
    """Return the slices that a gateway has without `slices:`, with an interpreter."""
    number = len(default_slices())
    many = f", count: {number}" if number > 1 else ""
    return f"{{name: cpu, cores: 1{many}, python: {json.dumps(python)}}}"


def entry(path: str, slo_ms: float | None) -> str:
    """Return a model's line in `models:`."""
    promise = "" if slo_ms is None else f", slo_ms: {slo_ms:g}"
    return f"  - {{path: {json.dumps(path)}{promise}}}\n"


def model_text(target: Target, found: Signature, sizes: Mapping[str, int], said: str) -> str:
    """Return the model.yaml of a target. `said`: where it is from, for its first line."""
    batch_max = batch_max_of(found)
    variant = f"name: default, backend: {target.backend}"
    options = options_of(sizes)
    if target.backend == "remote":
        url, model = parts_of(target.artifact)
        options = {URL: url, MODEL: model, **options}
    elif target.backend != "python":
        variant += f", artifact: {json.dumps(found.artifact or target.artifact)}"
    if options:
        variant += f", options: {json.dumps(options)}"
    code = f"code: {json.dumps(target.artifact)}\n" if target.backend == "python" else ""
    return (
        f"# {said}. docs/models.md explains the keys.\n"
        f"name: {target.name}\nbatch_max: {batch_max}\n{code}"
        f"inputs:\n{_tensors(found.inputs, batch_max)}"
        f"outputs:\n{_tensors(found.outputs, batch_max)}"
        f"variants:\n  - {{{variant}}}\n"
        + "".join(f"{key}: {json.dumps(value)}\n" for key, value in found.keys.items())
    )


def _tensors(tensors: Sequence[Tensor], batch_max: int) -> str:
    lines = []
    for each, spec in zip(tensors, specs_of(tensors, batch_max), strict=True):
        shape = _shape(spec)[0 if batch_max else 1 :]
        more = f", labels: {json.dumps(each.labels)}" if each.labels else ""
        more += ", optional: true" if each.optional else ""
        told = f"name: {json.dumps(each.name)}, datatype: {each.datatype}, shape: [{', '.join(shape)}]"
        lines.append(f"  - {{{told}{more}}}\n")
    return "".join(lines)


def _lines(target: Target, found: Signature, slo: tuple[float | None, float], file: Path) -> list[str]:
    asked, stated = slo
    batch_max = batch_max_of(found)
    few = {0: "one request at a time", 1: "one row at a time"}
    batches = few.get(batch_max, f"up to {batch_max} rows at once")
    takes = ", ".join(map(_told, specs_of(found.inputs, batch_max)))
    answers = ", ".join(map(_told, specs_of(found.outputs, batch_max)))
    takes_ms = f"a row takes {found.latency_ms:.2g} ms here"
    times = "the least" if stated == SLOS_MS[0] else f"at least {SLO_FACTOR} times as much"
    why = "as stated" if asked else f"{times}; --slo states another"
    return [
        f"{target.text}: takes {takes}; answers {answers}; {batches}",
        f"{takes_ms}: the SLO is {stated:g} ms ({why})",
        f"clients that can wait send `x-tier: {BULK}` and have {BULK_FACTOR * stated:g} ms",
        f"each core is a slice; the settings are in {file}",
    ]


def _told(spec: TensorSpec) -> str:
    return f"{spec.name} ({spec.datatype} [{', '.join(_shape(spec))}])"


def _shape(spec: TensorSpec) -> list[str]:
    names = spec.names or ("",) * len(spec.shape)
    return [name or str(side) for name, side in zip(names, spec.shape, strict=True)]
