"""A model without a batch dimension: its clients state whole shapes, and the core sees one row."""

from dataclasses import replace
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
from serving.values.specs import ServedModel, TensorSpec
from serving.values.tensor import Tensor
from tests.router.tensors.requests import LIMITS, completed, model, read_answer


def unbatched(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...]) -> ServedModel:
    batched = model(*inputs, outputs=outputs)
    return replace(batched, spec=replace(batched.spec, unbatched=True, batch_max=1))


MODEL = unbatched(
    TensorSpec("X", "FP32", (-1, 2, -1)),
    TensorSpec("N", "INT32", (-1, 1)),
    outputs=(TensorSpec("Y", "FP32", (-1, 4)),),
)
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
N = np.array([7], np.int32)
Y = Tensor("Y", "FP32", (1, 4), np.array([0.5, 3, 1, 2], np.float32).tobytes())


def inputs(module: Any, **how: bool) -> list[Any]:
    made = [module.InferInput("X", [2, 3], "FP32"), module.InferInput("N", [1], "INT32")]
    for each, array in zip(made, (X, N), strict=True):
        each.set_data_from_numpy(array, **how)
    return made


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_over_rest(binary: bool, binary_out: bool) -> None:
    outputs = [triton_http.InferRequestedOutput("Y", binary_data=binary_out)]
    client = triton_http.InferenceServerClient
    body, length = client.generate_request_body(inputs(triton_http, binary_data=binary), outputs=outputs)
    whole = (bytes(body), length)
    for sent, json_length in (whole, whole, rest.unfold(body, length, MODEL, LIMITS)):
        decoded = rest.decode(sent, json_length, MODEL, LIMITS)
        assert decoded.call.rows == 1
        assert [each.shape for each in decoded.call.inputs] == [(1, 2, 3), (1, 1)]
        assert bytes(decoded.call.inputs[0].data) == X.tobytes()
        answer, header = rest.encode(decoded, completed(Y))
        result = client.parse_response_body(answer, header_length=header)
        assert result.get_output("Y")["shape"] == [4]
        assert result.as_numpy("Y").tolist() == [0.5, 3, 1, 2]


def test_over_grpc() -> None:
    asked = _get_inference_request(
        "simple", inputs(triton_grpc), "", "", None, 0, False, False, 0, None, None
    )
    message = asked.SerializeToString()
    found = outline(message, LIMITS)
    key = proto.key_of(message, found)
    plain = proto.decode(proto.parse(message, found)[0], MODEL, LIMITS, None, key)
    plan = proto.recall(key, LIMITS)
    assert plan is not None
    for decoded in (plain, plan.take(message, found)):
        assert [each.shape for each in decoded.call.inputs] == [(1, 2, 3), (1, 1)]
        result = triton_grpc.InferResult(read_answer(proto.encode(decoded, completed(Y))))
        assert result.as_numpy("Y").tolist() == [0.5, 3, 1, 2]


def test_classes_have_no_batch_either() -> None:
    outputs = [triton_http.InferRequestedOutput("Y", binary_data=True, class_count=2)]
    client = triton_http.InferenceServerClient
    body, length = client.generate_request_body(inputs(triton_http), outputs=outputs)
    answer, header = rest.encode(rest.decode(body, length, MODEL, LIMITS), completed(Y))
    result = client.parse_response_body(answer, header_length=header)
    assert result.as_numpy("Y").tolist() == [b"3.000000:1", b"2.000000:3"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"shape": [1, 2, 3]}, "expected [2,-1], got [1,2,3]; this model has no batch dimension"),
        ({"shape": [3, 3]}, "unexpected shape for input 'X' for model 'simple': expected [2,-1], got [3,3]"),
        ({"shape": []}, "expected [2,-1], got []"),
        ({"shape": [2, -1]}, "shape [2,-1] has a negative dimension"),
        ({"data": [1, 2]}, "shape [2,3] takes 6 elements, got 2"),
        ({"data": [[1, 2, 3], [4, 5]]}, "to fit shape [2,3]"),
        ({"data": [[1, 2, 3], [4, 5, "x"]]}, "element [1,2] must be a number"),
        ({"name": "Z"}, "no input 'Z'"),
    ],
)
def test_faults_are_named_in_the_client_s_shapes(changes: dict[str, object], sentence: str) -> None:
    first = {"name": "X", "datatype": "FP32", "shape": [2, 3], "data": X.tolist()} | changes
    other = {"name": "N", "datatype": "INT32", "shape": [1], "data": [7]}
    with pytest.raises(RequestError) as caught:
        rest.decode(orjson.dumps({"inputs": [first, other]}), None, MODEL, LIMITS)
    assert sentence in str(caught.value)
