"""Requests as NVIDIA's own clients build them, and answers as these clients read them."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.grpc._utils import _get_inference_request

from router.tensors import proto, rest
from router.tensors.request.decoded import Decoded
from serving.values.tensor import Tensor
from tests.router.tensors.requests import ANYTHING, LIMITS, SIMPLE, completed, parts, read_answer

WHOLE = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
ARRAYS: dict[str, Any] = {
    "BOOL": np.array([[True, False], [False, True]]),
    "FP16": np.array([[1.5, -2.25], [65504, 0.1]], np.float16),
    "BF16": np.array([[1.5, -2.25], [3e38, 0.1]], ml_dtypes.bfloat16),
    "FP32": np.array([[0.1, -1], [1e30, 5]], np.float32),
    "FP64": np.array([[0.1, -1], [1e300, 5]], np.float64),
    "BYTES": np.array([["a", "schön"], ["", "c"]], np.object_),
}
for whole in WHOLE:
    dtype = np.dtype(whole.lower())
    ARRAYS[whole] = np.array([[0, 1], [2, np.iinfo(dtype).max]], dtype)

FORMS = [(datatype, binary) for datatype in ARRAYS for binary in (True, False)]
FORMS.remove(("BF16", False))  # the client refuses to build it


def echoed(decoded: Decoded) -> tuple[bytes, int | None]:
    return rest.encode(decoded, completed(*decoded.call.inputs))


@pytest.mark.parametrize(("datatype", "binary_in"), FORMS)
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_the_http_client_reads_back_what_it_sent(
    datatype: str, binary_in: bool, binary_out: bool | None
) -> None:
    array = ARRAYS[datatype]
    sent = triton_http.InferInput("X", list(array.shape), datatype)
    sent.set_data_from_numpy(array, binary_data=binary_in)
    outputs = None if binary_out is None else [triton_http.InferRequestedOutput("X", binary_data=binary_out)]
    content, json_length = triton_http.InferenceServerClient.generate_request_body(
        [sent], outputs=outputs, request_id="7", timeout=900, priority=0, sequence_id=0
    )
    decoded = rest.decode(content, json_length, ANYTHING, LIMITS)
    assert (decoded.id, decoded.call.timeout_us, decoded.call.rows) == ("7", 900, 2)
    answer, header_length = echoed(decoded)
    result = triton_http.InferenceServerClient.parse_response_body(answer, header_length=header_length)
    received = result.as_numpy("X")
    if datatype == "BYTES":
        texts = [value.decode() if isinstance(value, bytes) else value for value in received.ravel()]
        assert texts == list(array.ravel())
    else:
        np.testing.assert_array_equal(received.astype(array.dtype), array)


@pytest.mark.parametrize("datatype", ARRAYS)
def test_the_grpc_client_reads_back_what_it_sent(datatype: str) -> None:
    array = ARRAYS[datatype]
    sent = triton_grpc.InferInput("X", list(array.shape), datatype)
    sent.set_data_from_numpy(array)
    outputs = [triton_grpc.InferRequestedOutput("X")]
    request = _get_inference_request("simple", [sent], "", "7", outputs, 0, False, False, 0, 900, None)
    decoded = proto.decode(request, ANYTHING, LIMITS)
    assert (decoded.id, decoded.call.timeout_us, decoded.call.rows) == ("7", 900, 2)
    result = triton_grpc.InferResult(read_answer(proto.encode(decoded, completed(*decoded.call.inputs))))
    received = result.as_numpy("X")
    if datatype == "BYTES":
        assert [value.decode() for value in received.ravel()] == list(array.ravel())
    else:
        np.testing.assert_array_equal(received.astype(array.dtype), array)


def test_the_example_of_two_inputs_and_two_outputs_works_on_both_clients() -> None:
    arrays = {"INPUT0": np.arange(4, dtype="i4")[None], "INPUT1": np.ones((1, 4), "i4")}
    over_http = [triton_http.InferInput(name, [1, 4], "INT32") for name in arrays]
    over_grpc = [triton_grpc.InferInput(name, [1, 4], "INT32") for name in arrays]
    for sent, array in zip(over_http + over_grpc, list(arrays.values()) * 2, strict=True):
        sent.set_data_from_numpy(array)
    content, json_length = triton_http.InferenceServerClient.generate_request_body(over_http)
    first = rest.decode(content, json_length, SIMPLE, LIMITS)
    request = _get_inference_request("simple", over_grpc, "", "", None, 0, False, False, 0, None, None)
    second = proto.decode(request, SIMPLE, LIMITS)
    assert [parts(t) for t in first.call.inputs] == [parts(t) for t in second.call.inputs]
    total, difference = (arrays["INPUT0"] + arrays["INPUT1"], arrays["INPUT0"] - arrays["INPUT1"])
    reply = completed(
        Tensor("OUTPUT0", "INT32", (1, 4), total.tobytes()),
        Tensor("OUTPUT1", "INT32", (1, 4), difference.tobytes()),
    )
    answer, header_length = rest.encode(first, reply)
    for result in (
        triton_http.InferenceServerClient.parse_response_body(answer, header_length=header_length),
        triton_grpc.InferResult(read_answer(proto.encode(second, reply))),
    ):
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), total)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), difference)
