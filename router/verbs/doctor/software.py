"""What Python the gateway runs on, and whether its decisions are machine code."""

import shutil
import sys
from collections.abc import Callable
from typing import Final

from router.verbs.doctor.finding import Finding, fault, ok, warning
from router.verbs.doctor.machine import Machine
from serving.compiled import folder

PYTHON_MIN: Final = (3, 11)
_COMPILERS: Final = ("cc", "gcc", "clang")


def check_python(version: tuple[int, int, int] | None = None) -> Finding:
    """Return whether the interpreter is one that Penstock knows."""
    found = version or sys.version_info[:3]
    shown = ".".join(map(str, found))
    if found[:2] < PYTHON_MIN:
        least = ".".join(map(str, PYTHON_MIN))
        return fault(
            "python", f"Python is {shown}, and {least} is needed", f"install Python {least} or later"
        )
    return ok("python", f"Python is {shown}")


def check_compiled(
    machine: Machine,
    compiled: bool | None = None,
    which: Callable[[str], str | None] = shutil.which,
) -> Finding:
    """Return whether decisions of these sources were compiled and will be used."""
    if machine.environ.get("PENSTOCK_INTERPRETED"):
        sentence = "decisions are interpreted, at twice the cost: PENSTOCK_INTERPRETED is set"
        return warning("compiled", sentence, "unset PENSTOCK_INTERPRETED")
    if folder().is_dir() if compiled is None else compiled:
        return ok("compiled", "decisions are machine code")
    sentence = "decisions are interpreted, at twice the cost"
    if not any(which(each) for each in _COMPILERS):
        sentence, cure = (
            f"{sentence}, and no C compiler is there",
            "install gcc, then python -m serving.compiled",
        )
        return warning("compiled", sentence, cure)
    return warning("compiled", sentence, "python -m serving.compiled")
