"""Models written in Python: `<folder>/model.py` with `load(artifact, options) -> Model`.

Torch is what most of them compute with, yet this file never imports it: it costs 1.5 s and a
worker of plain numpy models starts in a tenth of that. It is set up once a model has imported it.
"""

import importlib.util
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import cast

from serving.worker.backends.contract import Model
from serving.worker.orders import LoadOrder


class PythonBackend:
    """Loads each folder's code once, however many variants come from it.

    `device`: "cpu", or the torch name of another; a model is told that one as its option "device".
    """

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self._threads = threads
        self._device: dict[str, object] = {} if device == "cpu" else {"device": device}
        self._modules: dict[Path, ModuleType] = {}
        self._torch_is_set = False

    def load(self, order: LoadOrder) -> Model:
        """The variant's model; AttributeError or FileNotFoundError where the folder keeps no such code."""
        module = self._modules.get(order.folder)
        if module is None:
            module = self._modules[order.folder] = _execute(order.folder, len(self._modules))
        self._set_torch()
        load = getattr(module, "load", None)
        if not callable(load):
            raise AttributeError(f"{order.folder / 'model.py'} has no function load(artifact, options)")
        model = cast(Callable[[Path | None, dict[str, object]], Model], load)(
            order.artifact, {**dict(order.options), **self._device}
        )
        self._set_torch()
        for method in ("predict", "sample"):
            if not callable(getattr(model, method, None)):
                raise AttributeError(f"what {order.folder / 'model.py'} loads has no method {method}")
        return model

    def _set_torch(self) -> None:
        torch = sys.modules.get("torch")
        if torch is None or self._torch_is_set:
            return
        torch.set_num_threads(self._threads)
        with suppress(RuntimeError):  # the model's own code has set it or run operators in parallel
            torch.set_num_interop_threads(1)
        torch.set_grad_enabled(False)
        self._torch_is_set = True


def _execute(folder: Path, number: int) -> ModuleType:
    path = folder / "model.py"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; a model's folder keeps its code in model.py")
    # The number keeps apart two folders of the same name.
    name = f"penstock_model_{number}_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and torch look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
