"""Models written in Python: `<folder>/model.py` with `load(artifact, options) -> Model`, or a shorter form.

Torch is what most of them compute with, yet this file never imports it: it costs 1.5 s and a
worker of plain numpy models starts in a tenth of that. It is set up once a model has imported it.
"""

import importlib.util
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from itertools import count
from pathlib import Path
from threading import Lock
from types import CodeType, ModuleType
from typing import Final, cast

from serving.values.specs import ParameterValue
from serving.worker.backends.adapting import OUTPUT, ShortModel, has_short_form, short_form
from serving.worker.backends.contract import MODULES, LoadedModel
from serving.worker.backends.samples import obstacle, warm_rows
from serving.worker.backends.signature import Signature, SignatureError, sizes_of, tensors_of, unstated
from serving.worker.backends.torch_settings import TorchSettings
from serving.worker.backends.unbatched import Unbatched
from serving.worker.device.compiling import GRAPHS, TORCH, CapturedPredict, GpuGraphs, compiled
from serving.worker.device.ports import DeviceModel, Streams
from serving.worker.device.running import TensorModel
from serving.worker.device.streams import streams_on
from serving.worker.frames.orders import LoadOrder

ROWS: Final = (1, 2)
"""Of the runs that show which dimension is the batch."""
_numbers = count()  # of what was executed: names of modules are never used again


MakeStreams = Callable[[ModuleType, str], Streams]
"""Return the streams of a device, given torch and the device's name."""


class PythonBackend:
    """Executes each folder's code once a revision, however many variants come from it.

    `device`: "cpu", or the torch name of another device; a model gets that name as its option "device".
    """

    def __init__(self, threads: int, device: str = "cpu", make_streams: MakeStreams = streams_on) -> None:
        self._settings = TorchSettings(threads)
        self._where = device
        self._make_streams = make_streams
        self._streams: Streams | None = None
        self._device: dict[str, object] = {} if device == "cpu" else {"device": device}
        self._modules: dict[tuple[Path, str], ModuleType] = {}
        self._locks: dict[tuple[Path, str], Lock] = {}

    def prepare(self, order: LoadOrder) -> None:
        """Load the folder's code once. Raises FileNotFoundError if the folder holds no code."""
        key = (_file(order), order.revision)
        with self._locks.setdefault(key, Lock()):  # two variants may be loaded at once
            if key not in self._modules:
                self._modules[key] = _execute(_file(order), next(_numbers))

    def load(self, order: LoadOrder) -> LoadedModel:
        """Load a model. Raises AttributeError if the folder's code is no model's."""
        self.prepare(order)
        self._settle_newly()
        made = self._maker(order)
        # Not named here: see `Replica.drop`.
        options = {**dict(order.options), **self._device}
        if order.unbatched:
            return self._checked(Unbatched(made(order.artifact, options)), order)
        return self._checked(made(order.artifact, options), order)

    def _maker(self, order: LoadOrder) -> Callable[[Path | None, dict[str, object]], object]:
        """Return the code's `load`, or one for its short form."""
        module = self._modules[_file(order), order.revision]
        load = getattr(module, "load", None)
        if callable(load):
            return cast(Callable[[Path | None, dict[str, object]], object], load)
        if order.decoupled or not has_short_form(module):
            expected = "no function load(artifact, options)"
            shorter = "" if order.decoupled else ", no class Model and no function predict"
            raise AttributeError(f"{_file(order)} has {expected}{shorter}")
        output = order.outputs[0].name if order.outputs else OUTPUT
        sizes = sizes_of(order.options)
        return lambda _artifact, _options: ShortModel(short_form(module), output, sizes)

    def constants(self, order: LoadOrder) -> Signature:
        """Return what the code states of itself by constants: SLO_MS and BATCH_MAX. Raises SignatureError
        for values that cannot be."""
        module = self._modules[_file(order), order.revision]
        slo_ms, batch_max = getattr(module, "SLO_MS", 0), getattr(module, "BATCH_MAX", None)
        if not isinstance(slo_ms, int | float) or slo_ms < 0:
            raise SignatureError(f"SLO_MS is {slo_ms!r}; expected milliseconds, such as SLO_MS = 50")
        if batch_max is not None and (type(batch_max) is not int or batch_max < 1):
            raise SignatureError(f"BATCH_MAX is {batch_max!r}; expected rows, such as BATCH_MAX = 64")
        return Signature((), (), slo_ms=float(slo_ms), rows_max=batch_max)

    def _checked(self, model: object, order: LoadOrder) -> LoadedModel:
        self._settle_newly()  # its loading may have imported torch
        loaded = f"what {_file(order)} loads"
        if order.decoupled and not callable(getattr(model, "stream", None)):
            raise AttributeError(
                f"{loaded} has no method stream(inputs, parameters), which decoupled: true needs"
            )
        tensors = not order.decoupled and callable(getattr(model, "predict_device", None))
        if not (tensors or order.decoupled or callable(getattr(model, "predict", None))):
            raise AttributeError(f"{loaded} has no method predict, and no predict_device")
        sample = getattr(model, "sample", None)
        if sample is None and (told := obstacle(order.inputs, order.hint)):
            raise AttributeError(f"{loaded} has no method sample(rows, size), and none can be made: {told}")
        if sample is not None and not callable(sample):
            raise AttributeError(f"{loaded} has a sample that is no method sample(rows, size)")
        if tensors:
            return self._of_tensors(model, order)
        if order.compile != "none" and self._where != "cpu":
            raise AttributeError(
                f"{loaded} has no method predict_device, which compile: {order.compile} needs"
            )
        return cast(LoadedModel, model)

    def _of_tensors(self, model: object, order: LoadOrder) -> TensorModel:
        torch = self._settings.torch
        if torch is None:
            raise AttributeError(f"{_file(order)} has predict_device, but imports no torch")
        if self._streams is None:
            self._streams = self._make_streams(torch, self._where)
        specs, types = (order.inputs, order.outputs), (torch.bfloat16, torch.int16)
        found = TensorModel(cast(DeviceModel, model), self._streams, specs, types)
        if self._where != "cpu" and order.compile == TORCH:
            found.predict_device = compiled(torch, found.predict_device, 2 * len(warm_rows(order.batch_max)))
        elif self._where != "cpu" and order.compile == GRAPHS:
            found.predict_device = CapturedPredict(found.predict_device, GpuGraphs(torch))
        return found

    def _settle_newly(self) -> None:
        # By the thread that loads. Another load beside it may be at the import yet: then this model has not
        # imported torch, and the other one settles it.
        torch = sys.modules.get("torch")
        if torch is not None and not getattr(getattr(torch, "__spec__", None), "_initializing", False):
            self._settings.torch = torch
        self.settle()

    def settle(self) -> None:
        """Set what torch keeps by thread, if a model has imported it."""
        self._settings.settle()

    def keep(self, orders: Collection[LoadOrder]) -> None:
        """Forget the code of other orders: the next load from another folder or revision executes its file
        again."""
        kept = {(_file(order), order.revision) for order in orders}
        for key in self._modules.keys() - kept:
            _forget(self._modules.pop(key).__name__)
            self._locks.pop(key, None)


class _Source(SourceFileLoader):
    """Compiles what the file holds now: what Python keeps compiled it tells by whole seconds and size."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  the loader's
        return self.source_to_code(self.get_data(self.path), self.path)


def _file(order: LoadOrder) -> Path:
    return order.code or order.folder / "model.py"


def _execute(path: Path, number: int) -> ModuleType:
    """Execute a file as a package of its own, so that it imports its neighbours: `from . import layers`."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; a model's folder keeps its code in model.py")
    # The number keeps apart two folders of the same name, and two revisions of one.
    name = f"{MODULES}{number}_{path.parent.name if path.name == 'model.py' else path.stem}"
    neighbours = [str(path.parent)]
    loader = _Source(name, str(path))
    spec = importlib.util.spec_from_file_location(
        name, path, loader=loader, submodule_search_locations=neighbours
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and torch look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        _forget(name)
        if isinstance(error, ModuleNotFoundError) and _is_beside(path, error.name):
            hint = f"{error}; it is beside {path}: try `from . import {error.name}`"
            raise ModuleNotFoundError(hint, name=error.name) from error
        raise
    return module


def _is_beside(path: Path, name: str | None) -> bool:
    return name is not None and any((path.parent / name).with_suffix(each).exists() for each in (".py", ""))


def _forget(name: str) -> None:
    """Remove a model's module, and what it imported of its neighbours."""
    for each in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        del sys.modules[each]


def signature_of(artifact: str, options: Mapping[str, ParameterValue]) -> Signature:
    """Return what a file's model takes and answers, found by runs of its sample with one row and with two.

    Raises SignatureError if it has no sample, or if rows do not come first.
    """
    file = Path(artifact)
    order = LoadOrder(
        0, file.stem, file.parent, "default", None, tuple(options.items()), (), (), (0, 0), code=file
    )
    backend = PythonBackend(1)
    model = backend.load(order)
    stated = backend.constants(order)
    annotated = model.annotated if isinstance(model, ShortModel) else ()
    unstated(Signature(annotated, ()), sizes_of(order.options))
    sample = getattr(model, "sample", None)
    if not callable(sample):
        raise SignatureError(
            "has no function sample(rows), and one run of it shows shapes and datatypes; "
            "expected arrays by name, such as {'x': np.zeros((rows, 4), np.float32)}, or annotations: "
            "def predict(x: Annotated[np.ndarray, 'FP32', 4])"
        )
    inputs = [sample(rows, 0) for rows in ROWS]
    outputs = [model.predict(dict(each), {}) for each in inputs]
    return replace(stated, inputs=annotated or tensors_of(inputs, ROWS), outputs=tensors_of(outputs, ROWS))
