"""From the command line of `penstock serve` to the settings file that it serves."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from router.settings.machine.interpreters import unfit
from router.settings.values.problems import fault
from router.verbs.target.environments import python_for
from router.verbs.target.errors import TargetError
from router.verbs.target.options import TargetOptions
from router.verbs.target.target import is_settings, named, read_target
from router.verbs.target.writing import write_settings

_SLO = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)?")
_DIM = re.compile(r"([^=\s]+)=(\d+)")


def settings_file(text: str | None, config: Path, options: TargetOptions) -> Path:
    """Return the settings to serve: `config`, or those that it writes for the model that `text` names, and
    says so. Raises TargetError if that model, or an option, is none."""
    if text is None or is_settings(text):
        if options != TargetOptions():
            raise TargetError(
                "--slo, --dim, --save, --python, --requirements and --name are for one model; got none, "
                "expected `penstock serve MODEL`"
            )
        return config if text is None else Path(text)
    slo_ms, sizes = slo_ms_of(options.slo), _sizes(options.dims)
    target = named(read_target(text), options.name)
    written = write_settings(target, slo_ms, sizes, options.save, _python(options))
    for line in written.lines:
        typer.echo(line)
    return written.settings


def _python(options: TargetOptions) -> str:
    """Return the whole path of the interpreter, "" for none. Raises TargetError if no worker runs in it, or
    if it cannot be made."""
    path = options.python
    if options.requirements is not None:
        if path is not None:
            raise TargetError("--python and --requirements are two environments; expected one of them")
        path = python_for(options.requirements)
    if path is None:
        return ""
    if reason := unfit(path):
        raise TargetError(f"--python: {path} {reason}")
    return os.path.abspath(path)


def slo_ms_of(text: str | None) -> float | None:
    """Return a time in ms, None for no text. Raises TargetError if it is no time."""
    if text is None:
        return None
    found = _SLO.fullmatch(text.strip())
    if found is None or float(found[1]) == 0:
        raise TargetError(fault("--slo is no time", text, "a time such as 50ms or 2s"))
    return float(found[1]) * (1000 if found[2] == "s" else 1)


def _sizes(texts: Sequence[str]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        said = _DIM.fullmatch(text.strip())
        if said is None or int(said[2]) == 0:
            raise TargetError(fault("--dim is no size", text, "NAME=SIZE, such as seq=128"))
        found[said[1]] = int(said[2])
    return found
