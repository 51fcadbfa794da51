"""A named tensor as it travels: raw little-endian row-major bytes, batch dimension first.

Rows come first in row-major order. So the tensors of a batch are the concatenation of its requests' bytes,
for every datatype (BYTES too). No code on the way needs to look inside them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

Buffer = bytes | bytearray | memoryview

ITEM_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8,
        "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8,
        "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8, "BYTES": 0,
    }
)  # fmt: skip
"""Open Inference Protocol datatypes, and the bytes of one element.

BYTES has 0, because each element carries its own length (4 bytes, little endian) before its content.
"""

ANY: Final = "ANY"
"""The datatype of a specification that accepts each of ITEM_BYTES; never a tensor's own datatype."""

ABSENT: Final = ""
"""The datatype of an optional input that a request leaves out; no client states it."""

DATATYPES: Final = tuple(ITEM_BYTES)
"""Names by their code between gateway and worker; append only."""


class Tensor:
    """One named tensor: `shape` with the batch dimension first, `data` as raw bytes of the OIP wire."""

    __slots__ = ("data", "datatype", "name", "shape")

    def __init__(self, name: str, datatype: str, shape: tuple[int, ...], data: Buffer) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.data = data

    def without_batch(self) -> "Tensor":
        """Return the one row, without the batch dimension."""
        return Tensor(self.name, self.datatype, self.shape[1:], self.data)

    def __repr__(self) -> str:
        return f"Tensor({self.name} {self.datatype} {list(self.shape)}, {len(self.data)} bytes)"


MARK_BYTES = 5
"""What a punctuation mark counts for in a text: it is a token, as are 5.3 bytes of words (least squares over
4,096 stretches of Python's documentation: tokens per unit then have a p95 of 1.23 times their median, with
bytes alone 1.98)."""
_NO_MARKS = bytes(code for code in range(256) if chr(code).isalnum() or chr(code).isspace() or code >= 128)


SCANNED_BYTES = 1 << 16
"""Of all texts of a tensor, how much is looked at for marks: the event loop waits meanwhile (60 MB took
107 ms), and only the size's order matters. Of more than that, evenly spaced parts stand for the whole."""
SCANNED_PARTS: Final = 16


def text_size(raw: Buffer, scanned_bytes: int = SCANNED_BYTES) -> int:
    """Return the size of a text in bytes of words, as `scanned_bytes` of it say."""
    size = len(raw)
    if size <= scanned_bytes:
        sample = bytes(raw)
    else:
        part = max(1, scanned_bytes // SCANNED_PARTS)
        starts = [(size - part) * place // (SCANNED_PARTS - 1) for place in range(SCANNED_PARTS)]
        sample = b"".join([raw[start : start + part] for start in starts])
    marks = len(sample.translate(None, _NO_MARKS))
    return size + (MARK_BYTES - 1) * marks * size // (len(sample) or 1)
