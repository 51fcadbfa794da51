"""Runs a module in an interpreter that has no Penstock: `PYTHON -P elsewhere.py ROOT MODULE ARGUMENTS`.

Of ROOT, the interpreter finds the package `serving` alone. So no package of the gateway's environment takes
the place of one in the interpreter's own. This file imports nothing of Penstock before that.
"""

import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

PACKAGE = "serving"


class OnlyServing:
    """Finds the package in one folder, and nothing else; Python finds its modules by the package's path."""

    def __init__(self, root: str) -> None:
        self._root = root

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  the interface's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the package as ROOT has it; None of every other name."""
        return PathFinder.find_spec(fullname, [self._root]) if fullname == PACKAGE else None


if __name__ == "__main__":
    sys.meta_path.insert(0, OnlyServing(sys.argv.pop(1)))
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
