"""`python:` of a slice: another Python for its worker, asked once whether a worker can run in it."""

import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Final

from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, shown

PYTHON_MIN: Final = (3, 11)
PACKAGES: Final = ("numpy", "orjson")
"""All that a worker imports beside the standard library and its models."""
ASK_S: Final = 30.0
_ASKED: Final = f"""
import importlib.util, sys
print(*sys.version_info[:2], *(name for name in {PACKAGES!r} if importlib.util.find_spec(name) is None))
"""


def read_interpreter(findings: Findings, loc: Loc, stated: str | None) -> str:
    """Return the path of the program; "" if none is stated, or if no worker can run in it."""
    if stated is None:
        return ""
    path = Path(os.path.abspath(findings.document.file.parent / Path(stated).expanduser()))
    if reason := unfit(path):
        findings.add(loc, f"{shown(stated)} {reason}")
        return ""
    return str(path)


def unfit(path: Path) -> str:
    """Return why no worker can run in the interpreter, to follow its name; "" if one can."""
    if shutil.which(path) is None:
        return "is no program; expected the path of a Python, such as venvs/old/bin/python"
    try:
        _ask(str(path))
    except _UnfitError as error:
        return str(error)
    return ""


class _UnfitError(Exception):
    """No worker can run in the interpreter; the text says why, and follows its name."""


@lru_cache(maxsize=64)
def _ask(path: str) -> None:
    """Ask the interpreter for its version and packages. _UnfitError if a worker cannot run in it; that is
    asked again next time, since packages may be installed meanwhile."""
    command = [path, "-I", "-c", _ASKED]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnfitError(f"does not run: {error}") from None
    said = ended.stdout.split()
    if ended.returncode or len(said) < len(PYTHON_MIN):
        why = ended.stderr.strip().splitlines()[-1:] or [f"it exited with {ended.returncode}"]
        raise _UnfitError(f"is no Python that runs: {why[0][:200]}")
    version, missing = tuple(map(int, said[:2])), said[2:]
    if version < PYTHON_MIN:
        expected = ".".join(map(str, PYTHON_MIN))
        raise _UnfitError(f"is Python {version[0]}.{version[1]}; expected {expected} or later")
    if missing:
        packages = " ".join(PACKAGES)
        raise _UnfitError(f"has no {' and no '.join(missing)}; try `{path} -m pip install {packages}`")
