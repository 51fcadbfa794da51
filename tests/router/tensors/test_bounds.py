"""What a REST request may cost is bounded before it is parsed, and unfolding changes no request."""

import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.protocol.rest import is_bulk, is_bulk_answer
from router.tensors import rest
from router.tensors.parts.errors import RequestError
from router.tensors.parts.nesting import over_count
from router.tensors.request.decoded import Decoded
from serving.values.specs import Limits
from serving.values.tensor import Tensor
from serving.values.vocabulary import BAD_INPUT, TOO_LARGE
from tests.router.tensors.requests import (
    ANYTHING,
    LIMITS,
    Shape,
    Values,
    body,
    completed,
    entry,
    parts,
    refusal,
    said,
    tensors,
)

Sample = tuple[str, Shape, Values]
Json = st.recursive(
    st.one_of(st.booleans(), st.integers(-9, 9), st.text('[]{},"\\a', max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4), st.dictionaries(st.text(",", max_size=2), inner, min_size=1)
    ),
    max_leaves=12,
)


def values_in(document: object) -> int:
    """Those in an array or object, all levels together."""
    if isinstance(document, dict):
        return len(document) + sum(map(values_in, document.values()))
    return len(document) + sum(map(values_in, document)) if isinstance(document, list) else 0


@given(Json, st.integers(0, 12))
def test_values_are_counted_and_commas_in_strings_are_not(document: object, limit: int) -> None:
    assert over_count(orjson.dumps(document), limit) == (values_in(document) > limit)


@pytest.mark.parametrize(
    "text",
    [
        b'{"inputs":[' + b",".join([b"{}"] * 2000) + b"]}",
        b'{"inputs":[' + b",".join([b"1"] * 2000) + b"]}",
        b'{"inputs":[{"name":"X","shape":[' + b",".join([b"1"] * 2000) + b"]}]}",
    ],
)
def test_values_are_counted_before_they_become_objects(text: bytes) -> None:
    limits = Limits(element_count=1000)
    sentence = refusal(lambda: rest.decode(text, None, ANYTHING, limits), TOO_LARGE)
    assert sentence.startswith("the request has more than 1000 values in its JSON (limits.element_count)")


def test_json_has_a_size_of_its_own() -> None:
    limits = Limits(json_bytes=1000)
    text = orjson.dumps({"id": "x" * 1000})
    sentence = refusal(lambda: rest.decode(text, None, ANYTHING, limits), TOO_LARGE)
    assert sentence == (
        "the request has 1009 bytes of JSON; at most 1000 are accepted (limits.json_mb): "
        "send large tensors as binary data"
    )
    binary = body(entry("X", "UINT8", (1, 4000), [1] * 4000))
    assert rest.decode(*binary, ANYTHING, limits).call.rows == 1


@pytest.mark.parametrize("binary", [True, False])
def test_bytes_elements_are_counted_before_they_are_read(binary: bool) -> None:
    limits = Limits(bytes_count=100)
    text, json_length = body(entry("X", "BYTES", (1, 101), [""] * 101, binary=binary))
    length = json_length if binary else None
    sentence = refusal(lambda: rest.decode(text, length, ANYTHING, limits), TOO_LARGE)
    assert sentence == (
        "input 'X': BYTES [1,101] has 101 elements; at most 100 are accepted (limits.bytes_count)"
    )


@given(tensors(), st.booleans(), st.integers(0, 3))
def test_an_unfolded_request_is_the_same_call(sample: Sample, binary: bool, timeout: int) -> None:
    more = {"id": "7", "parameters": {"timeout": timeout * 1000}, "outputs": [{"name": "X"}]}
    text, json_length = body(entry("X", *sample, binary=binary), **(more if timeout else {}))
    length = json_length if binary else None
    plain = rest.decode(text, length, ANYTHING, LIMITS)
    other = rest.decode(*rest.unfold(text, length, ANYTHING, LIMITS), ANYTHING, LIMITS)
    assert [parts(t) for t in other.call.inputs] == [parts(t) for t in plain.call.inputs]
    assert said(other) == said(plain)


@given(st.dictionaries(st.sampled_from(["inputs", "outputs", "parameters", "id", "more"]), Json))
def test_unfolding_refuses_what_decoding_refuses_of_its_inputs(document: dict[str, object]) -> None:
    text = orjson.dumps(document)
    outcomes = []
    for read in (rest.unfold, rest.decode):
        with contextlib.suppress(TypeError), pytest.raises(RequestError) as caught:
            read(text, None, ANYTHING, LIMITS)
        outcomes.append(caught.value.outcome)
    assert outcomes[0] == outcomes[1]


def test_what_an_unfolded_request_says_besides_its_tensors_is_bounded() -> None:
    text, _ = body(entry("X", "INT32", (1, 1), [1], binary=False), id="x" * (1 << 16))
    sentence = refusal(lambda: rest.unfold(text, None, ANYTHING, Limits()), TOO_LARGE)
    assert "bytes of JSON besides its tensors; at most 65536 are accepted" in sentence


@pytest.mark.parametrize(
    ("size", "fields", "expected"),
    [
        (1 << 16, {}, False),
        (1 + (1 << 16), {}, True),
        (1 << 20, {b"inference-header-content-length": b"200"}, False),
        (1 << 20, {b"inference-header-content-length": b"70000"}, True),
        (1 << 20, {b"inference-header-content-length": b"x"}, False),
        (20, {b"content-encoding": b"gzip"}, True),
    ],
)
def test_much_json_and_compressed_bodies_are_read_elsewhere(
    size: int, fields: dict[bytes, bytes], expected: bool
) -> None:
    assert is_bulk(bytes(size), fields) is expected


def asked(shape: Shape, *, binary: bool) -> tuple[Decoded, Tensor]:
    """A call that wants X, and an answer of zeros of that shape."""
    parameters = {"binary_data_output": binary}
    text, length = body(entry("X", "UINT8", (1, 1), [1]), parameters=parameters)
    size = shape[0] * shape[1]
    return rest.decode(text, length, ANYTHING, LIMITS), Tensor("X", "UINT8", shape, bytes(size))


@pytest.mark.parametrize(
    ("size", "binary", "fields", "expected"),
    [
        (1 << 15, False, {}, False),
        (1 + (1 << 15), False, {}, True),
        (1 << 22, True, {}, False),
        (1 << 22, True, {b"accept-encoding": b"gzip"}, True),
        (1 << 17, True, {b"accept-encoding": b"gzip"}, False),
    ],
)
def test_much_json_and_much_to_compress_is_written_elsewhere(
    size: int, binary: bool, fields: dict[bytes, bytes], expected: bool
) -> None:
    decoded, output = asked((1, size), binary=binary)
    assert is_bulk_answer(decoded, completed(output), fields, Limits()) is expected


def test_an_answer_of_more_elements_than_a_request_may_have_is_binary_only() -> None:
    limits = Limits(element_count=1000)
    decoded, output = asked((1, 1001), binary=False)
    sentence = refusal(lambda: is_bulk_answer(decoded, completed(output), {}, limits), BAD_INPUT)
    assert sentence == (
        "the answer has 1001 elements; at most 1000 are written as JSON (limits.element_count): "
        "ask for its outputs with binary_data true"
    )
    decoded, output = asked((1, 1001), binary=True)
    assert not is_bulk_answer(decoded, completed(output), {}, limits)
