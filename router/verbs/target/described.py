"""The signature of a model, asked of a process of its own: a file may be large, print, or break it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from router.verbs.target.errors import TargetError
from router.verbs.target.target import Target
from serving.runtime.environment import environment, python_command
from serving.worker.backends.signature import Signature, options_of, unpack


def signature_of(
    target: Target, sizes: Mapping[str, int], python: str = "", stated: Signature | None = None
) -> Signature:
    """Return what the model takes and answers, and what a row takes. `sizes`: of free dimensions, by name.
    `python`: the interpreter of the process, "" for this one's. `stated`: what the model takes and answers,
    where that is known.

    Raises TargetError with the model's own error if it cannot be loaded, or does not run.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        told = Path(folder, "signature.json")
        command = [*python_command("serving.worker.describe", python), target.backend, target.artifact]
        command += ["--options", json.dumps(options_of(sizes)), "--to", str(told)]
        if stated is not None:
            Path(folder, "stated.json").write_text(json.dumps(asdict(stated)), "utf-8")
            command += ["--stated", str(Path(folder, "stated.json"))]
        given = environment({}, os.environ, own_python=not python)
        code = subprocess.run(command, check=False, env=given).returncode  # noqa: S603  our own module
        if not told.exists():
            raise TargetError(f"{target.text}: the process that loaded it ended with {code}")
        found = json.loads(told.read_text("utf-8"))
    if "error" in found:
        raise TargetError(f"{target.text}: {found['error']}")
    return unpack(found)
