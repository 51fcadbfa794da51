"""Promises of shared memory: grows on demand, keeps old views, never pulls memory from under a reader."""

import os
from collections.abc import Iterator

import pytest

from serving.worker.frames.shared import PORTION_BYTES, SharedArea, portions
from serving.worker.frames.wire import ProtocolError


@pytest.fixture
def ends() -> Iterator[tuple[SharedArea, SharedArea]]:
    writer = SharedArea.create("penstock-test")
    reader = SharedArea(os.dup(writer.fd))
    yield writer, reader
    writer.close()
    reader.close()


def test_what_one_end_writes_the_other_reads_across_growth(ends: tuple[SharedArea, SharedArea]) -> None:
    writer, reader = ends
    writer.write([b"abc", b"", memoryview(b"defg")], 7)
    first = reader.read(7)
    assert bytes(first) == b"abcdefg"
    large = os.urandom(5 << 20)
    writer.write([large[: 1 << 20], large[1 << 20 :]], len(large))
    assert reader.read(len(large)) == large
    assert first == large[:7]  # the old view is still memory, of the same area


def test_a_view_outlives_its_area(ends: tuple[SharedArea, SharedArea]) -> None:
    writer, reader = ends
    large = os.urandom(9 << 20)
    writer.write([large], len(large))
    other = SharedArea(os.dup(reader.fd))
    view = other.read(len(large))
    other.close()
    assert view == large


def test_more_buffers_than_one_system_call_takes_are_written(ends: tuple[SharedArea, SharedArea]) -> None:
    writer, reader = ends
    buffers = [bytes([number % 251]) * 3 for number in range(5000)]
    writer.write(buffers, 15_000)
    assert reader.read(15_000) == b"".join(buffers)


@pytest.mark.parametrize(
    "sizes",
    [[0], [PORTION_BYTES], [PORTION_BYTES + 1], [7, 3 * PORTION_BYTES, 0, 9], [PORTION_BYTES, 1], [1] * 2500],
)
def test_portions_are_all_of_it_in_order_and_none_is_too_large(sizes: list[int]) -> None:
    buffers = [os.urandom(size) for size in sizes]
    found = list(portions(buffers))
    assert b"".join(view for portion in found for view in portion) == b"".join(buffers)
    assert all(sum(map(len, portion)) <= PORTION_BYTES for portion in found)
    assert all(0 < len(portion) <= 1024 for portion in found)


def test_a_large_batch_is_written_a_portion_at_each_step(ends: tuple[SharedArea, SharedArea]) -> None:
    writer, reader = ends
    large = os.urandom(3 * PORTION_BYTES + 5)
    steps = list(writer.writing([large[:9], large[9:]], len(large)))
    assert steps == [PORTION_BYTES, 2 * PORTION_BYTES, 3 * PORTION_BYTES]
    assert reader.read(len(large)) == large
    assert list(writer.writing([b"small"], 5)) == []
    assert bytes(reader.read(5)) == b"small"


def test_a_reference_past_the_end_is_an_error(ends: tuple[SharedArea, SharedArea]) -> None:
    with pytest.raises(ProtocolError, match="refers to 99999999 bytes"):
        ends[1].read(99_999_999)


def test_the_area_cannot_be_shrunk_under_its_reader(ends: tuple[SharedArea, SharedArea]) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(ends[0].fd, 0)
