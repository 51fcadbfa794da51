"""Opens torch's library beside batches.

`import torch` maps 400 MB of machine code and binds it, which Python does without letting go of the
interpreter: the batches of models that need no torch would stand still meanwhile. Opened before, by a call
that lets go, it is found by the import. `python -m loadtests.core.loading --serve simple:default --load
digits:cnn
--rounds 1`, longest trip, twice each on a busy machine: 769 and 639 ms without it, 58 and 74 ms with it.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

LIBRARY: Final = Path("lib", "libtorch.so")
"""In torch's folder: what needs all the others."""


class TorchOpener(MetaPathFinder):
    """Finds nothing: it acts as the first `import torch` begins, in any code."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  the interface's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return None, always. The import itself complains of a library that is not there."""
        if fullname == "torch":
            sys.meta_path.remove(self)
            found = PathFinder.find_spec(fullname)
            if found is not None and found.origin is not None:
                # As a call of a C function: `ctypes.CDLL` would hold on to the interpreter, too.
                ctypes.CDLL(None).dlopen(str(Path(found.origin).parent / LIBRARY).encode(), os.RTLD_NOW)
        return None


def open_torch_beside() -> None:
    """Open torch's library beside batches from now on, in this process, as `import torch` begins."""
    sys.meta_path.insert(0, TorchOpener())
