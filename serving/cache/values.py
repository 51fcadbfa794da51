"""The bytes of an answer, in a form that another gateway can trust.

Layout, little endian: magic, format version, HMAC-SHA-256 (RFC 2104), and the signed body. The body has the
Unix time of the computation (us), the variant, and per output its name, datatype, shape and raw bytes. The
signature covers the key first, so an answer to another request fails it too. It finds every flipped bit and
every truncation. If the gateways have a secret, it also finds values that were written without the secret.
"""

from hashlib import sha256
from hmac import compare_digest, digest
from math import prod
from struct import Struct, error

from serving.cache.entries import KeptAnswer, entry_of
from serving.values.tensor import DATATYPES, ITEM_BYTES, Buffer, Tensor

_MAGIC = b"PNST\x02"  # the last byte is the version of the format
_SEAL = Struct("<5s32s")  # magic, HMAC of the key and all that follows
_PURPOSE = b"penstock: answers that gateways share\0"
_HEAD = Struct("<QHH")  # computed at, bytes of the variant's name, outputs
_OUTPUT = Struct("<HBBQ")  # bytes of the name, datatype, dimensions, bytes of data
_CODES = {datatype: code for code, datatype in enumerate(DATATYPES)}


def seal_of(secret: str) -> bytes:
    """Return the key that signs values, 32 bytes.

    Gateways with the same secret can read each other's values. Without a secret, this key is public, and a
    signature finds only damage.
    """
    return sha256(_PURPOSE + secret.encode(errors="surrogateescape")).digest()


def encode(key: bytes, entry: KeptAnswer, epoch_us: int, seal: bytes) -> bytes:
    """Return the entry's bytes as the answer to `key`.

    `epoch_us`: the Unix time at which this gateway's clock was 0.
    """
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
    return _SEAL.pack(_MAGIC, digest(seal, key + body, "sha256")) + body


def decode(key: bytes, raw: bytes, model: str, clock: tuple[int, int], seal: bytes) -> KeptAnswer | None:
    """Return the entry that `encode` wrote for `model` with the same seal; None for any other bytes.

    `clock`: the Unix time at which this gateway's clock was 0, and the time now, in us. If another gateway's
    clock is ahead, the answer counts as computed now.
    """
    if len(raw) < _SEAL.size:
        return None
    magic, signed = _SEAL.unpack_from(raw)
    body = memoryview(raw)[_SEAL.size :]
    if magic != _MAGIC or not compare_digest(signed, digest(seal, b"".join((key, body)), "sha256")):
        return None
    epoch_us, now_us = clock
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
