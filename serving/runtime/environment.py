"""The environment of the processes that the gateway starts."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

THREAD_POOLS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ONE_THREAD: Final = dict.fromkeys(THREAD_POOLS, "1")

_PACKAGES = str(Path(__file__).resolve().parents[2])


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """The gateway's own, with this very code first on the path, and with these changes; None takes a variable
    away. Start Python with `-P`: the files of the working directory could be named as modules are."""
    paths = [_PACKAGES, os.environ.get("PYTHONPATH", "")]
    found: dict[str, str | None] = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    found.update(changes)
    return {name: value for name, value in found.items() if value is not None}
