"""An environment for one model: a Python with what its requirements file names, made once."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

import typer

from router.settings.machine.interpreters import PACKAGES
from router.verbs.target.errors import TargetError
from router.verbs.target.writing import HOME

READY: Final = "ready"
"""A file of an environment that has all its packages."""


def python_for(requirements: Path) -> Path:
    """Return the interpreter of an environment with these requirements, and with what a worker imports. It
    is made once for each content of the file; included files count by their names alone.

    Raises TargetError if the file is not there, or with pip's last line if pip cannot install it.
    """
    try:
        content = requirements.read_bytes()
    except OSError as error:
        raise TargetError(f"--requirements: {requirements} cannot be read: {error.strerror}") from None
    digest = sha256(f"{sys.version} {PACKAGES}".encode() + content).hexdigest()[:12]
    home = HOME / "environments" / digest
    python = home / "bin" / "python"
    if (home / READY).exists():
        return python
    typer.echo(f"{requirements}: its packages are installed into {home}, once")
    _run([sys.executable, "-m", "venv", "--clear", str(home)], requirements)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--requirement", str(requirements), *PACKAGES], requirements)
    (home / READY).touch()
    return python


def _run(command: list[str], requirements: Path) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  pip and venv
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR: ")]
        said = (errors or ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"])[-1]
        raise TargetError(f"--requirements: {requirements} cannot be installed: {said[:300]}")
