"""Models and requests for the codec tests: values of a datatype, and the same request on each wire."""

import struct
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any  # protobuf messages carry no types

import orjson
import pytest
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from router.tensors.parts.errors import RequestError
from router.tensors.request.decoded import Decoded
from serving.ports import Reply
from serving.values.specs import (
    Limits,
    ModelSpec,
    ParameterSpec,
    ServedModel,
    SizeHint,
    TensorSpec,
    VariantSpec,
)
from serving.values.tensor import DATATYPES, Tensor
from serving.values.vocabulary import COMPLETED, Outcome

LIMITS = Limits(json_depth=8, tensor_count=4, tensor_bytes=4096, rows_per_request=16)
Shape = tuple[int, ...]
Values = list[Any]

CODES = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
TYPED = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents",
    "UINT32": "uint_contents", "UINT64": "uint64_contents", "FP32": "fp32_contents",
    "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def model(
    *inputs: TensorSpec,
    outputs: Sequence[TensorSpec] = (TensorSpec("Y", "FP32", (-1, 2)),),
    parameters: tuple[ParameterSpec, ...] = (),
    size_hint: SizeHint | None = None,
) -> ServedModel:
    """A served model called simple with variants small and large."""
    variants = (VariantSpec("small", None), VariantSpec("large", None))
    spec = ModelSpec(
        "simple", Path("nowhere"), inputs, tuple(outputs), variants, "small", 50_000, 8,
        size_hint=size_hint, parameters=parameters,
    )  # fmt: skip
    return ServedModel(spec, 50_000, ("small", "large"), ("cpu",))


SIMPLE = model(
    TensorSpec("INPUT0", "INT32", (-1, 4)),
    TensorSpec("INPUT1", "INT32", (-1, 4)),
    outputs=(TensorSpec("OUTPUT0", "INT32", (-1, 4)), TensorSpec("OUTPUT1", "INT32", (-1, 4))),
)
ANYTHING = model(TensorSpec("X", "ANY", (-1, -1)), outputs=(TensorSpec("X", "ANY", (-1, -1)),))
TEXT = model(TensorSpec("TEXT", "BYTES", (-1, 1)), size_hint=SizeHint("TEXT", (8, 16)))


def raw(datatype: str, values: Sequence[Any]) -> bytes:
    """The wire form, computed element by element (the codecs never do it so)."""
    if datatype == "BYTES":
        contents = [value.encode() if isinstance(value, str) else value for value in values]
        return b"".join(struct.pack("<I", len(content)) + content for content in contents)
    if datatype == "BF16":  # values that BF16 holds exactly
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return b"".join(struct.pack("<" + CODES[datatype], value) for value in values)


def elements(datatype: str) -> st.SearchStrategy[Any]:
    """Values that the datatype holds exactly and JSON can say."""
    if datatype == "BOOL":
        return st.booleans()
    if datatype == "BYTES":
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    if datatype == "BF16":
        finite = st.integers(0, 0xFFFF).filter(lambda bits: bits & 0x7F80 != 0x7F80)
        return finite.map(lambda bits: struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    if datatype in ("FP16", "FP32", "FP64"):
        widths = {"FP16": 16, "FP32": 32, "FP64": 64}
        return st.floats(width=widths[datatype], allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]
    bits = int(datatype.lstrip("UINT"))
    low = 0 if datatype[0] == "U" else -(2 ** (bits - 1))
    return st.integers(low, low + 2**bits - 1)


@st.composite
def tensors(draw: Callable[..., Any], datatypes: Sequence[str] = DATATYPES) -> tuple[str, Shape, Values]:
    """A datatype, a shape of two dimensions and as many values."""
    datatype = draw(st.sampled_from(datatypes))
    shape = (draw(st.integers(1, 3)), draw(st.integers(0, 3)))
    count = prod(shape)
    return datatype, shape, draw(st.lists(elements(datatype), min_size=count, max_size=count))


def entry(
    name: str, datatype: str, shape: Sequence[int], values: Sequence[Any], binary: bool = True
) -> tuple[dict[str, Any], bytes]:
    """One of a request's `inputs` and the bytes that follow the JSON for it."""
    head: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
    if not binary:
        return head | {"data": values}, b""
    data = raw(datatype, values)
    return head | {"parameters": {"binary_data_size": len(data)}}, data


def body(*entries: tuple[dict[str, Any], bytes], **fields: Any) -> tuple[bytes, int]:
    """A REST body with its Inference-Header-Content-Length."""
    text = orjson.dumps({"inputs": [head for head, _ in entries], **fields})
    return text + b"".join(data for _, data in entries), len(text)


def simple_body(*, rows: int = 1, **fields: Any) -> tuple[bytes, int]:
    """A valid binary request of SIMPLE."""
    values = list(range(4 * rows))
    return body(*(entry(name, "INT32", (rows, 4), values) for name in ("INPUT0", "INPUT1")), **fields)


def message(*inputs: tuple[str, str, Shape, Values], typed: bool = False, **fields: Any) -> Any:
    """A ModelInferRequest of (name, datatype, shape, values)."""
    request = service_pb2.ModelInferRequest(model_name="simple", **fields)
    for name, datatype, shape, values in inputs:
        tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
        if typed:
            encoded = [value.encode() for value in values] if datatype == "BYTES" else values
            getattr(tensor.contents, TYPED[datatype]).extend(encoded)
        else:
            request.raw_input_contents.append(raw(datatype, values))
    return request


def simple_message(rows: int = 1, **fields: Any) -> Any:
    """A valid raw request of SIMPLE."""
    values = list(range(4 * rows))
    return message(*((name, "INT32", (rows, 4), values) for name in ("INPUT0", "INPUT1")), **fields)


def completed(*outputs: Tensor) -> Reply:
    reply = Reply(COMPLETED)
    reply.outputs = outputs
    return reply


def refusal(decode: Callable[[], object], outcome: Outcome) -> str:
    """The sentence with which `decode` refuses."""
    with pytest.raises(RequestError) as caught:
        decode()
    assert caught.value.outcome == outcome
    return caught.value.message


def parts(tensor: Tensor) -> tuple[str, str, Shape, bytes]:
    """A tensor as a value to compare."""
    return tensor.name, tensor.datatype, tensor.shape, bytes(tensor.data)


def said(decoded: Decoded) -> object:
    """What a request says besides its tensors, as a value to compare."""
    wanted = [(each.index, each.binary) for each in decoded.wanted]
    return decoded.id, wanted, decoded.call.timeout_us, dict(decoded.call.parameters or {})


def parameter(value: object) -> Mapping[str, object]:
    """The InferParameter keyword for a value, as tritonclient chooses it."""
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    return {kinds[type(value)]: value}


def read_answer(wire: bytes) -> Any:
    """A gRPC answer, as its client reads it."""
    return service_pb2.ModelInferResponse.FromString(wire)
