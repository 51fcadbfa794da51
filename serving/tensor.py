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

    def __repr__(self) -> str:
        return f"Tensor({self.name} {self.datatype} {list(self.shape)}, {len(self.data)} bytes)"
