"""The elements of tensors: between lists, as JSON and typed protobuf have them, and raw bytes."""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from math import prod
from struct import Struct, error, pack

import numpy as np
import numpy.typing as npt

from router.tensors.parts.errors import RequestError, bad_input
from router.tensors.parts.wording import position, quoted, written
from serving.values.tensor import SCANNED_BYTES, SCANNED_PARTS, Buffer, Tensor, text_size

_CODES = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
    "FP16": "e", "BF16": "d", "FP32": "f", "FP64": "d",
}  # fmt: skip
"""struct codes; BF16 is rounded from doubles afterwards."""

_DTYPES = {
    "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
    "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8",
    "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip

_LENGTH = Struct("<I")


def pack_elements(
    name: str, datatype: str, shape: Sequence[int], elements: Sequence[object], *, booleans: bool
) -> bytes:
    """Return the raw bytes of as many elements as `shape` has. Raises RequestError that names the first
    element that does not fit.

    Numbers round to nearest even once, from double. `booleans`: False vouches that no element is a bool.
    """
    if datatype == "BYTES":
        return _pack_strings(name, shape, elements)
    if datatype == "BOOL":
        if not set(map(type, elements)) <= {bool}:
            raise _misfit(name, datatype, shape, elements)
        return bytes(elements)  # type: ignore[arg-type]  # bools, checked above
    if booleans and bool in set(map(type, elements)):
        raise _misfit(name, datatype, shape, elements)
    try:
        # Faster than array.array or np.array from a list, and the only one that refuses to overflow.
        packed = pack(f"<{len(elements)}{_CODES[datatype]}", *elements)
        return packed if datatype != "BF16" else _round_to_bf16(packed)
    except (error, OverflowError):
        raise _misfit(name, datatype, shape, elements) from None


def list_elements(tensor: Tensor) -> npt.NDArray[np.generic] | list[str]:
    """Return an output's elements, flat, in what orjson writes as JSON.

    NaN and infinities become null there, as JSON has no word for them. RequestError (BAD_INPUT) for
    BYTES that are no UTF-8: the model answered well, but the client asked for a form that cannot say it.
    """
    datatype = tensor.datatype
    if datatype == "BOOL":
        return np.not_equal(np.frombuffer(tensor.data, np.uint8), 0)
    if datatype == "BF16":
        return np.left_shift(np.frombuffer(tensor.data, "<u2").astype(np.uint32), 16).view(np.float32)
    if datatype != "BYTES":
        return np.frombuffer(tensor.data, _DTYPES[datatype])
    texts: list[str] = []
    for element in _byte_elements(tensor.data):
        try:
            texts.append(element.decode())
        except UnicodeDecodeError:
            raise bad_input(
                f"output '{tensor.name}': element {position(len(texts), tensor.shape)} is not UTF-8 text, "
                "which JSON needs; ask for this output with binary_data true"
            ) from None
    return texts


_SHARED_BYTES = 1 << 20
"""Longer data is read where it lies: a copy would cost more than slower access to the elements' lengths."""
_TEXTS = 1024


def longest_element(tensor: Tensor, as_text: bool = False) -> int:
    """Return the size of the longest element of a BYTES tensor (0 if it has none), in bytes or `as_text`.

    Raises RequestError unless the data is exactly as many elements as the shape says, each with its length.
    """
    total, at, longest = len(tensor.data), 0, 0
    data = tensor.data if total > _SHARED_BYTES else bytes(tensor.data)  # its items are read without a call
    texts: list[tuple[int, int]] = []  # length and place of each, the latter negative: the first is largest
    for index in range(prod(tensor.shape)):
        if at + 4 > total:
            where = position(index, tensor.shape)
            raise bad_input(
                f"input '{tensor.name}': data of {total} bytes ends before element {where}; "
                "each BYTES element is a 4-byte length and its content"
            )
        length = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        at += 4 + length
        if at > total:
            where = position(index, tensor.shape)
            raise bad_input(
                f"input '{tensor.name}': element {where} says it has {length} bytes, "
                f"but only {total - at + length} follow"
            )
        if as_text:
            texts.append((length, length - at))
        elif length > longest:
            longest = length
    if at != total:
        raise bad_input(
            f"input '{tensor.name}': {total - at} bytes follow the last element "
            f"of BYTES {written(tensor.shape)}"
        )
    return _longest_text(data, texts) if texts else longest


def _longest_text(data: Buffer, texts: list[tuple[int, int]]) -> int:
    """Return the largest text_size; where not all can be looked at, of the longest ones."""
    share = SCANNED_BYTES
    if len(data) > SCANNED_BYTES or len(texts) > _TEXTS:
        texts = nlargest(SCANNED_PARTS, texts)
        share //= len(texts)
    view, longest = memoryview(data), 0
    for length, place in texts:
        longest = max(longest, text_size(view[-place : length - place], share))
    return longest


def one_element(content: Buffer) -> bytes:
    """Return a single BYTES element as it travels: its length before its content."""
    return b"".join((_LENGTH.pack(len(content)), content))


def _pack_strings(name: str, shape: Sequence[int], elements: Sequence[object]) -> bytes:
    parts: list[bytes] = []
    for element in elements:
        if isinstance(element, str):
            content = element.encode()
        elif isinstance(element, bytes):
            content = element
        else:
            raise _misfit(name, "BYTES", shape, elements)
        parts += (_LENGTH.pack(len(content)), content)
    return b"".join(parts)


def _byte_elements(data: Buffer) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4 + length
        yield bytes(data[at - length : at])


def _round_to_bf16(doubles: bytes) -> bytes:
    """Return the doubles as BF16, rounded to nearest even. Raises OverflowError for finite doubles beyond
    BF16.

    It goes by way of FP32 rounded to odd (truncated, last bit set if anything was lost). FP32 keeps enough of
    the double to tell a tie from a near tie, so rounding twice equals rounding once (S. Boldo and G.
    Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    exact = np.frombuffer(doubles, "<f8")
    with np.errstate(over="ignore"):
        near = exact.astype(np.float32)
    bits = near.view(np.uint32).copy()
    bits -= np.abs(near) > np.abs(exact)
    bits |= near != exact
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    if np.any((rounded & 0x7FFF) >= 0x7F80):
        raise OverflowError
    return rounded.tobytes()


def _misfit(name: str, datatype: str, shape: Sequence[int], elements: Sequence[object]) -> RequestError:
    """Return the error for the first element that is not of the datatype."""
    index, element = next(
        (index, element) for index, element in enumerate(elements) if not _is_element(datatype, element)
    )
    expected = "a string" if datatype == "BYTES" else "true or false" if datatype == "BOOL" else ""
    if not expected and datatype[0] in "IU":
        bits = int(datatype.lstrip("UINT"))
        low, high = (0, 2**bits - 1) if datatype[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        expected = f"a whole number from {low} to {high}"
    message = (
        f"input '{name}': element {position(index, shape)} must be {expected or 'a number'} "
        f"to be {datatype}, got {quoted(element)}"
    )
    if not expected:
        if isinstance(element, int | float) and not isinstance(element, bool):
            message += ", which is beyond its range"
        elif element is None:
            message += "; JSON has no NaN or infinity, send them as binary data"
    return bad_input(message)


def _is_element(datatype: str, element: object) -> bool:
    if datatype == "BYTES":
        return isinstance(element, str | bytes)
    if datatype == "BOOL":
        return isinstance(element, bool)
    if type(element) not in (int, float):
        return False
    try:
        packed = pack("<" + _CODES[datatype], element)
        if datatype == "BF16":
            _round_to_bf16(packed)
    except (error, OverflowError):
        return False
    return True
