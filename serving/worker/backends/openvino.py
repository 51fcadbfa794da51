"""Models of OpenVINO: the variant's artifact is an .xml with its .bin beside it, or an ONNX file.

OpenVINO is imported with the first model that needs it. The extra `[openvino]` brings it.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from serving.values.specs import ParameterValue
from serving.worker.backends.checking import artifact_of, check_tensors
from serving.worker.backends.contract import LoadedModel
from serving.worker.backends.signature import Signature, SignatureError, Tensor, sample_of, sizes_of, unstated
from serving.worker.backends.unbatched import as_ordered
from serving.worker.frames.arrays import Arrays
from serving.worker.frames.orders import LoadOrder

DATATYPES: Final[Mapping[str, str]] = {
    "boolean": "BOOL", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "i8": "INT8",
    "i16": "INT16", "i32": "INT32", "i64": "INT64", "f16": "FP16", "f32": "FP32", "f64": "FP64",
}  # fmt: skip
"""OpenVINO's names of element types. It gives no bfloat16 to Python, and texts need tokenizers of its own."""
MISSING: Final = "OpenVINO is not installed here; try `pip install openvino`"
PRECISION: Final = "precision"
"""The option that says how it computes. Without it, fp32: by itself, OpenVINO takes bf16 where a CPU can."""
PRECISIONS: Final[Mapping[str, str]] = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}
TEXT_CHARS_MAX: Final = 300
"""Of what OpenVINO says of a file."""


class OpenVinoModel:
    """A compiled model, with the outputs that the model's spec names."""

    def __init__(self, compiled: Any, order: LoadOrder) -> None:
        self._request = compiled.create_infer_request()
        self._outputs = [each.name for each in order.outputs]
        self._order = order
        self._inputs = [_tensor(each) for each in compiled.inputs]

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:  # noqa: ARG002  such models take none
        """Return the outputs by name, copied: OpenVINO uses their memory again."""
        self._request.infer(dict(inputs))
        return {name: np.array(self._request.get_tensor(name).data) for name in self._outputs}

    def sample(self, rows: int, size: int) -> Arrays:
        """See `sample_of`."""
        return sample_of(self._order, self._inputs, rows, size)


class OpenVinoBackend:
    """It executes no code of a folder, so there is nothing to set up or to forget. It computes on CPUs."""

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self._threads = threads
        self._device = device

    def prepare(self, order: LoadOrder) -> None:  # noqa: ARG002
        """Import OpenVINO. Raises ModuleNotFoundError if it is not installed."""
        _import()

    def settle(self) -> None: ...
    def keep(self, orders: Collection[LoadOrder]) -> None: ...

    def load(self, order: LoadOrder) -> LoadedModel:
        """Load a file. Raises FileNotFoundError if the variant names none, ValueError if model.yaml and the
        file state different tensors, if the slice is a GPU or the precision unknown, and SignatureError if
        the file is broken."""
        file = artifact_of(order, "an .xml or .onnx file")
        if self._device != "cpu":
            raise ValueError(f"backend openvino computes on CPUs; got a slice on {self._device}")
        compiled = _compiled(file, self._threads, dict(order.options))
        check_tensors(order, _types(compiled.inputs), _types(compiled.outputs))
        return as_ordered(OpenVinoModel(compiled, order), order)


def signature_of(artifact: str, options: Mapping[str, ParameterValue]) -> Signature:
    """Return what a file takes and answers. Raises SignatureError if Penstock cannot serve that."""
    compiled = _compiled(Path(artifact), 1, options)
    found = Signature(tuple(map(_tensor, compiled.inputs)), tuple(map(_tensor, compiled.outputs)))
    unstated(found, sizes_of(tuple(options.items())))
    return found


def _import() -> Any:
    try:
        import openvino
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    return openvino


def _compiled(file: Path, threads: int, options: Mapping[str, ParameterValue]) -> Any:
    core = _import().Core()
    precision = str(options.get(PRECISION, "fp32"))
    if precision not in PRECISIONS:
        raise ValueError(f"option precision is {precision!r}; expected {', '.join(PRECISIONS)}")
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # the slice has its cores already
        "INFERENCE_PRECISION_HINT": PRECISIONS[precision],
    }
    try:
        return core.compile_model(core.read_model(file), "CPU", settings)
    except RuntimeError as error:
        text = " ".join(str(error).split())[:TEXT_CHARS_MAX]
        raise SignatureError(f"OpenVINO cannot load {file}: {text}") from error


def _types(ports: Any) -> dict[str, str]:
    """Return datatypes by name; OpenVINO's own word for a type that the protocol does not have."""
    kinds = {each.any_name: each.element_type.get_type_name() for each in ports}
    return {name: DATATYPES.get(kind, kind) for name, kind in kinds.items()}


def _tensor(port: Any) -> Tensor:
    kind = port.element_type.get_type_name()
    name = port.any_name
    if kind not in DATATYPES:
        raise SignatureError(f"{name!r} is of type {kind}, which this backend does not serve")
    sides = [
        f"{name}.{at}" if side.is_dynamic else side.get_length() for at, side in enumerate(port.partial_shape)
    ]
    if sides and isinstance(sides[0], str):
        sides[0] = "batch"
    return Tensor(name, DATATYPES[kind], tuple(sides))
