"""Models in files of torch: of `torch.export.save` or AOTInductor (.pt2), and of `torch.jit.save` (.pt).

Such a file has the graph, or what was compiled of it, and the weights, and needs no code of the model. Torch
is imported with the first model that needs it.
"""

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

from serving.values.specs import ParameterValue, TensorSpec
from serving.worker.backends.checking import artifact_of
from serving.worker.backends.contract import LoadedModel
from serving.worker.backends.signature import Signature, SignatureError, Tensor, sample_of, sizes_of, unstated
from serving.worker.backends.torch_settings import TorchSettings
from serving.worker.backends.unbatched import as_ordered
from serving.worker.frames.arrays import Arrays
from serving.worker.frames.orders import LoadOrder

DATATYPES: Final[Mapping[str, str]] = {
    "torch.bool": "BOOL", "torch.uint8": "UINT8", "torch.int8": "INT8", "torch.int16": "INT16",
    "torch.int32": "INT32", "torch.int64": "INT64", "torch.float16": "FP16", "torch.float32": "FP32",
    "torch.float64": "FP64",
}  # fmt: skip
PACKAGE, SCRIPT = "a package of AOTInductor", "TorchScript"
COMPILED, ABOUT = "/data/aotinductor/", "wrapper_metadata.json"
"""Where a package of AOTInductor has its code, and the end of the file that says what it is for."""
MISSING: Final = "torch is not installed here; try `pip install torch`"


class ExportedModel:
    """A program with the outputs that the model's spec names. `run` takes its inputs by place; `tensors` are
    these inputs."""

    def __init__(
        self, torch: Any, run: Any, tensors: Sequence[Tensor], order: LoadOrder, device: str
    ) -> None:
        self._torch = torch
        self._run = run
        self._inputs = [each.name for each in order.inputs]
        self._outputs = [each.name for each in order.outputs]
        self._device = device
        self._order = order
        self._tensors = [replace(each, name=name) for each, name in zip(tensors, self._inputs, strict=True)]

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:  # noqa: ARG002  exported programs take none
        """Return the outputs by name."""
        given = [self._torch.from_numpy(inputs[name]).to(self._device) for name in self._inputs]
        found = self._run(*given)
        flat = self._torch.utils._pytree.tree_leaves(found)  # noqa: SLF001  as torch.export counts its outputs
        return {name: each.cpu().numpy() for name, each in zip(self._outputs, flat, strict=True)}

    def sample(self, rows: int, size: int) -> Arrays:
        """See `sample_of`."""
        return sample_of(self._order, self._tensors, rows, size)


class TorchExportBackend:
    """It executes no code of a folder, so there is nothing to forget. `device`: as torch names it."""

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self._settings = TorchSettings(threads)
        self._device = device

    def prepare(self, order: LoadOrder) -> None:  # noqa: ARG002
        """Import torch. Raises ModuleNotFoundError if it is not installed."""
        self._settings.torch = _import_torch()
        self.settle()

    def settle(self) -> None:
        """Set what torch keeps by thread, once a model has imported it."""
        self._settings.settle()

    def keep(self, orders: Collection[LoadOrder]) -> None: ...

    def load(self, order: LoadOrder) -> LoadedModel:
        """Load a file. Raises FileNotFoundError if the variant names none, ValueError if model.yaml states
        another number of tensors than the file, and what torch raises of a broken file."""
        file = artifact_of(order, "a .pt2 file")
        self.prepare(order)
        torch = _import_torch()
        if silent := kind_of(file):
            tensors = [_stated(each, order) for each in order.inputs]
            run = (_packaged if silent == PACKAGE else _scripted)(torch, file, self._device)
            return as_ordered(ExportedModel(torch, run, tensors, order, self._device), order)
        program = _program(torch, file)
        for what, specs, there in (
            ("inputs", order.inputs, _inputs(program)),
            ("outputs", order.outputs, _outputs(program)),
        ):
            if len(specs) != len(there):
                raise ValueError(f"model.yaml has {len(specs)} {what}; {file} has {len(there)}")
        if self._device != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, self._device)
        model = ExportedModel(torch, program.module(), _inputs(program), order, self._device)
        return as_ordered(model, order)


def signature_of(artifact: str, options: Mapping[str, ParameterValue]) -> Signature:
    """Return what a file takes and answers. Raises SignatureError if Penstock cannot serve that."""
    if silent := kind_of(Path(artifact)):
        raise SignatureError(
            f"is {silent}, which does not say what it takes; "
            "expected a folder with a model.yaml that does, and `backend: torch_export` in it"
        )
    program = _program(_import_torch(), Path(artifact))
    found = Signature(tuple(_inputs(program)), tuple(_outputs(program)))
    unstated(found, sizes_of(tuple(options.items())))
    return found


def _import_torch() -> ModuleType:
    try:
        import torch
        import torch.export
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    return torch


def kind_of(file: Path) -> str:
    """Return what wrote a file that does not say what it takes: it holds code in place of a graph. Return ""
    for a file of torch.export.save, and for any other file."""
    try:
        with ZipFile(file) as archive:
            names = archive.namelist()
    except (BadZipFile, OSError):
        return ""  # what loads it says so
    if any(COMPILED in name for name in names):
        return PACKAGE
    return SCRIPT if any(name.endswith("/constants.pkl") for name in names) else ""


def _packaged(_torch: Any, file: Path, device: str) -> Any:
    kind, _, number = device.partition(":")
    with ZipFile(file) as archive:
        told = next(each for each in archive.namelist() if COMPILED in each and each.endswith(ABOUT))
        made_for = json.loads(archive.read(told)).get("AOTI_DEVICE_KEY", kind)
    if made_for != kind:
        raise ValueError(f"{file} is compiled for {made_for}, and the slice is on {device}")
    import torch._inductor as inductor

    try:
        return inductor.aoti_load_package(str(file), device_index=-1 if kind == "cpu" else int(number or 0))
    except RuntimeError as error:
        raise SignatureError(f"{file} cannot be loaded here: {str(error).splitlines()[0]}") from error


def _scripted(torch: Any, file: Path, device: str) -> Any:
    with warnings.catch_warnings():  # torch.jit is deprecated, and many a file is written by it
        warnings.simplefilter("ignore")
        try:
            return torch.jit.load(str(file), map_location=device).eval()
        except RuntimeError as error:
            raise SignatureError(f"{file} cannot be loaded here: {str(error).splitlines()[0]}") from error


def _stated(spec: TensorSpec, order: LoadOrder) -> Tensor:
    """Return an input as model.yaml states it; a free size has its name, or one of its own."""
    names = spec.names or ("",) * len(spec.shape)
    sides = [
        side if side > 0 else name or f"{spec.name}.{at}"
        for at, (side, name) in enumerate(zip(spec.shape, names, strict=True))
    ]
    return Tensor(spec.name, spec.datatype, tuple(sides[1:] if order.unbatched else sides))


def _program(torch: Any, file: Path) -> Any:
    try:
        return torch.export.load(file)
    except (BadZipFile, RuntimeError, ValueError) as error:
        raise SignatureError(f"{file} is no file of torch.export.save: {error}") from error


def _inputs(program: Any) -> list[Tensor]:
    return [_tensor(program, name, name) for name in program.graph_signature.user_inputs]


def _outputs(program: Any) -> list[Tensor]:
    names = program.graph_signature.user_outputs
    called = ["output"] if len(names) == 1 else [f"output{number}" for number in range(len(names))]
    return [_tensor(program, name, label) for name, label in zip(names, called, strict=True)]


def _tensor(program: Any, name: str, label: str) -> Tensor:
    node = next((each for each in program.graph.nodes if each.name == name), None)
    value: Any = None if node is None else node.meta.get("val")
    datatype = DATATYPES.get(str(getattr(value, "dtype", "")))
    if datatype is None:
        raise SignatureError(f"{name!r} is no tensor of a datatype of the protocol")
    return Tensor(label, datatype, tuple(_side(each) for each in value.shape))


def _side(size: Any) -> int | str:
    return size if type(size) is int else str(size)
