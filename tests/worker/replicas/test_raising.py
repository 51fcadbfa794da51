"""What a model raises reaches the gateway's log with its traceback, once a kind and while."""

from pathlib import Path

import pytest

from serving.values.specs import TensorSpec
from serving.worker.frames.arrays import TensorError
from serving.worker.frames.orders import LoadOrder, Raised, pack_raised, unpack_raised
from serving.worker.frames.wire import FrameBuffer
from serving.worker.replicas.raising import KINDS_MAX, TRACEBACK_CHARS_MAX, WHOLE_EVERY_S, Tracebacks

SPEC = (TensorSpec("X", "FP32", (-1, 1)),)
ORDER = LoadOrder(1, "fashion", Path("/models/fashion"), "only", None, (), SPEC, SPEC, (0, 0))


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def caught(error: BaseException) -> BaseException:
    """As a model raises it: with frames."""
    try:
        raise error
    except BaseException as found:
        return found


def test_the_traceback_is_whole_the_first_time_and_told_again_after_a_while() -> None:
    clock = Clock()
    tracebacks = Tracebacks(clock)
    first = tracebacks.of(caught(ValueError("negative age")), ORDER, "while it answered")
    assert (first.model, first.variant, first.doing) == ("fashion", "only", "while it answered")
    assert first.traceback.startswith("Traceback (most recent call last):")
    assert "in caught\n    raise error\nValueError: negative age" in first.traceback
    clock.now_s += WHOLE_EVERY_S - 1
    again = tracebacks.of(caught(ValueError("another age")), ORDER, "while it answered")
    assert (again.kind, again.traceback, again.sentence) == (first.kind, "", "ValueError: another age")
    clock.now_s += 1
    assert "another age" in tracebacks.of(caught(ValueError("another age")), ORDER, "").traceback


def test_another_type_is_another_kind_and_the_worker_s_own_sentence_needs_no_traceback() -> None:
    tracebacks = Tracebacks(Clock())
    kinds = {tracebacks.of(caught(error), ORDER, "").kind for error in (ValueError("a"), KeyError("a"))}
    assert len(kinds) == 2
    found = tracebacks.of(caught(TensorError("output 'Y' is a list")), ORDER, "")
    assert (found.sentence, found.traceback) == ("output 'Y' is a list", "")


def test_an_error_without_a_text_and_one_with_a_long_text_are_told_too() -> None:
    tracebacks = Tracebacks(Clock())
    found = tracebacks.of(caught(UnspeakableError()), ORDER, "")
    assert found.sentence.startswith("UnspeakableError: (its text cannot be had: RuntimeError)")
    long = tracebacks.of(caught(ValueError("x" * 2 * TRACEBACK_CHARS_MAX)), ORDER, "")
    assert len(long.traceback) == TRACEBACK_CHARS_MAX


def test_the_kinds_that_are_remembered_are_bounded() -> None:
    tracebacks = Tracebacks(Clock())
    for number in range(KINDS_MAX + 50):
        error = caught(type(f"Kind{number}", (Exception,), {})())
        assert tracebacks.of(error, ORDER, "").traceback
    assert len(tracebacks._written_s) == KINDS_MAX


@pytest.mark.parametrize("text", ["plain", "half a character \ud800", ""])
def test_a_frame_brings_it_to_the_gateway(text: str) -> None:
    packed = pack_raised(Raised("m", "v", "while it answered", "ValueError at x:1", text, text))
    frames = FrameBuffer()
    frames.space()[: len(packed)] = packed
    frames.filled(len(packed))
    frame = frames.next()
    assert frame is not None
    assert unpack_raised(frame).sentence == text.replace("\ud800", "?")
