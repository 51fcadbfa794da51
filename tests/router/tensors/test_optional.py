"""A request that leaves out an optional input reaches the core without it, by each way of writing it."""

from typing import Any

import numpy as np
import orjson
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.grpc._utils import _get_inference_request

from router.tensors import proto, rest
from router.tensors.messages import outline
from router.tensors.parts.errors import RequestError
from router.tensors.request.decoded import Decoded
from serving.values.specs import TensorSpec
from serving.values.tensor import ABSENT
from tests.router.tensors.requests import LIMITS, model

MODEL = model(
    TensorSpec("X", "INT32", (-1, 2)),
    TensorSpec("MASK", "BOOL", (-1, 2), optional=True),
    TensorSpec("TEXT", "BYTES", (-1, 1), optional=True),
    TensorSpec("SCALE", "FP32", (-1, 1)),
)
ARRAYS: dict[str, tuple[str, Any]] = {
    "SCALE": ("FP32", np.array([[0.5], [2]], np.float32)),
    "TEXT": ("BYTES", np.array([["a"], ["bc"]], np.object_)),
    "MASK": ("BOOL", np.array([[True, False], [False, False]])),
    "X": ("INT32", np.array([[1, 2], [3, 4]], np.int32)),
}
LEFT_OUT = [(), ("MASK",), ("TEXT",), ("MASK", "TEXT")]


def tensors(module: Any, without: tuple[str, ...], **how: bool) -> list[Any]:
    """The inputs in an order of the client's own."""
    made = []
    for name, (datatype, array) in ARRAYS.items():
        if name not in without:
            made.append(module.InferInput(name, list(array.shape), datatype))
            made[-1].set_data_from_numpy(array, **how)
    return made


def over_rest(without: tuple[str, ...], binary: bool) -> tuple[bytes, int | None]:
    inputs = tensors(triton_http, without, binary_data=binary)
    body, length = triton_http.InferenceServerClient.generate_request_body(inputs)
    return bytes(body), length


def over_rpc(without: tuple[str, ...]) -> bytes:
    inputs = tensors(triton_grpc, without)
    request = _get_inference_request("simple", inputs, "", "", None, 0, False, False, 0, None, None)
    message: bytes = request.SerializeToString()
    return message


def check(decoded: Decoded, without: tuple[str, ...]) -> None:
    found = {each.name: each for each in decoded.call.inputs}
    assert list(found) == [each.name for each in MODEL.spec.inputs]
    for name, (datatype, _) in ARRAYS.items():
        assert found[name].datatype == (ABSENT if name in without else datatype)
        assert (len(found[name].data) == 0) == (name in without)
    assert np.frombuffer(found["X"].data, np.int32).tolist() == [1, 2, 3, 4]
    assert np.frombuffer(found["SCALE"].data, np.float32).tolist() == [0.5, 2]


@pytest.mark.parametrize("without", LEFT_OUT)
@pytest.mark.parametrize("binary", [True, False])
def test_over_rest(without: tuple[str, ...], binary: bool) -> None:
    body, length = over_rest(without, binary)
    for _ in range(2):  # the second by its plan
        check(rest.decode(body, length, MODEL, LIMITS), without)
    check(rest.decode(*rest.unfold(body, length, MODEL, LIMITS), MODEL, LIMITS), without)


@pytest.mark.parametrize("without", LEFT_OUT)
def test_over_grpc(without: tuple[str, ...]) -> None:
    message = over_rpc(without)
    found = outline(message, LIMITS)
    key = proto.key_of(message, found)
    request, apart = proto.parse(message, found)
    check(proto.decode(request, MODEL, LIMITS, apart, key), without)
    plan = proto.recall(key, LIMITS)
    assert plan is not None
    check(plan.take(message, found), without)
    assert proto.unfold(message, MODEL, LIMITS) == message


def test_typed_contents_leave_out_too() -> None:
    request = proto.parse(over_rpc(("MASK", "TEXT")), outline(over_rpc(("MASK", "TEXT")), LIMITS))[0]
    del request.raw_input_contents[:]
    request.inputs[0].contents.fp32_contents.extend([0.5, 2])
    request.inputs[1].contents.int_contents.extend([1, 2, 3, 4])
    check(proto.decode(request, MODEL, LIMITS), ("MASK", "TEXT"))
    unfolded = proto.unfold(request.SerializeToString(), MODEL, LIMITS)
    check(proto.decode(proto.parse(unfolded, outline(unfolded, LIMITS))[0], MODEL, LIMITS), ("MASK", "TEXT"))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"X": None}, "input 'X' of model 'simple' is missing"),
        ({"X": None, "SCALE": None, "TEXT": None, "MASK": None}, "inputs 'X' and 'SCALE'"),
        ({"MASK": {"datatype": ""}}, "input 'MASK': expected datatype BOOL, got ''"),
        ({"MASK": {"shape": [1, 2], "data": [True, True]}}, "'MASK' has 1"),
        ({"MASK": {"shape": []}}, "unexpected shape for input 'MASK'"),
        ({"SCALE": {"shape": []}, "MASK": None}, "unexpected shape for input 'SCALE'"),
    ],
)
def test_what_is_given_has_to_be_right(changes: dict[str, Any], sentence: str) -> None:
    document = orjson.loads(over_rest((), False)[0])
    entries = []
    for entry in document["inputs"]:
        changed = changes.get(entry["name"], {})
        if changed is not None:
            entries.append(entry | changed)
    with pytest.raises(RequestError) as caught:
        rest.decode(orjson.dumps({"inputs": entries}), None, MODEL, LIMITS)
    assert sentence in str(caught.value)
