"""Each way in which a gRPC request can be wrong; sentences that REST shares come from the same checks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.tensors import proto, rest
from router.tensors.parts.errors import RequestError
from serving.values.vocabulary import BAD_INPUT, TOO_LARGE
from tests.router.tensors.requests import (
    ANYTHING,
    LIMITS,
    SIMPLE,
    TEXT,
    body,
    entry,
    message,
    refusal,
    simple_message,
)

ROW = ("INT32", (1, 4), [1, 2, 3, 4])


def refused(request: Any) -> str:
    return refusal(lambda: proto.decode(request, SIMPLE, LIMITS), BAD_INPUT)


@pytest.mark.parametrize(
    "inputs",
    [
        [("INPUTO", *ROW), ("INPUT1", *ROW)],
        [("INPUT1", *ROW), ("INPUT1", *ROW)],
        [("INPUT1", *ROW)],
        [("INPUT0", "FP32", (1, 4), [1.0] * 4), ("INPUT1", *ROW)],
        [("INPUT0", "INT32", (4,), [1, 2, 3, 4]), ("INPUT1", *ROW)],
        [("INPUT0", "INT32", (1, 5), [1, 2, 3, 4, 5]), ("INPUT1", *ROW)],
        [("INPUT0", "INT32", (0, 4), []), ("INPUT1", "INT32", (0, 4), [])],
        [("INPUT0", "INT32", (2, 4), list(range(8))), ("INPUT1", *ROW)],
        [("INPUT0", "INT32", (1, 4), [1, 2, 3]), ("INPUT1", *ROW)],
        [("INPUT0", "INT32", (17, 4), [0] * 68), ("INPUT1", "INT32", (17, 4), [0] * 68)],
        [("INPUT0", *ROW)] * 5,
    ],
)
def test_the_same_fault_reads_the_same_over_grpc_and_rest(inputs: list[Any]) -> None:
    with pytest.raises(RequestError) as over_grpc:
        proto.decode(message(*inputs), SIMPLE, LIMITS)
    content, json_length = body(*(entry(*one) for one in inputs))
    with pytest.raises(RequestError) as over_rest:
        rest.decode(content, json_length, SIMPLE, LIMITS)
    assert over_grpc.value.message == over_rest.value.message
    assert over_grpc.value.outcome == over_rest.value.outcome


def test_negative_dimensions_are_refused() -> None:
    request = message(("INPUT0", *ROW), ("INPUT1", *ROW))
    request.inputs[0].shape[0] = -1
    assert refused(request).startswith("input 'INPUT0': shape [-1,4] has a negative dimension")


def test_a_tensor_above_its_limit_is_refused_from_its_shape_alone() -> None:
    request = message(("X", "FP32", (1, 2**62), []))
    assert "(limits.tensor_mb)" in refusal(lambda: proto.decode(request, ANYTHING, LIMITS), TOO_LARGE)


def test_raw_and_typed_contents_do_not_mix() -> None:
    request = simple_message()
    request.inputs[1].contents.int_contents.extend([1, 2, 3, 4])
    sentence = "input 'INPUT1' has contents although raw_input_contents is in use; send one of them"
    assert refused(request) == sentence
    del request.raw_input_contents[1]
    assert refused(request).startswith("the request has 2 inputs, but 1 entries in raw_input_contents")


def test_empty_contents_beside_raw_ones_do_no_harm() -> None:
    request = simple_message()
    request.inputs[0].contents.SetInParent()
    assert proto.decode(request, SIMPLE, LIMITS).call.rows == 1


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_has_no_typed_contents(datatype: str) -> None:
    request = message(("X", datatype, (1, 1), [1.0]))
    del request.raw_input_contents[:]
    sentence = refusal(lambda: proto.decode(request, ANYTHING, LIMITS), BAD_INPUT)
    assert (
        sentence
        == f"input 'X': {datatype} has no typed contents in this protocol; send it in raw_input_contents"
    )


@pytest.mark.parametrize(
    ("datatype", "fields", "sentence"),
    [
        ("FP32", {"fp32_contents": [1.0]}, "input 'X': shape [1,2] takes 2 elements, got 1"),
        ("FP32", {"fp64_contents": [1.0]}, "belongs into contents.fp32_contents"),  # as many bytes
        ("FP32", {}, "input 'X': shape [1,2] takes 2 elements, got 0"),
        (
            "FP32",
            {"fp64_contents": [1.0, 2.0]},
            "FP32 belongs into contents.fp32_contents, got fp64_contents",
        ),
        ("FP32", {"fp32_contents": [1.0, 2.0], "bool_contents": [True]}, "got bool_contents"),
        ("INT8", {"int_contents": [1, 200]}, "element [0,1] must be a whole number from -128 to 127"),
        ("UINT16", {"uint_contents": [65536, 0]}, "element [0,0] must be a whole number from 0 to 65535"),
        ("INT64", {"int_contents": [1, 2]}, "INT64 belongs into contents.int64_contents, got int_contents"),
        ("BYTES", {"bytes_contents": [b"a"]}, "input 'X': shape [1,2] takes 2 elements, got 1"),
    ],
)
def test_typed_contents_must_be_the_datatypes_own_and_complete(
    datatype: str, fields: dict[str, Any], sentence: str
) -> None:
    request = message(("X", datatype, (1, 2), []))
    del request.raw_input_contents[:]
    for field, values in fields.items():
        getattr(request.inputs[0].contents, field).extend(values)
    assert sentence in refusal(lambda: proto.decode(request, ANYTHING, LIMITS), BAD_INPUT)


def test_fields_unknown_to_this_protocol_version_do_not_spoil_typed_contents() -> None:
    request = message(("X", "FP32", (1, 2), [1.5, 2.5]), typed=True)
    plain = proto.decode(request, ANYTHING, LIMITS).call.inputs[0].data
    request.inputs[0].contents.MergeFromString(b"\xf8\x06\x01")  # field 111, varint 1
    assert proto.decode(request, ANYTHING, LIMITS).call.inputs[0].data == plain


def test_large_typed_tensors_keep_their_length_apart_from_their_data() -> None:
    """The length before a packed field takes more bytes as it grows."""
    for columns in (1, 31, 32, 1024):
        values = [float(v) for v in range(columns)]
        typed = proto.decode(message(("X", "FP32", (1, columns), values), typed=True), ANYTHING, LIMITS)
        plain = proto.decode(message(("X", "FP32", (1, columns), values)), ANYTHING, LIMITS)
        assert typed.call.inputs[0].data == plain.call.inputs[0].data


def test_outputs_are_as_asked_or_all() -> None:
    request = simple_message()
    assert [wanted.index for wanted in proto.decode(request, SIMPLE, LIMITS).wanted] == [0, 1]
    request.outputs.add(name="OUTPUT1")
    assert [wanted.index for wanted in proto.decode(request, SIMPLE, LIMITS).wanted] == [1]
    request.outputs.add(name="OUTPUT1")
    assert refused(request) == "output 'OUTPUT1' is asked for twice"


def test_extensions_that_are_not_offered_are_refused_not_ignored() -> None:
    request = simple_message()
    request.outputs.add(name="OUTPUT0", parameters={"shared_memory_region": {"int64_param": 1}})
    assert "'shared_memory_region' of output 'OUTPUT0' must be a string, got 1" in refused(request)
    request = simple_message()
    request.inputs[0].parameters["classification"].string_param = "r"
    assert "input 'INPUT0' asks for 'classification'" in refused(request)
    request = simple_message()
    request.parameters["shared_memory_region"].string_param = "r"
    assert "asks for 'shared_memory_region'" in refused(request)


def test_data_in_shared_memory_and_in_the_message_are_refused_together() -> None:
    request = simple_message()
    request.inputs[0].parameters["shared_memory_region"].string_param = "r"
    request.inputs[0].parameters["shared_memory_byte_size"].int64_param = 16
    assert "the request has 1 inputs outside shared memory, but 2 entries" in refused(request)
    del request.raw_input_contents[0]
    assert refused(request).startswith("Client shared memory is disabled: a tensor names the region 'r'")
    request.inputs[0].contents.int_contents.extend([1, 2, 3, 4])
    assert "input 'INPUT0' has contents and a place in shared memory" in refused(request)


def test_a_tensor_may_say_over_grpc_what_it_says_over_rest_where_it_is_so() -> None:
    request = simple_message()
    request.inputs[0].parameters["binary_data_size"].int64_param = 16
    request.outputs.add(name="OUTPUT0", parameters={"binary_data": {"bool_param": True}})
    assert [wanted.index for wanted in proto.decode(request, SIMPLE, LIMITS).wanted] == [0]
    request.inputs[0].parameters["binary_data_size"].int64_param = 17
    assert refused(request) == "input 'INPUT0': binary_data_size says 17 bytes, its data has 16"
    request.inputs[0].parameters["binary_data_size"].int64_param = 16
    request.outputs[0].parameters["binary_data"].bool_param = False
    expected = "'binary_data' of output 'OUTPUT0' must be true over gRPC, where outputs are raw, got false"
    assert refused(request) == expected


def test_a_parameter_of_a_tensor_that_nothing_reads_is_refused_by_name() -> None:
    request = simple_message()
    request.outputs.add(name="OUTPUT0", parameters={"clasification": {"int64_param": 1}})
    assert (
        refused(request)
        == "output 'OUTPUT0' has an unknown parameter 'clasification'; did you mean 'classification'?"
    )
    request = simple_message()
    request.inputs[0].parameters["content_type"].string_param = "np"
    expected = "input 'INPUT0' has an unknown parameter 'content_type'; known are 'binary_data_size', "
    assert refused(request).startswith(expected)


@given(st.data())
def test_no_mutation_of_a_message_does_worse_than_a_refusal(data: st.DataObject) -> None:
    request = message(("TEXT", "BYTES", (2, 1), ["ab", "cdef"]), typed=data.draw(st.booleans()), id="7")
    wire = bytearray(request.SerializeToString())
    at = data.draw(st.integers(0, len(wire) - 1))
    wire[at] = data.draw(st.integers(0, 255))
    mutant = type(request)()
    try:
        mutant.ParseFromString(bytes(wire))
    except Exception:  # noqa: BLE001, RUF100  # not a message any more: grpc answers that by itself
        return
    try:
        proto.decode(mutant, TEXT, LIMITS)
    except RequestError as refused:
        assert refused.outcome in (BAD_INPUT, TOO_LARGE)  # noqa: PT017  # either end is allowed
