"""A message looked at on the wire says what protobuf's own parser says."""

import contextlib
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from router.tensors import proto
from router.tensors.messages import NAME, SMALL_BYTES, count_contents, early_text, outline, split
from router.tensors.parts.errors import RequestError
from serving.values.specs import Limits
from serving.values.vocabulary import TOO_LARGE
from tests.router.tensors.requests import (
    ANYTHING,
    LIMITS,
    TYPED,
    Shape,
    Values,
    message,
    parts,
    refusal,
    said,
    tensors,
)

Sample = tuple[str, Shape, Values]
LARGE = Limits(tensor_bytes=1 << 20)


def numbers(count: int) -> bytes:
    """A message with that many typed numbers."""
    wire: bytes = message(("X", "INT32", (1, count), [1] * count), typed=True).SerializeToString()
    return wire


@given(st.lists(tensors(tuple(TYPED)), max_size=3), st.booleans(), st.text(max_size=5))
def test_an_outline_finds_what_a_parser_finds(samples: list[Sample], typed: bool, name: str) -> None:
    request = message(*((f"X{n}", *one) for n, one in enumerate(samples)), typed=typed)
    request.model_name = name
    request.parameters["p"].string_param = "x" * 200
    request.outputs.add(name="Y")
    wire = request.SerializeToString()
    found = outline(wire, LIMITS)
    assert found.name == name
    assert [wire[each.start : each.end] for each in found.raw] == list(request.raw_input_contents)
    parsed = [service_pb2.ModelInferRequest.InferInputTensor.FromString(wire[a:b]) for a, b in found.inputs]
    assert parsed == list(request.inputs)
    assert found.besides == len(wire) - sum(map(len, request.raw_input_contents))


@given(st.lists(tensors(), max_size=3))
def test_a_message_without_its_raw_contents_has_all_the_rest(samples: list[Sample]) -> None:
    request = message(*((f"X{n}", *one) for n, one in enumerate(samples)), id="7")
    wire = request.SerializeToString()
    rest, contents = split(wire, outline(wire, LIMITS))
    assert [bytes(each) for each in contents] == list(request.raw_input_contents)
    request.ClearField("raw_input_contents")
    assert service_pb2.ModelInferRequest.FromString(rest) == request


@given(tensors(tuple(TYPED)))
def test_unfolded_typed_contents_are_the_same_call(sample: Sample) -> None:
    request = message(("X", *sample), typed=True, id="7")
    request.parameters["timeout"].int64_param = 5_000
    request.outputs.add(name="X")
    unfolded = proto.unfold(request.SerializeToString(), ANYTHING, LIMITS)
    found, apart = proto.parse(unfolded, outline(unfolded, LIMITS))
    assert not any(entry.HasField("contents") for entry in found.inputs)
    plain, other = (
        proto.decode(request, ANYTHING, LIMITS),
        proto.decode(found, ANYTHING, LIMITS, apart),
    )
    assert [parts(t) for t in other.call.inputs] == [parts(t) for t in plain.call.inputs]
    assert said(other) == said(plain)


def test_the_raw_contents_of_a_large_message_are_not_copied() -> None:
    wire = message(("X", "UINT8", (1, 100_000), [7] * 100_000)).SerializeToString()
    assert len(wire) > SMALL_BYTES
    request, apart = proto.parse(wire, outline(wire, LARGE))
    assert apart is not None
    (tensor,) = proto.decode(request, ANYTHING, LARGE, apart).call.inputs
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is wire
    assert tensor.data == b"\x07" * 100_000


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_by_a_sentence(wire: bytes) -> None:
    with contextlib.suppress(RequestError):
        found = outline(wire, LIMITS)
        count_contents(wire, found, LIMITS)
        proto.parse(wire, found)


@given(st.data())
def test_damaged_messages_are_read_as_the_parser_reads_them_or_refused(data: st.DataObject) -> None:
    wire = bytearray(message(("X", "INT32", (1, 3), [1, 2, 3]), typed=True).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RequestError):
        unfolded = proto.unfold(bytes(wire), ANYTHING, LIMITS)
        proto.decode(service_pb2.ModelInferRequest.FromString(unfolded), ANYTHING, LIMITS)


@pytest.mark.parametrize("field", [b"\x2a\x00", b"\x3a\x00", b"\x32\x00", b"\x22\x04\x0a\x00\x12\x00"])
def test_fields_are_counted_before_they_become_objects(field: bytes) -> None:
    assert outline(field * 80, LIMITS).besides > 0
    sentence = refusal(lambda: outline(field * 1_000_000, LIMITS), TOO_LARGE)
    assert sentence.startswith("the message has more than 80 fields; a request names at most 4 inputs")


def test_typed_elements_are_counted_packed_and_one_by_one() -> None:
    limits = Limits(element_count=1000)
    one_by_one = message(("X", "INT32", (1, 0), []), typed=True)
    for datatype in ("INT32", "FP32", "FP64", "BOOL"):
        fit, over = (
            message(("X", datatype, (1, count), [1] * count), typed=True).SerializeToString()
            for count in (1000, 1001)
        )
        count_contents(fit, outline(fit, limits), limits)
        sentence = refusal(lambda over=over: count_contents(over, outline(over, limits), limits), TOO_LARGE)  # type: ignore[misc]
        assert "at most 1000 are accepted (limits.element_count): send raw_input_contents" in sentence
    contents = b"\x10\x01" * 1001  # int_contents, not packed
    tensor = one_by_one.inputs[0].SerializeToString() + b"\x2a" + bytes([0xD2, 0x0F]) + contents
    wire = b"\x2a" + bytes([len(tensor) & 0x7F | 0x80, len(tensor) >> 7]) + tensor
    assert len(service_pb2.ModelInferRequest.FromString(wire).inputs[0].contents.int_contents) == 1001
    assert "limits.element_count" in refusal(
        lambda: count_contents(wire, outline(wire, limits), limits), TOO_LARGE
    )


def test_texts_are_counted_before_they_become_objects() -> None:
    limits = Limits(bytes_count=10)
    wire = message(("X", "BYTES", (1, 11), [""] * 11), typed=True).SerializeToString()
    sentence = refusal(lambda: count_contents(wire, outline(wire, limits), limits), TOO_LARGE)
    assert sentence == "the request has more than 10 elements of BYTES (limits.bytes_count)"


def test_what_a_raw_request_says_besides_its_tensors_is_bounded() -> None:
    request = message(("X", "INT32", (1, 1), [1]), id="x" * SMALL_BYTES)
    found = outline(request.SerializeToString(), LIMITS)
    sentence = refusal(lambda: proto.check_besides(found), TOO_LARGE)
    assert sentence.endswith("bytes besides its tensors; at most 65536 are accepted")


def test_dimensions_are_counted_before_they_become_objects() -> None:
    wire = message(("X", "INT32", (1,) * 70_000, [])).SerializeToString()
    sentence = refusal(lambda: count_contents(wire, outline(wire, LIMITS), LIMITS), TOO_LARGE)
    assert sentence == "the inputs say more than 65536 things besides their contents"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_models_name_is_found_without_a_parse(packed: bool) -> None:
    request = service_pb2.ModelInferRequest(model_name="identity", model_version="1", id="7")
    request.inputs.add(name="X", datatype="UINT8", shape=[1, 300_000])
    request.raw_input_contents.append(bytes(300_000))
    whole = bytes(request.SerializeToString())
    assert early_text(gzip.compress(whole) if packed else whole, NAME) == "identity"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xff",
        b"\x0a\x05ab",
        b"\x0a\x02\xff\xfe",
        b"\x1f\x8b\xff",
        b"\x0a\x81\x10" + b"x" * 2049,
        b"\x3a\x00" * 1_000_000 + b"\x0a\x01a",
    ],
    ids=["empty", "no field", "cut", "no text", "no gzip", "a long name", "a name far behind"],
)
def test_where_no_models_name_is_near_the_start_there_is_none(message: bytes) -> None:
    assert early_text(message, NAME) == ""
