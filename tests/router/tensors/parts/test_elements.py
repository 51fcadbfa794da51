import math
import random
import struct
import tracemalloc
from fractions import Fraction

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.tensors.parts.elements import list_elements, longest_element, pack_elements
from router.tensors.parts.errors import RequestError
from serving.values.tensor import MARK_BYTES, SCANNED_BYTES, Tensor, text_size

doubles = st.floats(allow_nan=False, allow_infinity=False)
near_bf16 = st.builds(  # where a double lies next to the middle between two BF16 numbers
    lambda bits, low: struct.unpack("<d", struct.pack("<Q", bits << 44 | low))[0],
    st.integers(0x37F00, 0x47F00),
    st.sampled_from([0, 1, 2, (1 << 44) - 1, (1 << 43), (1 << 15), (1 << 16) - 1]),
)


def bf16(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def nearest_bf16(value: float) -> int | None:
    """By exact fractions: bits of the nearest, the even one of two as near; None beyond the range."""
    if abs(Fraction(value)) >= Fraction(bf16(0x7F7F)) + Fraction(2) ** 119:
        return None
    low, high = 0, 0x7F7F
    while low < high:  # the greatest that is not above
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bf16(middle) <= abs(value) else (low, middle - 1)
    above = 2 * (Fraction(abs(value)) - Fraction(bf16(low))) - (
        (Fraction(bf16(low + 1)) if low < 0x7F7F else Fraction(2) ** 128) - Fraction(bf16(low))
    )
    bits = low + (above > 0 or (above == 0 and low % 2 == 1))
    return bits | (0x8000 if math.copysign(1, value) < 0 else 0)


@given(st.one_of(doubles, near_bf16, st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_bf16_rounds_once_to_the_nearest_and_ties_to_even(value: float) -> None:
    expected = nearest_bf16(value)
    if expected is None:
        with pytest.raises(RequestError, match=r"to be BF16, got .* beyond its range"):
            pack_elements("X", "BF16", (1, 1), [value], booleans=False)
    else:
        assert pack_elements("X", "BF16", (1, 1), [value], booleans=False) == struct.pack("<H", expected)


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.00390625, 0x3F80), (1.01171875, 0x3F82), (math.nextafter(1.00390625, 2), 0x3F81), (-0.0, 0x8000)],
)
def test_bf16_of_ties_and_of_what_lies_just_above_one(value: float, bits: int) -> None:
    assert pack_elements("X", "BF16", (1,), [value], booleans=False) == struct.pack("<H", bits)


@pytest.mark.parametrize(
    ("value", "bits"), [(1.00048828125, 0x3C00), (1.00146484375, 0x3C02), (65519.99, 0x7BFF), (1e-9, 0)]
)
def test_fp16_rounds_to_the_nearest_and_ties_to_even(value: float, bits: int) -> None:
    assert pack_elements("X", "FP16", (1,), [value], booleans=False) == struct.pack("<H", bits)


@pytest.mark.parametrize("value", [2**53 + 1, 2**63 - 1, -(2**63)])
def test_64_bit_integers_keep_every_bit(value: int) -> None:
    packed = pack_elements("X", "INT64", (1,), [value], booleans=False)
    assert packed == value.to_bytes(8, "little", signed=True)
    listed = orjson.dumps(
        list_elements(Tensor("X", "INT64", (1,), packed)), option=orjson.OPT_SERIALIZE_NUMPY
    )
    assert orjson.loads(listed) == [value]


@pytest.mark.parametrize(
    ("datatype", "value", "sentence"),
    [
        ("INT8", 128, "must be a whole number from -128 to 127 to be INT8, got 128"),
        ("UINT16", -1, "must be a whole number from 0 to 65535 to be UINT16, got -1"),
        ("INT32", 1.5, "must be a whole number from -2147483648 to 2147483647 to be INT32, got 1.5"),
        ("UINT64", 2.0**64, "got 1.8446744073709552e+19"),
        ("FP32", 1e39, "must be a number to be FP32, got 1e+39, which is beyond its range"),
        ("FP16", 65520, "must be a number to be FP16, got 65520, which is beyond its range"),
        ("FP32", True, "must be a number to be FP32, got true"),
        ("INT32", False, "to be INT32, got false"),
        ("FP64", "1.5", "must be a number to be FP64, got '1.5'"),
        ("FP32", None, "got null; JSON has no NaN or infinity, send them as binary data"),
        ("FP32", [1.0], "got a list"),
        ("BOOL", 1, "must be true or false to be BOOL, got 1"),
        ("BYTES", 7, "must be a string to be BYTES, got 7"),
    ],
)
def test_an_element_that_does_not_fit_is_named_with_its_position(
    datatype: str, value: object, sentence: str
) -> None:
    good = {"BOOL": True, "BYTES": "a"}.get(datatype, 1)
    with pytest.raises(RequestError) as caught:
        pack_elements("X", datatype, (2, 3), [good, good, good, good, value, good], booleans=True)
    assert caught.value.message.startswith("input 'X': element [1,1] must be ")
    assert sentence in caught.value.message


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\1\0\0\0a\1\0\0", "data of 8 bytes ends before element [1,0]"),
        (b"\1\0\0\0a\5\0\0\0b", "element [1,0] says it has 5 bytes, but only 1 follow"),
        (b"\1\0\0\0a\1\0\0\0bcd", "2 bytes follow the last element of BYTES [2,1]"),
        (b"\xff\xff\xff\xffa", "element [0,0] says it has 4294967295 bytes, but only 1 follow"),
    ],
)
def test_bytes_whose_lengths_do_not_add_up_are_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(RequestError) as caught:
        longest_element(Tensor("T", "BYTES", (2, 1), data))
    assert caught.value.message.startswith("input 'T': ")
    assert sentence in caught.value.message


def test_of_a_text_each_punctuation_mark_counts_for_several_bytes() -> None:
    tensor = Tensor("T", "BYTES", (2, 1), b"\x0b\0\0\0plain words\6\0\0\0a.b(c)")
    assert longest_element(tensor) == len(b"plain words")
    assert longest_element(tensor, as_text=True) == len(b"a.b(c)") + 3 * (MARK_BYTES - 1) == 18
    assert text_size("Füße und ähnliches".encode()) == len("Füße und ähnliches".encode())


@pytest.mark.parametrize(("count", "words"), [(1, 400_000), (500, 800)], ids=["one text", "500 texts"])
def test_a_large_text_is_looked_at_in_parts_and_comes_out_as_whole(count: int, words: int) -> None:
    rng = random.Random(1)
    element = b" ".join(rng.choice([b"plain", b"word.", b"(and)", b"more"]) for _ in range(words))
    data = memoryview((struct.pack("<I", len(element)) + element) * count)
    marks = sum(element.count(mark) for mark in b".()")
    exact = len(element) + (MARK_BYTES - 1) * marks
    tracemalloc.start()
    try:
        found = longest_element(Tensor("T", "BYTES", (count, 1), data), as_text=True)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == pytest.approx(exact, rel=0.03)
    assert found == longest_element(Tensor("T", "BYTES", (count, 1), data), as_text=True)
    assert peak_bytes < 512_000  # what is looked at is copied: not all of the 2 MB


def test_texts_of_up_to_64_kb_together_are_counted_exactly() -> None:
    texts = [b"a" * 3_000 + b"." * count for count in range(20)]
    data = b"".join(struct.pack("<I", len(each)) + each for each in reversed(texts))
    assert len(data) < SCANNED_BYTES
    found = longest_element(Tensor("T", "BYTES", (20, 1), data), as_text=True)
    assert found == 3_000 + 19 * MARK_BYTES


def test_the_longest_element_counts_bytes() -> None:
    assert longest_element(Tensor("T", "BYTES", (2, 1), b"\1\0\0\0a\3\0\0\0abc")) == 3


def test_nan_and_infinity_read_null_in_json() -> None:
    tensor = Tensor("Y", "FP32", (1, 3), struct.pack("<3f", math.nan, math.inf, 1.5))
    assert orjson.dumps(list_elements(tensor), option=orjson.OPT_SERIALIZE_NUMPY) == b"[null,null,1.5]"
