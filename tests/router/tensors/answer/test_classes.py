"""The classification extension: the strings that Triton's clients read, over both wires."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonclient.grpc._utils import _get_inference_request

from router.payloads.bulk.jobs import fold_rest
from router.tensors import proto, rest
from router.tensors.answer.classes import RANKED_MAX, STRINGS_MAX, classify
from router.tensors.parts.elements import list_elements
from router.tensors.request.decoded import Decoded
from serving.ports import Reply
from serving.values.specs import Labels, Limits, ServedModel, TensorSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import BAD_INPUT, COMPLETED, TOO_LARGE
from tests.router.fakes import served
from tests.router.tensors.requests import read_answer, refusal

PIXELS = TensorSpec("X", "FP32", (-1, 2))
LIMITS = Limits()
NAMED = Labels(("cat", "dog", "bird"))


def model(
    datatype: str = "FP32", shape: tuple[int, ...] = (-1, 3), labels: Labels | None = NAMED
) -> ServedModel:
    return served("m", (PIXELS,), (TensorSpec("Y", datatype, shape, None, labels),))


def asked(count: int, *, binary: bool, rows: int = 2) -> tuple[bytes, int | None]:
    tensor = triton_http.InferInput("X", [rows, 2], "FP32")
    tensor.set_data_from_numpy(np.zeros((rows, 2), np.float32))
    output = triton_http.InferRequestedOutput("Y", binary_data=binary, class_count=count)
    found: tuple[bytes, int | None] = triton_http.InferenceServerClient.generate_request_body(
        [tensor], outputs=[output]
    )
    return found


def asked_rpc(count: int, rows: int = 2) -> Any:
    tensor = triton_grpc.InferInput("X", [rows, 2], "FP32")
    tensor.set_data_from_numpy(np.zeros((rows, 2), np.float32))
    output = triton_grpc.InferRequestedOutput("Y", class_count=count)
    return _get_inference_request("m", [tensor], "", "", [output], 0, False, False, 0, None, None)


def answered(decoded: Decoded, values: npt.NDArray[Any], datatype: str = "FP32") -> Reply:
    reply = Reply(COMPLETED)
    reply.outputs = [Tensor("Y", datatype, values.shape, values.tobytes())]
    return reply


VALUES = np.array([[0.25, 0.5, 0.25], [-1, -3.5, 2e-7]], np.float32)
TOLD = [["0.500000:1:dog", "0.250000:0:cat"], ["0.000000:2:bird", "-1.000000:0:cat"]]


@pytest.mark.parametrize("binary", [True, False])
def test_the_http_client_reads_value_index_and_label(binary: bool) -> None:
    decoded = rest.decode(*asked(2, binary=binary), model(), LIMITS)
    body, json_length = rest.encode(decoded, answered(decoded, VALUES))
    result = triton_http.InferenceServerClient.parse_response_body(body, header_length=json_length)
    assert result.get_output("Y")["datatype"] == "BYTES"
    found = [[each.decode() if binary else each for each in row] for row in result.as_numpy("Y")]
    assert found == TOLD


def test_a_large_answer_in_a_bulk_process_is_the_same() -> None:
    decoded = rest.decode(*asked(2, binary=False), model(), LIMITS)
    wanted = [(each.index, each.binary, each.classes, each.place) for each in decoded.wanted]
    outputs = [("Y", "FP32", VALUES.shape, VALUES.tobytes())]
    assert fold_rest(model(), "", wanted, outputs) == rest.encode(decoded, answered(decoded, VALUES))


def test_the_grpc_client_reads_the_same() -> None:
    decoded = proto.decode(asked_rpc(2), model(), LIMITS)
    result = triton_grpc.InferResult(read_answer(proto.encode(decoded, answered(decoded, VALUES))))
    assert [[each.decode() for each in row] for row in result.as_numpy("Y")] == TOLD


def test_without_labels_and_with_more_classes_than_there_are() -> None:
    decoded = proto.decode(asked_rpc(7, rows=1), model("INT32", labels=None), LIMITS)
    reply = answered(decoded, np.array([[7, -2, 7]], np.int32), "INT32")
    result = triton_grpc.InferResult(read_answer(proto.encode(decoded, reply)))
    assert result.as_numpy("Y").tolist() == [[b"7:0", b"7:2", b"-2:1"]]


def test_zero_classes_are_the_output_itself() -> None:
    decoded = rest.decode(*asked(0, binary=True), model(), LIMITS)
    body, json_length = rest.encode(decoded, answered(decoded, VALUES))
    result = triton_http.InferenceServerClient.parse_response_body(body, header_length=json_length)
    np.testing.assert_array_equal(result.as_numpy("Y"), VALUES)


@given(
    arrays.arrays(
        np.float32, arrays.array_shapes(min_dims=2, max_dims=3, max_side=6), elements=st.floats(width=32)
    ),
    st.integers(1, 40),
)
def test_the_largest_come_first_and_of_equal_ones_the_first(values: npt.NDArray[Any], count: int) -> None:
    tensor = Tensor("Y", "FP32", values.shape, values.tobytes())
    told = classify(tensor, TensorSpec("Y", "FP32", (-1, *values.shape[1:])), count)
    rows = values.reshape(values.shape[0], -1)
    assert told.shape == (rows.shape[0], min(count, rows.shape[1]))
    found = iter(list_elements(told))
    for row in rows.tolist():
        order = sorted(range(len(row)), key=lambda i: -np.inf if row[i] != row[i] else row[i], reverse=True)
        for index in order[:count]:
            assert next(found) == f"{row[index]:f}:{index}"
    assert not list(found)


@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_whole_numbers_are_ranked_exactly(kind: str) -> None:
    most = np.iinfo(kind).max
    values = np.array([[most - 1, most, most - 2, 0]], kind)
    told = classify(
        Tensor("Y", kind.upper(), (1, 4), values.tobytes()), TensorSpec("Y", kind.upper(), (-1, 4)), 2
    )
    assert list_elements(told) == [f"{most}:1", f"{most - 1}:0"]


@pytest.mark.parametrize(
    ("datatype", "shape", "sentence"),
    [
        ("BYTES", (-1, 3), "class result not available for output 'Y' due to unsupported type 'BYTES'"),
        ("BOOL", (-1, 3), "class result not available for output 'Y' due to unsupported type 'BOOL'"),
        ("FP32", (-1, -1), "output 'Y' has the shape [-1,-1], so the number of its classes is not known"),
    ],
)
def test_what_has_no_classes_is_refused(datatype: str, shape: tuple[int, ...], sentence: str) -> None:
    unlabelled = model(datatype, shape, None)
    assert refusal(lambda: rest.decode(*asked(2, binary=True), unlabelled, LIMITS), BAD_INPUT).startswith(
        sentence
    )
    assert refusal(lambda: proto.decode(asked_rpc(2), unlabelled, LIMITS), BAD_INPUT).startswith(sentence)


@pytest.mark.parametrize(("rows", "width", "count"), [(STRINGS_MAX, 2, 1), (1, RANKED_MAX, STRINGS_MAX)])
def test_no_request_ranks_for_more_than_its_share_of_the_event_loop(
    rows: int, width: int, count: int
) -> None:
    wide = model(shape=(-1, width), labels=None)
    assert rest.decode(*asked(count, binary=True, rows=rows), wide, LIMITS).wanted[0].classes == count
    for more in (asked(count + 1, binary=True, rows=rows), asked(count, binary=True, rows=rows + 1)):
        assert "classes among" in refusal(partial(rest.decode, *more, wide, LIMITS), TOO_LARGE)


def test_specs_that_differ_in_labels_alone_are_equal() -> None:
    spec = TensorSpec("Y", "FP32", (-1, 3))
    assert replace(spec, labels=NAMED) == spec
