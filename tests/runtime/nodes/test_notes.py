"""Promises of the notes: what one side packs the other reads, and nothing else passes for a note."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.runtime.nodes import notes
from serving.runtime.nodes.notes import (
    Ended,
    Join,
    Note,
    Offer,
    ParcelFile,
    Start,
    Welcome,
    pack_note,
    unpack_note,
)
from serving.values.slice_specs import Share, SliceSpec, WorkersSpec
from serving.worker.frames.wire import Frame, FrameBuffer, FrameKind, ProtocolError, pack_frame

SPEC = SliceSpec(
    "s",
    (0, 3),
    2,
    "cuda:0",
    Share.parse("mig:3g.71gb*2"),
    1 << 30,
    0.5,
    True,
    "gpu-nvidia-h200",
    instance="i",
)
NOTES: list[Note] = [
    Start(3, "key", SPEC),
    Welcome(WorkersSpec((("A", "b"),), ("C",), 1, 2, 3, False), 4),
    Join("cpu-x", 8, 1 << 34, {"cuda:0": "gpu-nvidia-h200"}, "1.0"),
    Offer("ab", (ParcelFile("code", "a/é.py", 3, "cd"),)),
    Ended(1, "was killed by SIGKILL", True, True),
]


def framed(data: bytes) -> Frame:
    buffer = FrameBuffer()
    buffer.space()[: len(data)] = data
    buffer.filled(len(data))
    frame = buffer.next()
    assert frame is not None
    return frame


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_note_is_read_as_it_was_packed(note: Note) -> None:
    assert unpack_note(framed(pack_note(note))) == note


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_in_a_sentence(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="a note cannot be read"):
        unpack_note(framed(pack_frame(FrameKind.NOTE, data)))


@pytest.mark.parametrize(
    "body", ['{"what": "start"}', '{"what": "ping", "number": "x"}', '{"what": "rm"}', "[]", "{}", '"ping"']
)
def test_a_note_with_other_fields_is_refused(body: str) -> None:
    with pytest.raises(ProtocolError, match="a note cannot be read"):
        unpack_note(framed(pack_frame(FrameKind.NOTE, body.encode())))


def test_another_frame_is_no_note() -> None:
    with pytest.raises(ProtocolError, match="a HELLO frame among notes"):
        unpack_note(framed(pack_frame(FrameKind.HELLO, b"{}")))


def test_every_note_is_of_the_union() -> None:
    classes = {each for each in vars(notes).values() if isinstance(each, type) and hasattr(each, "what")}
    assert classes == set(notes.Note.__args__)
