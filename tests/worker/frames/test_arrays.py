"""Promises about arrays: a model sees what the client sent, and answers only what its spec says."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.values.specs import TensorSpec
from serving.values.tensor import ABSENT, ANY, DATATYPES, ITEM_BYTES
from serving.worker.frames.arrays import DTYPES, TensorError, datatype_of, decode_inputs, encode_outputs
from serving.worker.frames.batches import TensorPlace


def framed_bytes(elements: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def spec(datatype: str, *dims: int) -> TensorSpec:
    return TensorSpec("T", datatype, (-1, *dims))


@given(st.sampled_from(DATATYPES), st.integers(1, 3), st.integers(0, 3), st.data())
def test_bytes_become_an_array_and_the_same_bytes_again(
    datatype: str, rows: int, width: int, data: st.DataObject
) -> None:
    count = rows * width
    if datatype == "BYTES":
        raw = framed_bytes(data.draw(st.lists(st.binary(max_size=5), min_size=count, max_size=count)))
    elif datatype == "BOOL":
        raw = bytes(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    else:
        size = count * ITEM_BYTES[datatype]
        raw = data.draw(st.binary(min_size=size, max_size=size))
    specs = [spec(ANY, width)]
    arrays = decode_inputs(specs, [TensorPlace(datatype, (width,), len(raw))], rows, memoryview(raw))
    assert arrays["T"].shape == (rows, width)
    assert arrays["T"].dtype == DTYPES[datatype]
    (output,) = encode_outputs(specs, arrays, rows, datatype)
    assert (output.datatype, output.dims, bytes(output.data)) == (datatype, (width,), raw)


def test_an_input_behind_one_of_odd_length_is_still_aligned() -> None:
    specs = [TensorSpec("A", "INT8", (-1, 1)), TensorSpec("B", "FP64", (-1, 1))]
    places = [TensorPlace("INT8", (1,), 3), TensorPlace("FP64", (1,), 24)]
    payload = memoryview(bytearray(bytes(3) + np.arange(3.0).tobytes()))
    arrays = decode_inputs(specs, places, 3, payload)
    assert arrays["B"].flags.aligned
    assert arrays["B"].ravel().tolist() == [0, 1, 2]


def test_an_absent_input_is_no_array_and_those_behind_it_keep_their_data() -> None:
    specs = [TensorSpec(name, "INT8", (-1, 1), optional=name == "B") for name in "ABC"]
    places = [TensorPlace("INT8", (1,), 2), TensorPlace(ABSENT, (), 0), TensorPlace("INT8", (1,), 2)]
    arrays = decode_inputs(specs, places, 2, memoryview(bytes([1, 2, 3, 4])))
    assert {name: array.tolist() for name, array in arrays.items()} == {"A": [[1], [2]], "C": [[3], [4]]}


@pytest.mark.parametrize(
    ("place", "raw", "complaint"),
    [
        (TensorPlace("FP32", (2,), 4), bytes(4), r"has 4 bytes, FP32 \[1, 2\] takes 8"),
        (TensorPlace("BYTES", (2,), 5), framed_bytes([b"x"]), "has 1 elements"),
        (TensorPlace("BYTES", (1,), 6), b"\x09\0\0\0ab", "element 0 runs past the end"),
        (TensorPlace("BYTES", (1,), 2), b"\x09\0", "element 0 runs past the end"),
    ],
)
def test_inputs_whose_bytes_do_not_fit_are_named(place: TensorPlace, raw: bytes, complaint: str) -> None:
    with pytest.raises(TensorError, match=complaint):
        decode_inputs([spec(ANY, -1)], [place], 1, memoryview(raw))


def test_a_missing_input_is_counted() -> None:
    with pytest.raises(TensorError, match="has 0 inputs, the model takes 1"):
        decode_inputs([spec("FP32", 1)], [], 1, memoryview(b""))


@pytest.mark.parametrize(
    ("datatype", "outputs", "complaint"),
    [
        ("FP32", None, "returned NoneType"),
        ("FP32", {}, r"outputs \[\], expected \['T'\]"),
        ("FP32", {"T": np.ones((2, 3)), "U": np.ones(2)}, r"outputs \['T', 'U'\]"),
        ("FP32", {"T": [[1.0]]}, "is a list, expected numpy.ndarray"),
        ("FP32", {"T": np.ones((3, 3), np.float32)}, r"has shape \[3, 3\], expected \[2, 3\]"),
        ("FP32", {"T": np.ones(2, np.float32)}, r"has shape \[2\]"),
        ("FP32", {"T": np.ones((2, 4), np.float32)}, r"has shape \[2, 4\]"),
        ("INT32", {"T": np.ones((2, 3))}, "dtype float64, INT32 needs int32"),
        ("BF16", {"T": np.ones((2, 3), np.float32)}, "dtype float32, BF16 needs uint16"),
        ("BYTES", {"T": np.ones((2, 3))}, "needs an object array of bytes"),
        ("BYTES", {"T": np.full((2, 3), "x", object)}, "element 0 is a str"),
        ("FP32", {"T": np.full((2, 3), b"x", object)}, "dtype object"),
    ],
)
def test_answers_that_break_the_spec_are_named(datatype: str, outputs: object, complaint: str) -> None:
    with pytest.raises(TensorError, match=complaint):
        encode_outputs([spec(datatype, 3)], outputs, 2, "")


def test_numbers_are_converted_where_they_keep_their_kind() -> None:
    (output,) = encode_outputs([spec("FP32", -1)], {"T": np.array([[1.5], [2.5]], ">f8")}, 2, "")
    assert bytes(output.data) == np.array([1.5, 2.5], "<f4").tobytes()


def test_strided_answers_are_sent_row_by_row() -> None:
    turned = np.arange(6, dtype=np.int16).reshape(3, 2).T
    (output,) = encode_outputs([spec("INT16", 3)], {"T": turned}, 2, "")
    assert np.frombuffer(output.data, np.int16).tolist() == [0, 2, 4, 1, 3, 5]


def test_rows_of_bytes_know_their_lengths() -> None:
    array = np.array([[b"a", b"bcd"], [b"", b"e"]], object)
    (output,) = encode_outputs([spec("BYTES", 2)], {"T": array}, 2, "")
    assert list(output.row_bytes) == [12, 9]


def test_an_array_without_a_datatype_is_refused() -> None:
    assert datatype_of(np.ones(1, np.float16)) == "FP16"
    with pytest.raises(TensorError, match="complex128"):
        datatype_of(np.ones(1, complex))
