"""Each way in which a REST request can be wrong, and the sentence that its client reads."""

import struct
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.tensors import rest
from router.tensors.parts.errors import RequestError
from serving.values.specs import Limits, ServedModel, TensorSpec
from serving.values.vocabulary import BAD_INPUT, TOO_LARGE, Outcome
from tests.router.tensors.requests import (
    ANYTHING,
    LIMITS,
    SIMPLE,
    TEXT,
    body,
    entry,
    model,
    parts,
    refusal,
    simple_body,
)

GOOD = {"name": "INPUT0", "datatype": "INT32", "shape": [1, 4], "data": [1, 2, 3, 4]}
OTHER = GOOD | {"name": "INPUT1"}


def refused(document: object, outcome: Outcome = BAD_INPUT, served: ServedModel = SIMPLE) -> str:
    text = document if isinstance(document, bytes) else orjson.dumps(document)
    return refusal(lambda: rest.decode(text, None, served, LIMITS), outcome)


def refused_input(**changes: object) -> str:
    changed = {key: value for key, value in (GOOD | changes).items() if value is not ...}
    return refused({"inputs": [changed, OTHER]})


PLACED: dict[str, object] = {"shared_memory_region": "r", "shared_memory_byte_size": 16}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "INPUTO"}, "model 'simple' has no input 'INPUTO'; did you mean 'INPUT0'?"),
        ({"name": "pixels"}, "model 'simple' has no input 'pixels'; its inputs are 'INPUT0', 'INPUT1'"),
        ({"name": "INPUT1"}, "input 'INPUT1' is given twice"),
        ({"name": 7}, "'name' of inputs[0] must be a string, got 7"),
        ({"name": ...}, "'name' of inputs[0] must be a string, got none"),
        ({"datatype": "FP32"}, "input 'INPUT0': expected datatype INT32, got 'FP32'"),
        ({"datatype": "int32"}, "expected datatype INT32, got 'int32'; did you mean 'INT32'?"),
        ({"datatype": None}, "'datatype' of input 'INPUT0' must be a string, got null"),
        (
            {"shape": [1, 5]},
            "unexpected shape for input 'INPUT0' for model 'simple': expected [-1,4], got [1,5]",
        ),
        ({"shape": [4]}, "got [4]; the batch dimension comes first: one row is [1,4]"),
        ({"shape": [1, 1, 4]}, "expected [-1,4], got [1,1,4]"),
        ({"shape": [0, 4], "data": []}, "input 'INPUT0': shape [0,4] has no rows; send at least one"),
        ({"shape": [2, 4]}, "inputs differ in their rows: 'INPUT0' has 2, 'INPUT1' has 1"),
        ({"shape": [True, 4]}, "'shape' of input 'INPUT0' must hold whole numbers, got true"),
        ({"shape": [-1, 4]}, "input 'INPUT0': shape [-1,4] has a negative dimension"),
        ({"shape": [1.0, 4]}, "must hold whole numbers, got 1.0"),
        ({"shape": "1,4"}, "'shape' of input 'INPUT0' must be a list of whole numbers, got '1,4'"),
        ({"data": [1, 2, 3]}, "input 'INPUT0': shape [1,4] takes 4 elements, got 3"),
        ({"data": ...}, "input 'INPUT0' has neither 'data' nor 'parameters.binary_data_size'"),
        ({"parameters": []}, "'parameters' of input 'INPUT0' must be an object, got a list"),
        ({"parameters": {"binary_data_size": 16}}, "has both 'data' and 'parameters.binary_data_size'"),
        ({"parameters": {"binary_data_size": -1}}, "must be a whole number of bytes, got -1"),
        ({"parameters": {"binary_data_size": "16"}}, "must be a whole number of bytes, got '16'"),
        ({"parameters": {"shared_memory_region": "r"}}, "without 'shared_memory_byte_size'"),
        (
            {"parameters": {"shared_memory_offset": 8}},
            "'shared_memory_offset' without 'shared_memory_region'",
        ),
        ({"parameters": {"shared_memory_region": 1}}, "of input 'INPUT0' must be a string, got 1"),
        ({"parameters": PLACED}, "input 'INPUT0' has data in the request and in shared memory"),
        ({"parameters": PLACED, "data": ...}, "Client shared memory is disabled"),
        ({"parameters": PLACED | {"shared_memory_byte_size": 17}, "data": ...}, "takes 16 bytes, got 17"),
        ({"parameters": PLACED | {"shared_memory_byte_size": -1}}, "whole number of bytes, got -1"),
        ({"parameters": PLACED | {"shared_memory_offset": True}}, "whole number of bytes, got true"),
    ],
)
def test_an_input_that_contradicts_the_spec_is_named(changes: dict[str, object], sentence: str) -> None:
    assert sentence in refused_input(**changes)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "the request is not valid JSON"),
        (b'{"inputs":', "the request is not valid JSON"),
        (b"[1]", "the request must be a JSON object with 'inputs', got a list"),
        (b'{"inputs":[{"data":[1,NaN]}]}', "JSON has no NaN or infinity, send them as binary data"),
        (b'{"inputs":[{"data":[-Infinity]}]}', "JSON has no NaN or infinity, send them as binary data"),
        (b'{"inputs":[{"data":[1e999]}]}', "the request is not valid JSON"),
        (b'{"id":"\xff"}', "the request is not valid JSON"),
        (b"[" * 100_000, "the JSON is nested deeper than 8 levels (limits.json_depth)"),
        (b"{}", "'inputs' of the request must be a list of objects, got none"),
        (b'{"inputs":[1]}', "inputs[0] must be an object, got 1"),
        (
            b'{"inputs":[]}',
            "inputs 'INPUT0' and 'INPUT1' of model 'simple' are missing: expected INT32 [-1,4], INT32 [-1,4]",
        ),
    ],
)
def test_what_is_no_request_at_all_is_refused(text: bytes, sentence: str) -> None:
    assert sentence in refused(text)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"id": 5}, "'id' of the request must be a string, got 5"),
        ({"parameters": [1]}, "'parameters' of the request must be an object, got a list"),
        (
            {"parameters": {"binary_data_output": "yes"}},
            "'binary_data_output' of the request must be true or false",
        ),
        ({"outputs": 3}, "'outputs' of the request must be a list of objects, got 3"),
        (
            {"outputs": [{"name": "OUTPUT2"}]},
            "model 'simple' has no output 'OUTPUT2'; did you mean 'OUTPUT1'?",
        ),
        ({"outputs": [{"name": "OUTPUT0"}] * 2}, "output 'OUTPUT0' is asked for twice"),
        ({"outputs": [{}]}, "'name' of outputs[0] must be a string, got none"),
        (
            {"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": 1}}]},
            "'binary_data' of output 'OUTPUT0' must be true or false, got 1",
        ),
        (
            {"outputs": [{"name": "OUTPUT0", "parameters": {"classification": "3"}}]},
            "'classification' of output 'OUTPUT0' must be a whole number, 0 for none, got '3'",
        ),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(fields: dict[str, object], sentence: str) -> None:
    assert sentence in refused({"inputs": [GOOD, OTHER], **fields})


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ([GOOD] * 5, "the request names 5 inputs; at most 4 are accepted (limits.tensor_count)"),
        (
            [GOOD | {"shape": [17, 4]}, OTHER | {"shape": [17, 4]}],
            "the request has 17 rows; at most 16 are accepted (limits.rows_per_request)",
        ),
    ],
)
def test_what_exceeds_a_limit_names_it(inputs: list[object], sentence: str) -> None:
    assert refused({"inputs": inputs}, TOO_LARGE) == sentence


@pytest.mark.parametrize("shape", [[1, 2**62], [1, 2**64 - 1], [16, 65]])
def test_a_tensor_above_its_limit_is_refused_from_its_shape_alone(shape: list[int]) -> None:
    claimed = {"name": "X", "datatype": "FP32", "shape": shape, "data": []}
    assert "(limits.tensor_mb)" in refused({"inputs": [claimed]}, TOO_LARGE, ANYTHING)


def test_strings_that_pack_to_more_than_the_limit_are_refused() -> None:
    claimed = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["a" * 4096]}
    assert "BYTES [1,1] of 4100 bytes" in refused({"inputs": [claimed]}, TOO_LARGE, TEXT)


def test_a_request_at_its_limits_is_served() -> None:
    specs = [TensorSpec(name, "FP32", (-1, -1)) for name in "ABCD"]
    entries = [entry(spec.name, "FP32", (16, 64), [0.5] * 1024) for spec in specs]
    assert rest.decode(*body(*entries), model(*specs), LIMITS).call.rows == 16


def test_too_many_outputs_name_the_limit() -> None:
    document = {"inputs": [GOOD, OTHER], "outputs": [{"name": "OUTPUT0"}] * 5}
    assert "names 5 outputs" in refused(document, TOO_LARGE)


@pytest.mark.parametrize(
    ("cut", "stated", "sentence"),
    [
        (slice(None, -1), 0, "binary_data_size add up to 32 bytes, but 31 bytes follow the JSON"),
        (slice(None), 10**9, "Inference-Header-Content-Length says 1000000"),
        (slice(None), -(10**9), "Inference-Header-Content-Length says -999999"),
        (slice(None), -1, "the request is not valid JSON"),
        (slice(0), 0, "but the body has 0 bytes"),
    ],
)
def test_a_body_that_is_not_as_long_as_it_says_is_refused(cut: slice, stated: int, sentence: str) -> None:
    content, json_length = simple_body()
    sentences = refusal(lambda: rest.decode(content[cut], json_length + stated, SIMPLE, LIMITS), BAD_INPUT)
    assert sentence in sentences


def test_bytes_after_the_last_tensor_are_refused() -> None:
    content, json_length = simple_body()
    for tail in (b"x", b"x" * 100):
        decode = lambda tail=tail: rest.decode(content + tail, json_length, SIMPLE, LIMITS)  # noqa: E731
        assert f"but {32 + len(tail)} bytes follow the JSON" in refusal(decode, BAD_INPUT)


def test_a_binary_size_without_the_header_that_says_where_the_json_ends_is_refused() -> None:
    text = orjson.dumps({"inputs": [entry("X", "FP32", (1, 1), [1.0])[0]]})
    sentence = refusal(lambda: rest.decode(text, None, ANYTHING, LIMITS), BAD_INPUT)
    assert "add up to 4 bytes, but 0 bytes follow the JSON" in sentence


def test_a_binary_size_that_is_not_that_of_the_shape_is_refused() -> None:
    head, data = entry("X", "FP32", (1, 2), [1.0, 2.0])
    head["parameters"]["binary_data_size"] = 7
    content, json_length = body((head, data[:7]))
    sentence = refusal(lambda: rest.decode(content, json_length, ANYTHING, LIMITS), BAD_INPUT)
    assert sentence == "input 'X': FP32 [1,2] takes 8 bytes, got 7"


@pytest.mark.parametrize("kind", [dict, None])
def test_inputs_may_come_in_any_order_and_in_both_forms(kind: object) -> None:
    second = entry("INPUT1", "INT32", (1, 4), [5, 6, 7, 8])
    first = entry("INPUT0", "INT32", (1, 4), [1, 2, 3, 4], binary=kind is None)
    decoded = rest.decode(*body(second, first), SIMPLE, LIMITS)
    assert [parts(tensor) for tensor in decoded.call.inputs] == [
        ("INPUT0", "INT32", (1, 4), struct.pack("<4i", 1, 2, 3, 4)),
        ("INPUT1", "INT32", (1, 4), struct.pack("<4i", 5, 6, 7, 8)),
    ]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, [(0, False), (1, False)]),
        ({"outputs": []}, [(0, False), (1, False)]),
        ({"outputs": [], "parameters": {"binary_data_output": True}}, [(0, True), (1, True)]),
        ({"outputs": [{"name": "OUTPUT1"}]}, [(1, False)]),
        (
            {
                "outputs": [{"name": "OUTPUT1", "parameters": {"binary_data": False}}, {"name": "OUTPUT0"}],
                "parameters": {"binary_data_output": True},
            },
            [(1, False), (0, True)],
        ),
    ],
)
def test_outputs_are_as_asked_or_all(fields: dict[str, Any], wanted: list[tuple[int, bool]]) -> None:
    decoded = rest.decode(*simple_body(**fields), SIMPLE, LIMITS)
    assert [(output.index, output.binary) for output in decoded.wanted] == wanted


def test_a_large_body_is_shared_and_a_small_one_copied() -> None:
    """Whichever is cheaper; the call reads the same."""
    for columns, kind in ((4, bytes), (4096, memoryview)):
        content, json_length = body(entry("X", "FP32", (1, columns), [1.0] * columns))
        (tensor,) = rest.decode(content, json_length, ANYTHING, Limits()).call.inputs
        assert isinstance(tensor.data, kind)
        assert bytes(tensor.data) == content[json_length:]


@pytest.mark.parametrize(
    ("spec", "content", "shape", "data"),
    [
        (TensorSpec("X", "FP32", (-1, 2)), b"a" * 8, (1, 2), b"a" * 8),
        (TensorSpec("X", "FP32", (-1, 2, -1)), b"a" * 24, (1, 2, 3), b"a" * 24),
        (TensorSpec("X", "BYTES", (-1, 1)), b"words", (1, 1), b"\5\0\0\0words"),
        (TensorSpec("X", "BYTES", (-1, -1)), b"", (1, 1), b"\0\0\0\0"),
    ],
)
def test_a_body_without_json_is_one_row_of_the_only_input(
    spec: TensorSpec, content: bytes, shape: tuple[int, ...], data: bytes
) -> None:
    decoded = rest.decode(content, 0, model(spec), LIMITS)
    assert [parts(tensor) for tensor in decoded.call.inputs] == [("X", spec.datatype, shape, data)]
    assert [(wanted.index, wanted.binary) for wanted in decoded.wanted] == [(0, True)]
    assert (decoded.id, decoded.call.rows) == ("", 1)


@pytest.mark.parametrize(
    ("served", "content", "sentence"),
    [
        (SIMPLE, b"a" * 16, "but model 'simple' has 2 inputs"),
        (ANYTHING, b"a" * 16, "but input 'X' takes any datatype"),
        (model(TensorSpec("X", "FP32", (-1, -1, -1))), b"", "has several free dimensions"),
        (model(TensorSpec("X", "FP32", (-1, 2))), b"a" * 9, "input 'X': FP32 [1,2] takes 8 bytes, got 9"),
        (model(TensorSpec("X", "FP32", (-1, -1))), b"a" * 9, "input 'X': FP32 [1,2] takes 8 bytes, got 9"),
        (model(TensorSpec("X", "BYTES", (-1, 2))), b"a", "ends before element [0,1]"),
    ],
)
def test_a_body_without_json_whose_shape_does_not_follow_is_refused(
    served: ServedModel, content: bytes, sentence: str
) -> None:
    assert sentence in refusal(lambda: rest.decode(content, 0, served, LIMITS), BAD_INPUT)


@given(st.data())
def test_no_mutation_of_a_body_does_worse_than_a_refusal(data: st.DataObject) -> None:
    texts = entry("TEXT", "BYTES", (2, 1), ["ab", "cdef"], binary=data.draw(st.booleans()))
    content, json_length = data.draw(
        st.sampled_from([(simple_body(rows=2), SIMPLE), (body(texts, id="7"), TEXT)]).map(
            lambda pair: pair[0]
        )
    )
    served = TEXT if b"TEXT" in content else SIMPLE
    mutant = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(mutant)))
        mutant[at : at + data.draw(st.integers(0, 4))] = data.draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from([b"0", b"9", b"[", b"}", b'"', b"-1", b"null", b"true"]),
            )
        )
    stated = data.draw(st.sampled_from([json_length, json_length + 1, json_length - 1, None, 0, len(mutant)]))
    try:
        decoded = rest.decode(bytes(mutant), stated, served, LIMITS)
    except RequestError as refused:
        assert refused.outcome in (BAD_INPUT, TOO_LARGE)  # noqa: PT017  # either end is allowed
        refused.message.encode()
    else:
        assert all(tensor.shape[0] == decoded.call.rows > 0 for tensor in decoded.call.inputs)


@pytest.mark.parametrize("read", [rest.decode, rest.unfold], ids=["decode", "unfold"])
@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"paramters": {"timeout": 1}},
            "the request has an unknown key 'paramters'; did you mean 'parameters'?",
        ),
        ({"Outputs": []}, "did you mean 'outputs'?"),
        ({"model_name": "other"}, "'model_name' of the request is 'other', but its path names 'simple'"),
        ({"model_version": "2"}, "'model_version' of the request is '2', but its path names '1'"),
        ({"inputs": [GOOD | {"dtype": "INT32"}, OTHER]}, "inputs[0] has an unknown key 'dtype'"),
        (
            {"inputs": [GOOD, OTHER | {"content": 1}]},
            "inputs[1] has an unknown key 'content'; known are 'name'",
        ),
    ],
)
def test_a_key_that_nothing_reads_is_refused_by_name(
    read: Callable[..., object], document: dict[str, Any], words: str
) -> None:
    """A 200 never hides what was not done: a misspelled 'parameters' would lose its timeout."""
    text = orjson.dumps({"inputs": [GOOD, OTHER]} | document)
    assert words in refusal(lambda: read(text, None, SIMPLE, LIMITS), BAD_INPUT)


def test_a_key_of_an_output_that_nothing_reads_is_refused_by_name() -> None:
    outputs = [{"name": "OUTPUT0"}, {"name": "OUTPUT1", "parameter": {"binary_data": True}}]
    sentence = refused({"inputs": [GOOD, OTHER], "outputs": outputs})
    assert sentence == "outputs[1] has an unknown key 'parameter'; did you mean 'parameters'?"


def test_every_key_of_the_protocol_is_known() -> None:
    inputs: list[dict[str, Any]] = [each | {"parameters": {}} for each in (GOOD, OTHER)]
    outputs = [{"name": "OUTPUT0", "parameters": None}]
    asked = {"id": "1", "parameters": {"timeout": 7}, "inputs": inputs, "outputs": outputs}
    asked |= {"model_name": "simple", "model_version": "1"}  # as KServe's clients repeat them
    decoded = rest.decode(orjson.dumps(asked), None, SIMPLE, LIMITS)
    assert (decoded.id, decoded.call.timeout_us) == ("1", 7)
