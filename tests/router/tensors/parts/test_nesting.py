import time

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.tensors.parts.errors import RequestError
from router.tensors.parts.nesting import booleans_possible, flatten, too_deep
from tests.seeds import drawn

Json = st.recursive(
    st.one_of(st.booleans(), st.integers(-9, 9), st.text('[]{}"\\a', max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("[]{}", max_size=2), inner)),
    max_leaves=8,
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def booleans_in_lists(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(booleans_in_lists, value.values()))
    return isinstance(value, list) and any(isinstance(v, bool) or booleans_in_lists(v) for v in value)


@settings(max_examples=drawn(50))
@given(Json, st.integers(1, 5))
def test_depth_counts_brackets_but_not_those_in_strings(value: object, limit: int) -> None:
    assert too_deep(orjson.dumps(value), limit) == (depth_of(value) > limit)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_a_hundred_thousand_levels_are_too_deep(text: bytes) -> None:
    assert too_deep(text, 32)


def test_levels_add_up_across_the_blocks_of_the_scan() -> None:
    text = b"[" + b"[]," * 100_000 + b"[[0]]]"
    assert too_deep(text, 2)
    assert not too_deep(text, 3)


@pytest.mark.parametrize("tail", [b'"' + b'\\"' * 200_000, b'"a' * 200_001, b'"\\' * 200_000])
def test_quotes_and_escapes_that_never_end_take_one_pass(tail: bytes) -> None:
    """A backtracking scan would need minutes for these."""
    started = time.process_time()
    too_deep(b"[]" * 40 + tail, 32)
    assert time.process_time() - started < 1


@settings(max_examples=drawn(50))
@given(Json, st.booleans())
def test_lists_with_booleans_are_never_overlooked(value: object, spaced: bool) -> None:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if spaced else None)
    assert booleans_possible(text) or not booleans_in_lists(value)


def test_a_flag_of_the_request_does_not_cost_the_look_at_each_element() -> None:
    assert not booleans_possible(b'{"inputs":[{"data":[1,0]}],"parameters":{"binary_data_output": true}}')
    assert booleans_possible(b'{"inputs":[{"data":[1, true]}]}')


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[[1], [2], [3]], [[4], [5], [6]]]])
def test_data_is_flat_or_nested_as_its_shape(data: object) -> None:
    assert flatten("X", (2, 3, 1), data) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([1, 2, 3], "shape [2,2] takes 4 elements, got 3"),
        ([], "shape [2,2] takes 4 elements, got 0"),
        ([[1, 2]], "shape [2,2] takes 2 rows, got 1"),
        ([[1, 2], [3]], "data at [1] must be a list of 2 to fit shape [2,2], got 1"),
        ([[1, 2], 3], "data at [1] must be a list of 2 to fit shape [2,2], got no list"),
        ("abcd", "data must be a list"),
        (None, "data must be a list"),
    ],
)
def test_ragged_and_miscounted_data_is_refused(data: object, sentence: str) -> None:
    with pytest.raises(RequestError) as caught:
        flatten("X", (2, 2), data)
    assert caught.value.message == f"input 'X': {sentence}"
