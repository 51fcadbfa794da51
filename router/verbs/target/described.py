"""The signature of a model, asked of a process of its own: a file may be large, print, or break it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from router.verbs.target.errors import TargetError
from router.verbs.target.target import Target
from serving.runtime.environment import environment, python_command
from serving.worker.backends.signature import Signature, Tensor, options_of


def signature_of(target: Target, sizes: Mapping[str, int], python: str = "") -> Signature:
    """Return what the model takes and answers. `sizes`: of free dimensions, by name. `python`: the
    interpreter of the process, "" for this one's.

    Raises TargetError with the model's own error if it cannot be loaded, or does not run.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        told = Path(folder, "signature.json")
        command = [*python_command("serving.worker.describe", python), target.backend, target.artifact]
        command += ["--options", json.dumps(options_of(sizes)), "--to", str(told)]
        given = environment({}, os.environ, own_python=not python)
        code = subprocess.run(command, check=False, env=given).returncode  # noqa: S603  our own module
        if not told.exists():
            raise TargetError(f"{target.text}: the process that loaded it ended with {code}")
        found = json.loads(told.read_text("utf-8"))
    if "error" in found:
        raise TargetError(f"{target.text}: {found['error']}")
    tensors = {key: tuple(map(_tensor, found[key])) for key in ("inputs", "outputs")}
    return Signature(**{**found, **tensors})


def _tensor(found: dict[str, Any]) -> Tensor:
    """Return a tensor of JSON, which has lists for tuples."""
    lists: dict[str, Any] = {key: tuple(found[key]) for key in ("dimensions", "labels")}
    return Tensor(**{**found, **lists})
