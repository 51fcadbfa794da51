"""Promises of the rare frames: what is said arrives; what is malformed is an error with its field."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.values.specs import Guard, ModelSpec, SizeHint, TensorSpec, VariantSpec
from serving.worker.frames.orders import (
    Loaded,
    LoadOrder,
    MeasuredBatches,
    MeasureOrder,
    pack_load,
    pack_load_failed,
    pack_loaded,
    pack_measure,
    pack_measured,
    pack_unloaded,
    unpack_hello,
    unpack_load,
    unpack_load_failed,
    unpack_loaded,
    unpack_measure,
    unpack_measured,
    unpack_unload,
    unpack_unloaded,
)
from serving.worker.frames.wire import HEADER, Frame, FrameKind, ProtocolError
from tests.seeds import drawn

UNPACKERS: list[Callable[[Frame], object]] = [
    unpack_hello, unpack_load, unpack_load_failed, unpack_loaded, unpack_measure, unpack_measured,
    unpack_unload, unpack_unloaded,
]  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
GUARD = Guard(finite=True, most=0.5)
FIELDS = ["pid", "shared", "versions", "replica", "model", "folder", "variant", "artifact", "options",
          "inputs", "outputs", "sizes", "rows", "size", "repeats", "budget_us", "latencies_us", "yardsticks",
          "yardsticks_us", "activation_bytes", "load_us", "warm_us", "memory_bytes", "import_bytes",
          "revision", "message"]  # fmt: skip


def frame(packed: bytes) -> Frame:
    return Frame(FrameKind.LOAD, memoryview(packed)[HEADER.size :], memoryview(b""))


def test_a_load_order_says_all_that_a_worker_needs(tmp_path: Path) -> None:
    model = ModelSpec(
        "text", tmp_path, (TensorSpec("T", "BYTES", (-1, 1)),), (TensorSpec("E", "FP32", (-1, 384), GUARD),),
        (VariantSpec("a", None),
         VariantSpec("b", tmp_path / "w.bin", (("tokens", 64), ("mode", "x")), deterministic=True)),
        "a", 1, 8, size_hint=SizeHint("T", (64, 256, 1024)),
    )  # fmt: skip
    order = LoadOrder.of(3, model, "b", "r2")
    assert (order.sizes, order.artifact, order.revision) == ((64, 1024), tmp_path.resolve() / "w.bin", "r2")
    assert (order.deterministic, LoadOrder.of(3, model, "a").deterministic) == (True, False)
    assert unpack_load(frame(pack_load(order))) == order
    with pytest.raises(KeyError):
        LoadOrder.of(3, model, "c")


def test_answers_arrive_as_they_were_given() -> None:
    order = MeasureOrder(1, 2, 3, 4, 5, 6)
    assert unpack_measure(frame(pack_measure(order))) == order
    measured, loaded = MeasuredBatches(1, 2, 3, [7, 8], [4], 9), Loaded(1, 2, 3, 4, 5, "it did", 6)
    assert unpack_measured(frame(pack_measured(measured))) == measured
    assert unpack_loaded(frame(pack_loaded(loaded))) == loaded
    assert unpack_unloaded(frame(pack_unloaded(5))) == 5
    assert unpack_load_failed(frame(pack_load_failed(1, "no \ud800 file"))) == (1, "no ? file")


@pytest.mark.parametrize("order", [MeasureOrder(1, 0, 0, 1, 1), MeasureOrder(1, 1, 0, 0, 1)])
def test_a_measurement_of_nothing_is_an_error(order: MeasureOrder) -> None:
    with pytest.raises(ProtocolError, match="asks for"):
        unpack_measure(frame(pack_measure(order)))


@given(st.sampled_from(UNPACKERS), st.binary(max_size=60))
def test_bytes_that_are_no_json_are_an_error(unpack: Callable[[Frame], object], garbage: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(Frame(FrameKind.LOAD, memoryview(b"\xff" + garbage), memoryview(b"")))


@settings(max_examples=drawn(40))
@given(st.sampled_from(UNPACKERS), st.dictionaries(st.sampled_from(FIELDS), json_values) | json_values)
def test_json_of_the_wrong_shape_is_an_error_or_fits_but_never_a_crash(
    unpack: Callable[[Frame], object], content: object
) -> None:
    with suppress(ProtocolError):
        unpack(Frame(FrameKind.LOAD, memoryview(orjson.dumps(content)), memoryview(b"")))
