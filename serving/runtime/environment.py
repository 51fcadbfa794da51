"""The environment of the processes that the gateway starts."""

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from serving.worker.process import elsewhere

THREAD_POOLS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ONE_THREAD: Final = dict.fromkeys(THREAD_POOLS, "1")

USUAL: Final = frozenset(
    ("HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LD_PRELOAD",
     "LOGNAME", "PATH", "PENSTOCK_INTERPRETED", "TMPDIR", "TZ", "USER", "XDG_CACHE_HOME")
)  # fmt: skip
USUAL_PREFIXES: Final = (
    "ATEN_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GOMP_", "KMP_", "LC_", "MALLOC_", "MKL_", "NCCL_",
    "NUMEXPR_", "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TOKENIZERS_", "TORCH_",
    "TRANSFORMERS_",
)  # fmt: skip
"""Of the gateway's variables, those that every process gets: where things lie, the language, and how numeric
libraries compute. None of them holds a secret; tokens, passwords, keys and proxies are not among them."""

PACKAGES: Final = str(Path(__file__).resolve().parents[2])
"""The folder that has this package."""
_OF_A_PYTHON: Final = ("PYTHONHOME", "PYTHONPATH")


def is_usual(name: str) -> bool:
    """Return whether every process that the gateway starts gets this variable of the gateway's."""
    return name in USUAL or name.startswith(USUAL_PREFIXES)


def environment(
    changes: Mapping[str, str | None], inherit: Collection[str] = (), own_python: bool = True
) -> dict[str, str]:
    """Return the usual variables of the gateway's own and those that are named, with this very code first on
    the path, and with these changes; None takes a variable away. Start Python with `-P`: the files of the
    working directory could be named as modules are. Without `own_python`, for an interpreter that is not the
    gateway's, nothing of this code's or the gateway's paths is in it."""
    own = {name: value for name, value in os.environ.items() if is_usual(name) or name in inherit}
    found: dict[str, str | None] = {**own, **changes}
    if own_python:
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [PACKAGES, found.get("PYTHONPATH")]))
    else:
        found |= {name: changes.get(name) for name in _OF_A_PYTHON}
    return {name: value for name, value in found.items() if value is not None}


def python_command(module: str, python: str = "") -> list[str]:
    """Return the command that runs a module of `serving`; `python`: another interpreter than the gateway's,
    which then finds nothing else of this code and of its environment."""
    if not python:
        return [sys.executable, "-P", "-m", module]
    return [python, "-P", elsewhere.__file__, PACKAGES, module]
