"""The nesting of JSON: its depth before it is parsed, and nested data against a shape after."""

import re
from collections.abc import Sequence
from itertools import chain

import numpy as np

from router.tensors.parts.errors import bad_input
from router.tensors.parts.wording import position, written

# Possessive and with the closing quote optional: it never backtracks, so a hostile text costs one pass.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as int8: one level down, one level up
_BLOCK_BYTES = 1 << 16  # of brackets summed at once; bounds the memory of the scan


def too_deep(text: bytes, depth: int) -> bool:
    """Return whether JSON text opens more than `depth` arrays and objects within each other.

    Most texts have fewer brackets than that altogether, which costs a few memchr calls to see (1 us);
    only the others are scanned, strings left out.
    """
    if _few(text, depth):
        return False
    steps = np.frombuffer(_STRING.sub(b"", text).translate(_STEPS, _OTHERS), np.int8)
    level = 0
    for start in range(0, len(steps), _BLOCK_BYTES):
        levels = steps[start : start + _BLOCK_BYTES].cumsum(dtype=np.int32)
        if level + int(levels.max()) > depth:
            return True
        level += int(levels[-1])
    return False


def over_count(text: bytes, count: int) -> bool:
    """Return whether JSON text has more than `count` values. Each value is the first of its array or object,
    or follows a comma. Strings are left out only if their commas would decide it."""
    if len(text) <= count or _openings(text) <= count:
        return False
    return _openings(_STRING.sub(b"", text)) > count


def _openings(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def booleans_possible(text: bytes) -> bool:
    """Return False only if no array of the JSON text holds `true` or `false`.

    Converting a list to numbers takes true as 1, so lists that may hold true need a look at each element (15
    us for 784). This tells the usual lists apart in about 1 us.
    """
    for literal in (b"true", b"false"):
        at = text.find(literal[:1])
        looks = 0
        while at >= 0:
            looks += 1
            if looks > 64:  # not the usual text; the look at each element is cheaper
                return True
            if text.startswith(literal, at) and not text[max(0, at - 16) : at].rstrip().endswith(b":"):
                return True
            at = text.find(literal[:1], at + 1)
    return False


def flatten(name: str, shape: Sequence[int], data: object) -> list[object]:
    """Return the elements of a tensor's JSON `data`, which is flat or nested exactly as `shape` is."""
    if not isinstance(data, list):
        raise bad_input(f"input '{name}': data must be a list")
    if not data or not isinstance(data[0], list):
        elements = 1
        for dim in shape:
            elements *= dim
        if len(data) != elements:
            raise bad_input(
                f"input '{name}': shape {written(shape)} takes {elements} elements, got {len(data)}"
            )
        return data
    if len(data) != shape[0]:
        raise bad_input(f"input '{name}': shape {written(shape)} takes {shape[0]} rows, got {len(data)}")
    rows: list[object] = data
    for axis in range(1, len(shape)):
        dim = shape[axis]
        for index, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != dim:
                got = f"{len(row)}" if isinstance(row, list) else "no list"
                raise bad_input(
                    f"input '{name}': data at {position(index, shape[:axis])} must be a list of {dim} "
                    f"to fit shape {written(shape)}, got {got}"
                )
        rows = list(chain.from_iterable(rows))  # type: ignore[arg-type]  # lists, checked above
    return rows


def _few(text: bytes, limit: int) -> bool:
    found = 0
    for bracket in b"[{":
        at = text.find(bracket)
        while at >= 0:
            found += 1
            if found > limit:
                return False
            at = text.find(bracket, at + 1)
    return True
