"""Models in ONNX files, run by ONNX Runtime: the variant's artifact is the file.

ONNX Runtime is imported with the first model that needs it. The extra `[onnx]` brings it.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from serving.values.specs import ParameterValue
from serving.worker.backends.checking import artifact_of, check_tensors
from serving.worker.backends.contract import LoadedModel
from serving.worker.backends.signature import Signature, SignatureError, Tensor, sample_of, sizes_of, unstated
from serving.worker.backends.unbatched import as_ordered
from serving.worker.frames.arrays import DTYPES, Arrays
from serving.worker.frames.orders import LoadOrder

DATATYPES: Final[Mapping[str, str]] = {
    "tensor(bool)": "BOOL", "tensor(uint8)": "UINT8", "tensor(uint16)": "UINT16", "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64", "tensor(int8)": "INT8", "tensor(int16)": "INT16", "tensor(int32)": "INT32",
    "tensor(int64)": "INT64", "tensor(float16)": "FP16", "tensor(float)": "FP32", "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}  # fmt: skip
"""ONNX Runtime's names of types. It gives no bfloat16 to Python."""
MISSING: Final = "ONNX Runtime is not installed here; try `pip install onnxruntime`"
TEXT_CHARS_MAX: Final = 300
"""Of what ONNX Runtime says of a file."""
PROVIDERS: Final = "providers"
"""The option that names execution providers, best first, separated by commas: `TensorrtExecutionProvider`."""


class OnnxModel:
    """A session of ONNX Runtime, with the outputs that the model's spec names."""

    def __init__(self, session: Any, order: LoadOrder) -> None:
        self._session = session
        self._outputs = [each.name for each in order.outputs]
        self._order = order
        self._inputs = [_tensor(each) for each in session.get_inputs()]
        self._texts = frozenset(each.name for each in self._inputs if each.datatype == "BYTES")

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:  # noqa: ARG002  ONNX models take none
        """Return the outputs by name. Texts are UTF-8 on the wire, and str in ONNX Runtime."""
        feeds = {name: _texts(array) if name in self._texts else array for name, array in inputs.items()}
        found = self._session.run(self._outputs, feeds)
        return {name: _bytes(array) for name, array in zip(self._outputs, found, strict=True)}

    def sample(self, rows: int, size: int) -> Arrays:
        """See `sample_of`."""
        return sample_of(self._order, self._inputs, rows, size)


class OnnxBackend:
    """It executes no code of a folder, so there is nothing to prepare, to set up or to forget.

    `device`: "cpu", or "cuda:0" and so on.
    """

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self._threads = threads
        self._device = device

    def prepare(self, order: LoadOrder) -> None:  # noqa: ARG002
        """Import ONNX Runtime. Raises ModuleNotFoundError if it is not installed."""
        _runtime()

    def settle(self) -> None: ...
    def keep(self, orders: Collection[LoadOrder]) -> None: ...

    def load(self, order: LoadOrder) -> LoadedModel:
        """Load a file. Raises FileNotFoundError if the variant names none, ValueError if model.yaml and the
        file state different tensors, and what ONNX Runtime raises of a broken file."""
        file = artifact_of(order, "an .onnx file")
        options = dict(order.options)
        session = _session(_runtime(), file, self._threads, self._device, options)
        check_tensors(order, _types(session.get_inputs()), _types(session.get_outputs()))
        model = OnnxModel(session, order)
        return as_ordered(model, order)


def signature_of(artifact: str, options: Mapping[str, ParameterValue]) -> Signature:
    """Return what a file takes and answers. Raises SignatureError if Penstock cannot serve that."""
    session = _session(_runtime(), artifact, 1, "cpu", {})
    found = Signature(tuple(map(_tensor, session.get_inputs())), tuple(map(_tensor, session.get_outputs())))
    unstated(found, sizes_of(tuple(options.items())))
    return found


def _runtime() -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    return onnxruntime


def _session(
    runtime: Any, artifact: object, threads: int, device: str, options: Mapping[str, ParameterValue]
) -> Any:
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    # Threads that spin between batches would take the core from the worker's other threads.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.log_severity_level = 3
    providers = _providers(runtime, device, options)
    try:
        return runtime.InferenceSession(str(artifact), settings, providers=providers)
    except Exception as error:  # of a class of its own for each kind of mistake
        raise SignatureError(f"ONNX Runtime cannot load {artifact}: {str(error)[:TEXT_CHARS_MAX]}") from error


def _providers(runtime: Any, device: str, options: Mapping[str, ParameterValue]) -> list[Any]:
    kind, _, number = device.partition(":")
    default = "CPUExecutionProvider" if kind == "cpu" else "CUDAExecutionProvider"
    wanted = [each.strip() for each in str(options.get(PROVIDERS, default)).split(",")]
    there = runtime.get_available_providers()
    if lacking := [each for each in wanted if each not in there]:
        raise ValueError(
            f"ONNX Runtime has no {', '.join(lacking)} here; it has {', '.join(there)}. "
            "For a GPU, try `pip install onnxruntime-gpu` in place of onnxruntime"
        )
    of_device = {} if kind == "cpu" else {"device_id": number or "0"}
    return [(each, of_device) if each.startswith(("CUDA", "Tensorrt")) else each for each in wanted]


def _types(tensors: Any) -> dict[str, str]:
    """Return datatypes by name; ONNX's own word for a type that the protocol does not have."""
    return {each.name: DATATYPES.get(each.type, each.type) for each in tensors}


def _tensor(each: Any) -> Tensor:
    datatype = DATATYPES.get(each.type)
    if datatype is None:
        raise SignatureError(f"{each.name!r} is a {each.type}, which no datatype of the protocol is")
    return Tensor(each.name, datatype, tuple(_sides(each)))


def _sides(each: Any) -> list[int | str]:
    """Return the sizes of a tensor's dimensions, a name where a request chooses; ONNX may give it none."""
    return [
        side if isinstance(side, int | str) else f"{each.name}.{at}" for at, side in enumerate(each.shape)
    ]


def _texts(array: Any) -> Any:
    return np.array([each.decode() for each in array.ravel()], object).reshape(array.shape)


def _bytes(array: Any) -> Any:
    if array.dtype != DTYPES["BYTES"]:
        return array
    return np.array([str(each).encode() for each in array.ravel()], object).reshape(array.shape)
