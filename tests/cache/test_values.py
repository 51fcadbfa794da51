"""What is read back is what was written, or nothing."""

import struct
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from serving.cache.entries import Entry, entry_of
from serving.cache.values import decode, encode
from serving.tensor import DATATYPES, ITEM_BYTES, Tensor

KEY = bytes(range(32))
EPOCH_US, NOW_US = 1_800_000_000_000_000, 5_000_000


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from(DATATYPES))
    shape = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=3)))
    size = ITEM_BYTES[datatype] or draw(st.integers(0, 9))
    for length in shape:
        size *= length
    return Tensor(draw(st.text(max_size=8)), datatype, shape, draw(st.binary(min_size=size, max_size=size)))


entries = st.builds(
    entry_of, st.just("m"), st.text(max_size=8), st.lists(tensors(), max_size=3), st.integers(-9, NOW_US)
)
one = entry_of("m", "int8", [Tensor("y", "FP32", (1, 2), b"12345678"), Tensor("z", "BYTES", (0,), b"")], 7)


def facts(entry: Entry) -> tuple[object, ...]:
    outputs = [(each.name, each.datatype, each.shape, bytes(each.data)) for each in entry.outputs]
    return entry.model, entry.variant, entry.stored_us, entry.bytes, outputs


def read(raw: bytes, key: bytes = KEY) -> Entry | None:
    return decode(key, raw, "m", EPOCH_US, NOW_US)


@given(entries)
def test_an_answer_comes_back_as_it_was(entry: Entry) -> None:
    found = read(encode(KEY, entry, EPOCH_US))
    assert found is not None
    assert facts(found) == facts(entry)


def test_gateways_whose_clocks_began_at_other_times_agree_on_its_age() -> None:
    later_us = 1_000_000  # the reader's clock began so much after the writer's
    found = decode(KEY, encode(KEY, one, EPOCH_US), "m", EPOCH_US + later_us, NOW_US)
    assert found is not None
    assert NOW_US - found.stored_us == NOW_US + later_us - one.stored_us


def test_computed_in_the_future_by_anothers_clock_is_computed_now() -> None:
    found = decode(KEY, encode(KEY, one, EPOCH_US), "m", EPOCH_US - 2 * NOW_US, NOW_US)
    assert found is not None
    assert found.stored_us == NOW_US


def test_it_takes_few_bytes_more_than_its_tensors() -> None:
    assert len(encode(KEY, one, EPOCH_US)) - 8 < 80


def test_every_truncation_and_every_addition_is_a_miss() -> None:
    raw = encode(KEY, one, EPOCH_US)
    assert [length for length in range(len(raw)) if read(raw[:length])] == []
    assert read(raw + b"\0") is None


def test_every_flipped_bit_is_a_miss() -> None:
    raw = encode(KEY, one, EPOCH_US)
    flipped = [
        raw[:n] + bytes([raw[n] ^ (1 << bit)]) + raw[n + 1 :] for n in range(len(raw)) for bit in range(8)
    ]
    assert [each for each in flipped if read(each)] == []


def test_an_answer_to_another_question_is_a_miss() -> None:
    assert read(encode(KEY, one, EPOCH_US), bytes(32)) is None


@given(st.binary(max_size=200))
def test_anything_else_is_a_miss(raw: bytes) -> None:
    assert read(raw) is None


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_whatever_is_in_it_nothing_raises_though_its_checksum_be_right(
    body: bytes, at: int, length: int
) -> None:
    whole = encode(KEY, one, EPOCH_US)[9:]
    for each in (body, whole[:at] + body + whole[at + length :]):
        found = read(struct.pack("<5sI", b"PNST\x01", crc32(each, crc32(KEY))) + each)
        for tensor in found.outputs if found else ():
            size = ITEM_BYTES[tensor.datatype]
            for dimension in tensor.shape:
                size *= dimension
            assert not ITEM_BYTES[tensor.datatype] or size == len(tensor.data)
