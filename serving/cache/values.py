"""An answer as bytes that another gateway can trust.

Layout, little endian: magic, format version, CRC-32, then the Unix time it was computed at (us), the variant,
and per output its name, datatype, shape and raw bytes. The checksum begins with the question's key, so that
an answer to another question fails it too. It finds every flipped bit and truncation, and lets one in 2^32 of
anything else pass the checks of lengths that follow: it is no protection against who may write to the store.
"""

from math import prod
from struct import Struct, error
from zlib import crc32

from serving.cache.entries import Entry, entry_of
from serving.tensor import DATATYPES, ITEM_BYTES, Buffer, Tensor

_MAGIC = b"PNST\x01"  # the last byte is the version of the format
_SEAL = Struct("<5sI")  # magic, CRC-32 of the key and all that follows
_HEAD = Struct("<QHH")  # computed at, bytes of the variant's name, outputs
_OUTPUT = Struct("<HBBQ")  # bytes of the name, datatype, dimensions, bytes of data
_CODES = {datatype: code for code, datatype in enumerate(DATATYPES)}


def encode(key: bytes, entry: Entry, epoch_us: int) -> bytes:
    """The entry as the answer to `key`; `epoch_us` is the Unix time at which this gateway's clock was 0."""
    variant = entry.variant.encode()
    parts: list[Buffer] = [
        _HEAD.pack(max(0, entry.stored_us + epoch_us), len(variant), len(entry.outputs)),
        variant,
    ]
    for tensor in entry.outputs:
        name, shape = tensor.name.encode(), tensor.shape
        parts.append(_OUTPUT.pack(len(name), _CODES[tensor.datatype], len(shape), len(tensor.data)))
        parts += (name, Struct(f"<{len(shape)}Q").pack(*shape))
    parts += (tensor.data for tensor in entry.outputs)
    body = b"".join(parts)
    return _SEAL.pack(_MAGIC, crc32(body, crc32(key))) + body


def decode(key: bytes, raw: bytes, model: str, epoch_us: int, now_us: int) -> Entry | None:
    """What `encode` made of an answer of `model`; None for anything else.

    Computed in the future, by another gateway's clock, counts as now.
    """
    if len(raw) < _SEAL.size:
        return None
    magic, checksum = _SEAL.unpack_from(raw)
    body = memoryview(raw)[_SEAL.size :]
    if magic != _MAGIC or checksum != crc32(body, crc32(key)):
        return None
    try:
        stored_us, variant, outputs = _read(body)
    except (error, ValueError, IndexError):
        return None
    return entry_of(model, variant, outputs, min(stored_us - epoch_us, now_us))


def _read(body: memoryview) -> tuple[int, str, list[Tensor]]:
    stored_us, length, count = _HEAD.unpack_from(body)
    place = _HEAD.size
    variant = str(body[place : place + length], "utf-8")
    place += length
    heads = []
    for _ in range(count):
        length, code, dimensions, size_bytes = _OUTPUT.unpack_from(body, place)
        place += _OUTPUT.size
        name = str(body[place : place + length], "utf-8")
        place += length
        shape = Struct(f"<{dimensions}Q").unpack_from(body, place)
        place += 8 * dimensions
        heads.append((name, DATATYPES[code], shape, size_bytes))
    outputs = []
    for name, datatype, shape, size_bytes in heads:
        item = ITEM_BYTES[datatype]
        if item and prod(shape) * item != size_bytes:
            raise ValueError("not as many bytes as its shape says")
        outputs.append(Tensor(name, datatype, shape, body[place : place + size_bytes]))
        place += size_bytes
    if place != len(body):
        raise ValueError("more or fewer bytes than it says")
    return stored_us, variant, outputs
