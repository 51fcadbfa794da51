"""What is read back is what was written, or nothing."""

import struct
from hmac import digest

from hypothesis import given
from hypothesis import strategies as st

from serving.cache.entries import KeptAnswer, entry_of
from serving.cache.values import decode, encode, seal_of
from serving.values.tensor import DATATYPES, ITEM_BYTES, Tensor

KEY = bytes(range(32))
SEAL = seal_of("a secret of the gateways")
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


def facts(entry: KeptAnswer) -> tuple[object, ...]:
    outputs = [(each.name, each.datatype, each.shape, bytes(each.data)) for each in entry.outputs]
    return entry.model, entry.variant, entry.stored_us, entry.bytes, outputs


def read(raw: bytes, key: bytes = KEY) -> KeptAnswer | None:
    return decode(key, raw, "m", (EPOCH_US, NOW_US), SEAL)


@given(entries)
def test_an_answer_comes_back_as_it_was(entry: KeptAnswer) -> None:
    found = read(encode(KEY, entry, EPOCH_US, SEAL))
    assert found is not None
    assert facts(found) == facts(entry)


def test_gateways_whose_clocks_began_at_other_times_agree_on_its_age() -> None:
    later_us = 1_000_000  # the reader's clock began so much after the writer's
    found = decode(KEY, encode(KEY, one, EPOCH_US, SEAL), "m", (EPOCH_US + later_us, NOW_US), SEAL)
    assert found is not None
    assert NOW_US - found.stored_us == NOW_US + later_us - one.stored_us


def test_computed_in_the_future_by_anothers_clock_is_computed_now() -> None:
    found = decode(KEY, encode(KEY, one, EPOCH_US, SEAL), "m", (EPOCH_US - 2 * NOW_US, NOW_US), SEAL)
    assert found is not None
    assert found.stored_us == NOW_US


def test_it_takes_few_bytes_more_than_its_tensors() -> None:
    assert len(encode(KEY, one, EPOCH_US, SEAL)) - 8 < 105


def test_every_truncation_and_every_addition_is_a_miss() -> None:
    raw = encode(KEY, one, EPOCH_US, SEAL)
    assert [length for length in range(len(raw)) if read(raw[:length])] == []
    assert read(raw + b"\0") is None


def test_every_flipped_bit_is_a_miss() -> None:
    raw = encode(KEY, one, EPOCH_US, SEAL)
    flipped = [
        raw[:n] + bytes([raw[n] ^ (1 << bit)]) + raw[n + 1 :] for n in range(len(raw)) for bit in range(8)
    ]
    assert [each for each in flipped if read(each)] == []


def test_an_answer_to_another_question_is_a_miss() -> None:
    assert read(encode(KEY, one, EPOCH_US, SEAL), bytes(32)) is None


def test_an_answer_that_is_signed_with_another_secret_or_none_is_a_miss() -> None:
    for secret in ("", "another"):
        assert read(encode(KEY, one, EPOCH_US, seal_of(secret))) is None


@given(st.binary(max_size=200))
def test_anything_else_is_a_miss(raw: bytes) -> None:
    assert read(raw) is None


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_whatever_is_in_it_nothing_raises_though_it_be_signed(body: bytes, at: int, length: int) -> None:
    whole = encode(KEY, one, EPOCH_US, SEAL)[37:]
    for each in (body, whole[:at] + body + whole[at + length :]):
        found = read(struct.pack("<5s32s", b"PNST\x02", digest(SEAL, KEY + each, "sha256")) + each)
        for tensor in found.outputs if found else ():
            size = ITEM_BYTES[tensor.datatype]
            for dimension in tensor.shape:
                size *= dimension
            assert not ITEM_BYTES[tensor.datatype] or size == len(tensor.data)
