"""The file of a recording: what is written is read, what is cut off is read up to there, damage is told."""

import json
import struct
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.recording import (
    ARRIVAL_TYPE,
    MAGIC,
    RECORD,
    RecordedFlow,
    arrivals_block,
    flows_block,
    header,
    parse,
    read,
)

START_UNIX_US = 1_700_000_000_000_000
FLOWS = (
    RecordedFlow("digits", "default", "", 25_000),
    RecordedFlow("minilm", "shop", "int8", 250_000, "gold"),
)

Record = tuple[int, int, int, int, int]
Block = tuple[int, list[Record]]

int32s, uint32s = st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1)
records = st.tuples(int32s, uint32s, st.integers(0, 1), st.integers(1, 2**32 - 1), uint32s)
blocks = st.lists(st.tuples(st.integers(-(2**50), 2**50), st.lists(records, max_size=4)), max_size=4)
flows = st.builds(RecordedFlow, st.text(), st.text(), st.text(), st.integers(1, 2**40), st.text())

TWO_BLOCKS: list[Block] = [(0, [(0, 0, 0, 1, 0), (40, 5_000, 0, 8, 0)]), (10**6, [(-7, 0, 1, 1, 300)])]


def written(content: list[Block], names: tuple[RecordedFlow, ...] = FLOWS) -> bytes:
    """A file whose second flow comes after the first block."""
    file = header(START_UNIX_US) + flows_block(names[:1])
    for place, (base_us, rows) in enumerate(content):
        file += flows_block(names[1:]) if place == 1 else b""
        file += arrivals_block(base_us, b"".join(RECORD.pack(*row) for row in rows))
    return file


def expected(content: list[Block]) -> list[Record]:
    return [(base_us + offset_us, *rest) for base_us, rows in content for offset_us, *rest in rows]  # type: ignore[misc]


@given(blocks, flows, flows)
def test_what_is_written_is_read(content: list[Block], first: RecordedFlow, second: RecordedFlow) -> None:
    content = [(0, []), *content]  # requests of the second flow come after its name
    recording = parse(written([*content, (0, [])], (first, second)))
    assert recording.start_unix_us == START_UNIX_US
    assert recording.flows == (first, second)
    assert recording.arrivals.dtype == ARRIVAL_TYPE
    assert recording.arrivals.tolist() == expected(content)
    assert recording.cut == ""


def test_a_file_cut_off_at_any_byte_is_read_up_to_there_and_says_so() -> None:
    whole, requests = written(TWO_BLOCKS), expected(TWO_BLOCKS)
    ends = {len(written(TWO_BLOCKS[:count])) for count in (0, 1, 2)} | {len(header(0))}
    ends.add(len(written(TWO_BLOCKS)) - len(arrivals_block(0, bytes(RECORD.size))))  # before the second block
    seen = set()
    for length in range(len(whole) + 1):
        recording = parse(whole[:length])
        count = len(recording.arrivals)
        seen.add(count)
        assert recording.arrivals.tolist() == requests[:count]
        assert (recording.cut == "") == (length in ends), length
        if recording.cut:
            assert str(length) in recording.cut
    assert seen == {0, 1, 2, 3}


@given(st.data())
def test_any_changed_byte_is_noticed(data: st.DataObject) -> None:
    whole = bytearray(written(TWO_BLOCKS))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match=r"damaged|expected the header"):
        parse(bytes(whole))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"model,rows\n1,2\n", "it begins with b'model,ro', expected the header of a recording of version 1 "
         "to 2, which begins with b'PENSTOCK'"),
        (header(0)[:8] + b"\x00" + header(0)[9:], "it has version 0, expected"),
        (header(0)[:8] + b"\x07" + header(0)[9:], "it has version 7, expected"),
        (header(0)[:12] + b"\x01" + header(0)[13:], "its header is damaged (checksum), expected"),
        (header(0) + b"?" + bytes(12), "damaged at byte 22: expected the head of a block, got one of "
         "kind b'?'"),
        (header(0) + flows_block(FLOWS)[:-1] + b"!", "damaged within the block of byte 22: expected "),
        (header(0) + arrivals_block(0, RECORD.pack(0, 0, 0, 1, 0)), "damaged at byte 22: expected requests "
         "of rows >= 1 in one of 0 flows"),
        (header(0) + flows_block([("m", "t", "", "25")]), "damaged at byte 22: expected model, "  # type: ignore[list-item]
         "tenant, variant, SLO and tier, got ['m', 't', '', '25', '']"),
        (header(0) + flows_block([("m", "t", "", 25, 3)]), "damaged at byte 22: expected model, "  # type: ignore[list-item]
         "tenant, variant, SLO and tier, got ['m', 't', '', 25, 3]"),
        (header(0) + flows_block([("m",)]), "damaged at byte 22: expected a list of flows"),  # type: ignore[list-item]
        (header(1 << 63), f"it starts {1 << 63} us after 1970, expected at most {1 << 60}"),
        (header(0) + arrivals_block(-(1 << 61), b""), f"damaged at byte 22: its requests are {-(1 << 61)} us"
         " from the start of the file"),
    ],
)  # fmt: skip
def test_a_foreign_or_damaged_file_is_named_with_what_was_expected(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = tmp_path / "x.arrivals"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the sentence is compared
        read(path)
    assert str(caught.value).startswith(f"cannot read the recording {path}: {sentence}")


def test_a_file_of_version_1_is_read_as_of_requests_that_asked_for_no_tier() -> None:
    names = json.dumps([["digits", "shop", "cnn", 25_000]]).encode()  # as docs/recording.md had it then
    head = struct.pack("<8sHQ", b"PENSTOCK", 1, START_UNIX_US)
    block = struct.pack("<cII", b"N", len(names), crc32(names))
    body = struct.pack("<q", 7) + RECORD.pack(3, 0, 0, 2, 0)
    last = struct.pack("<cII", b"A", len(body), crc32(body))
    parts = (head, block, names, last, body)
    recording = parse(
        b"".join(part if part in (names, body) else part + struct.pack("<I", crc32(part)) for part in parts)
    )
    assert recording.start_unix_us == START_UNIX_US
    assert recording.flows == (RecordedFlow("digits", "shop", "cnn", 25_000, ""),)
    assert recording.arrivals.tolist() == [(10, 0, 0, 2, 0)]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read the recording .*gone: No such file"):
        read(tmp_path / "gone")


def test_an_arrival_costs_18_bytes() -> None:
    one, many = (len(written([(0, [(0, 0, 0, 1, 0)] * count)])) for count in (1, 1001))
    assert (many - one) / 1000 == RECORD.size == 18


def test_an_empty_file_is_a_recording_of_nothing() -> None:
    recording = parse(b"")
    assert (len(recording.arrivals), recording.cut) == (0, "ends after 0 bytes, within its header")
    assert np.array_equal(parse(MAGIC).arrivals, recording.arrivals)
