"""Promises of the frames: whole or nothing, however the bytes come; garbage is named, never believed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.worker.frames.wire import (
    BUFFER_BYTES,
    HEADER,
    KEPT_BYTES,
    MAGIC,
    META_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    VERSION,
    FrameBuffer,
    FrameKind,
    ProtocolError,
    pack_frame,
)

Content = tuple[FrameKind, bytes, bytes]
contents = st.tuples(st.sampled_from(list(FrameKind)), st.binary(max_size=40), st.binary(max_size=40))


def received(buffer: FrameBuffer, chunks: list[bytes]) -> list[Content]:
    frames: list[Content] = []
    for chunk in chunks:
        waiting = chunk
        while waiting:
            space = buffer.space()
            count = min(len(space), len(waiting))
            space[:count] = waiting[:count]
            buffer.filled(count)
            waiting = waiting[count:]
            while (frame := buffer.next()) is not None:
                frames.append((frame.kind, bytes(frame.meta), bytes(frame.payload)))
    return frames


def cut(data: bytes, points: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(point % (len(data) + 1) for point in points)})
    return [data[start:end] for start, end in pairwise(places)]


@given(st.lists(contents, max_size=6), st.lists(st.integers(0, 1000), max_size=12))
def test_frames_arrive_whole_and_in_order_however_the_stream_is_cut(
    sent: list[Content], points: list[int]
) -> None:
    stream = b"".join(pack_frame(kind, meta, len(payload)) + payload for kind, meta, payload in sent)
    got = received(FrameBuffer(), cut(stream, points))
    assert [(kind, payload) for kind, _, payload in got] == [(kind, payload) for kind, _, payload in sent]
    for (_, found, _), (_, meta, _) in zip(got, sent, strict=True):
        assert found[: len(meta)] == meta
        assert not found[len(meta) :].strip(b"\0")


@given(contents, st.data())
def test_a_truncated_frame_is_no_frame(content: Content, data: st.DataObject) -> None:
    kind, meta, payload = content
    stream = pack_frame(kind, meta, len(payload)) + payload
    assert received(FrameBuffer(), [stream[: data.draw(st.integers(0, len(stream) - 1))]]) == []


@given(st.binary(min_size=HEADER.size, max_size=80).filter(lambda data: not data.startswith(MAGIC)))
def test_what_does_not_start_like_a_frame_is_an_error(garbage: bytes) -> None:
    with pytest.raises(ProtocolError, match="starts with"):
        received(FrameBuffer(), [garbage])


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ((MAGIC, VERSION + 1, FrameKind.RUN, 0, 0), f"wire version {VERSION + 1}"),
        ((MAGIC, VERSION, 0, 0, 0), "unknown kind 0"),
        ((MAGIC, VERSION, 99, 0, 0), "unknown kind 99"),
        ((MAGIC, VERSION, FrameKind.RUN, META_BYTES_MAX + 1, 0), "of metadata"),
        ((MAGIC, VERSION, FrameKind.RUN, 0, PAYLOAD_BYTES_MAX + 1), "of payload"),
    ],
)
def test_a_header_that_no_peer_sends_is_an_error(
    header: tuple[bytes, int, int, int, int], complaint: str
) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        received(FrameBuffer(), [HEADER.pack(*header)])


@pytest.mark.parametrize("excess", [-HEADER.size, -1, 0, 1, BUFFER_BYTES])
def test_frames_around_and_above_the_buffer_size_pass(excess: int) -> None:
    payload = bytes(range(256)) * ((BUFFER_BYTES + excess) // 256 + 1)
    payload = payload[: BUFFER_BYTES + excess]
    stream = (pack_frame(FrameKind.RUN, b"m", len(payload)) + payload) * 2 + pack_frame(
        FrameKind.HELLO, b"end"
    )
    buffer = FrameBuffer()
    got = received(buffer, cut(stream, [7, 100_000, 300_000]))
    assert [(kind, len(data)) for kind, _, data in got] == [(FrameKind.RUN, len(payload))] * 2 + [
        (FrameKind.HELLO, 0)
    ]
    assert got[0][2] == got[1][2] == payload


@pytest.mark.parametrize("large", [KEPT_BYTES // 2, KEPT_BYTES + 1])
def test_a_grown_buffer_is_kept_up_to_a_bound(large: int) -> None:
    buffer = FrameBuffer()
    frame = pack_frame(FrameKind.RUN, b"m", large) + bytes(large)
    assert len(received(buffer, cut(frame, [1 << 20] * 9))) == 1
    kept = len(buffer.space())
    assert kept == BUFFER_BYTES if large > KEPT_BYTES else large < kept <= KEPT_BYTES


def test_a_claim_takes_no_more_memory_than_twice_what_came() -> None:
    buffer = FrameBuffer()
    chunks = [HEADER.pack(MAGIC, VERSION, FrameKind.RUN, 0, PAYLOAD_BYTES_MAX), *[bytes(BUFFER_BYTES)] * 5]
    came = 0
    for chunk in chunks:
        assert received(buffer, [chunk]) == []
        came += len(chunk)
        assert came + len(buffer.space()) <= max(BUFFER_BYTES, 2 * came)


def test_a_lone_frame_leaves_its_payload_aligned_for_arrays() -> None:
    for length in range(33):
        assert len(pack_frame(FrameKind.RUN, bytes(length))) % 16 == 0
