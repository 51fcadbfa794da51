from hypothesis import given
from hypothesis import strategies as st

from router.tensors import proto, rest
from serving.values.tensor import DATATYPES, Tensor
from tests.router.tensors.requests import (
    ANYTHING,
    LIMITS,
    TYPED,
    Shape,
    Values,
    body,
    completed,
    entry,
    message,
    parts,
    raw,
    read_answer,
    tensors,
)

Sample = tuple[str, Shape, Values]


def nested(shape: Shape, values: Values) -> Values:
    return [values[row * shape[1] : (row + 1) * shape[1]] for row in range(shape[0])]


@given(tensors(), st.booleans())
def test_binary_and_json_requests_of_the_same_data_are_the_same_call(sample: Sample, is_nested: bool) -> None:
    datatype, shape, values = sample
    expected = ("X", datatype, shape, raw(datatype, values))
    binary = rest.decode(*body(entry("X", *sample)), ANYTHING, LIMITS)
    data = nested(shape, values) if is_nested else values
    text, _ = body(entry("X", datatype, shape, data, binary=False))
    assert [parts(tensor) for tensor in binary.call.inputs] == [expected]
    assert [parts(tensor) for tensor in rest.decode(text, None, ANYTHING, LIMITS).call.inputs] == [expected]
    assert binary.call.rows == shape[0]


@given(tensors())
def test_a_raw_grpc_request_carries_its_bytes_unchanged(sample: Sample) -> None:
    datatype, _, values = sample
    decoded = proto.decode(message(("X", *sample)), ANYTHING, LIMITS)
    assert [parts(tensor) for tensor in decoded.call.inputs] == [("X", *sample[:2], raw(datatype, values))]


@given(tensors(tuple(TYPED)))
def test_a_typed_grpc_request_is_the_same_call_as_a_raw_one(sample: Sample) -> None:
    datatype, _, values = sample
    decoded = proto.decode(message(("X", *sample), typed=True), ANYTHING, LIMITS)
    assert [parts(tensor) for tensor in decoded.call.inputs] == [("X", *sample[:2], raw(datatype, values))]


@given(tensors(), st.sampled_from([bytes, bytearray, memoryview]))
def test_the_kind_of_buffer_that_holds_the_body_makes_no_difference(sample: Sample, kind: type) -> None:
    content, json_length = body(entry("X", *sample))
    plain = rest.decode(content, json_length, ANYTHING, LIMITS)
    other = rest.decode(kind(content), json_length, ANYTHING, LIMITS)
    assert [parts(t) for t in plain.call.inputs] == [parts(t) for t in other.call.inputs]


@given(tensors(), st.booleans(), st.text(st.characters(exclude_categories=["Cs"]), max_size=3))
def test_what_an_answer_says_is_what_a_request_of_it_means(
    sample: Sample, binary: bool, request_id: str
) -> None:
    """Answers use the same form as requests, so an answer's outputs can be sent as inputs."""
    datatype, shape, values = sample
    request = body(entry("X", *sample), id=request_id, parameters={"binary_data_output": binary})
    decoded = rest.decode(*request, ANYTHING, LIMITS)
    output = Tensor("X", datatype, shape, raw(datatype, values))
    answer, json_length = rest.encode(decoded, completed(output))
    assert (json_length is not None) == binary
    as_request = answer.replace(b'"outputs":[', b'"inputs":[', 1)
    if json_length is not None:
        json_length -= 1
    back = rest.decode(as_request, json_length, ANYTHING, LIMITS)
    assert [parts(tensor) for tensor in back.call.inputs] == [parts(output)]
    assert back.id == request_id == decoded.id


@given(tensors(), st.sampled_from(["", "abc"]))
def test_a_grpc_answer_carries_the_outputs_raw(sample: Sample, request_id: str) -> None:
    datatype, shape, values = sample
    decoded = proto.decode(message(("X", *sample), id=request_id), ANYTHING, LIMITS)
    data = raw(datatype, values)
    wire = proto.encode(decoded, completed(Tensor("X", datatype, shape, memoryview(data))))
    answer = read_answer(wire)
    (output,) = answer.outputs
    assert (output.name, output.datatype, tuple(output.shape)) == ("X", datatype, shape)
    assert list(answer.raw_output_contents) == [data]
    assert (answer.model_name, answer.model_version, answer.id) == ("simple", "1", request_id)
    assert not output.HasField("contents")


def test_every_datatype_is_in_the_samples() -> None:
    assert set(TYPED) | {"FP16", "BF16"} == set(DATATYPES)
