"""A ModelInferRequest as bytes: what is in it, looked at before it is parsed.

Two bytes on the wire can become an object of 100 and more, so repeated fields are counted first. And the raw
tensors of a large message are taken as views of it: parsing would copy them while all other calls wait.

The wire format is that of Protocol Buffers (protobuf.dev/programming-guides/encoding); the field numbers are
those of open_inference_grpc.proto.
"""

from typing import Final

from router.tensors.parts.compression import beginning
from router.tensors.parts.errors import RequestError, bad_input, too_large
from router.tensors.parts.recent import Recent
from serving.values.specs import Limits
from serving.values.tensor import Buffer

SMALL_BYTES: Final = 1 << 16
"""Up to here a message is parsed at once, in less than a millisecond, whatever it holds. What a request says
besides its tensors must not take more."""

NAME: Final = 1
VERSION: Final = 2
"""The field of a ModelInferRequest with the model's name."""

OTHERS_MAX: Final = 1 << 16
"""Names, datatypes, dimensions and parameters of all inputs together."""

_INPUTS, _RAW = 5, 7  # of ModelInferRequest
_EARLY_FIELDS, _EARLY_TEXT_BYTES = 64, 1024
_SHAPE, _CONTENTS = 3, 5  # of its InferInputTensor
_BYTES_CONTENTS = 8  # of InferTensorContents
_FP32, _FP64 = 6, 7
_CONTINUED = bytes(range(0x80, 0x100))  # bytes of a varint that are not its last
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # wire types


class Raw:
    """An entry of raw_input_contents: its field begins at `head`, its content is `start` to `end`."""

    __slots__ = ("end", "head", "start")

    def __init__(self, head: int, start: int, end: int) -> None:
        self.head = head
        self.start = start
        self.end = end


class Outline:
    """`name`: the model's; `inputs`: where each of them lies; `besides`: bytes that are not raw contents;
    `key`: see `router.tensors.proto.key_of`, which finds it once."""

    __slots__ = ("besides", "inputs", "key", "name", "raw")

    def __init__(self, name: str, raw: list[Raw], inputs: list[tuple[int, int]], besides: int) -> None:
        self.name = name
        self.raw = raw
        self.inputs = inputs
        self.besides = besides
        self.key: tuple[bytes, int] | None = None


class _Known:
    """The outline of an earlier message. It is that of every message with the same bytes where the raw
    contents are not, and as many where they are."""

    __slots__ = ("_besides", "_limits", "_spans", "outline")

    def __init__(self, message: bytes, found: Outline, limits: Limits) -> None:
        self.outline = found
        self._limits = limits
        ends = [0, *[each.end for each in found.raw]]
        starts = [*[each.start for each in found.raw], len(message)]
        self._spans = list(zip(ends, starts, strict=True))
        self._besides = [message[at:stop] for at, stop in self._spans]

    def fits(self, message: bytes, limits: Limits) -> bool:
        """Return whether it is the outline of this message, of the same length, under these limits."""
        return limits is self._limits and [message[at:stop] for at, stop in self._spans] == self._besides


_KNOWN: Recent[int, _Known] = Recent(64)
"""By the length of the message. Clients say the same from call to call, but for their tensors."""
KNOWN_BYTES: Final = 2048
"""Messages that say more besides their tensors are looked through each time."""


def outline(message: bytes, limits: Limits) -> Outline:
    """Return what lies where. Raises RequestError: BAD_INPUT for a damaged message, TOO_LARGE for more fields
    than a request within `limits.tensor_count` has."""
    known = _KNOWN.get(len(message))
    if known is not None and known.fits(message, limits):
        return known.outline
    found = _look_through(message, limits)
    if found.raw and found.besides <= KNOWN_BYTES:
        _KNOWN.put(len(message), _Known(message, found, limits))
    return found


def _look_through(message: bytes, limits: Limits) -> Outline:
    raw: list[Raw] = []
    inputs: list[tuple[int, int]] = []
    name, at, fields, raw_bytes = b"", 0, 0, 0
    most = 4 * limits.tensor_count + 64  # inputs, outputs, raw contents, parameters
    total = len(message)
    while at < total:
        fields += 1
        if fields > most:
            raise too_large(
                f"the message has more than {most} fields; a request names at most {limits.tensor_count} "
                "inputs and as many outputs (limits.tensor_count)"
            )
        head = at
        number, start, at = _field(message, at, total)
        if number == _RAW:
            raw.append(Raw(head, start, at))
            raw_bytes += at - start
        elif number == _INPUTS:
            inputs.append((start, at))
        elif number == NAME:
            name = message[start:at]
    try:
        return Outline(name.decode(), raw, inputs, total - raw_bytes)
    except UnicodeDecodeError:
        raise damaged(total) from None


def early_text(message: bytes, number: int) -> str:
    """Return a short text, compressed or not, in the field `number` among the first of a message that is not
    to be parsed; "" where there is none. Clients write fields by number: the model's name comes before all
    else."""
    data, at = beginning(message), 0
    try:
        for _ in range(_EARLY_FIELDS):
            if at == len(data):
                break
            found, start, at = _field(data, at, len(data))
            if found == number:
                return data[start:at].decode() if at - start <= _EARLY_TEXT_BYTES else ""
    except (RequestError, UnicodeDecodeError):
        pass
    return ""


def count_contents(message: bytes, found: Outline, limits: Limits) -> None:
    """Raise RequestError, as `outline` does, unless the typed contents are within the limits."""
    elements = others = 0
    for start, end in found.inputs:
        at = start
        while at < end:
            number, begin, at = _field(message, at, end)
            if number == _CONTENTS:
                elements += _count(message, begin, at, limits)
            else:
                others += _varints(message, begin, at) if number == _SHAPE else 1
            if elements > limits.element_count:
                raise too_large(
                    f"the request has {elements} elements in typed contents; at most "
                    f"{limits.element_count} are accepted (limits.element_count): send raw_input_contents"
                )
            if others > OTHERS_MAX:
                raise too_large(f"the inputs say more than {OTHERS_MAX} things besides their contents")


def _count(message: bytes, at: int, end: int, limits: Limits) -> int:
    """Return the elements of an InferTensorContents, packed or one by one; no more than matter are
    counted."""
    elements = texts = 0
    while at < end and elements <= limits.element_count:
        number, begin, at = _field(message, at, end)
        if number in (_FP32, _FP64):
            elements += max(1, (at - begin) // (4 if number == _FP32 else 8))
        elif number != _BYTES_CONTENTS:
            elements += _varints(message, begin, at)
        else:
            texts += 1
            if texts > limits.bytes_count:
                raise too_large(
                    f"the request has more than {limits.bytes_count} elements of BYTES (limits.bytes_count)"
                )
    return elements + texts


def _varints(message: bytes, start: int, end: int) -> int:
    """Return how many numbers a packed field has."""
    return len(message[start:end].translate(None, _CONTINUED))


def split(message: bytes, found: Outline) -> tuple[bytes, list[Buffer]]:
    """Return the message without its raw contents, and these as views of it."""
    view = memoryview(message)
    rest: list[Buffer] = []
    kept = 0
    for each in found.raw:
        rest.append(view[kept : each.head])
        kept = each.end
    rest.append(view[kept:])
    return b"".join(rest), [view[each.start : each.end] for each in found.raw]


def _field(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return the number of the field at `at`, where its content starts, and where it ends."""
    tag, at = _varint(data, at, end)
    kind = tag & 7
    if kind == _LENGTH:
        size, at = _varint(data, at, end)
        stop = at + size
    elif kind == _VARINT:
        _, stop = _varint(data, at, end)
    elif kind == _FIXED32:
        stop = at + 4
    elif kind == _FIXED64:
        stop = at + 8
    else:
        raise damaged(len(data))  # groups, which no message of this protocol has
    if stop > end:
        raise damaged(len(data))
    return tag >> 3, at, stop


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise damaged(len(data))


def damaged(size: int) -> RequestError:
    """Return what its client reads."""
    return bad_input(f"the message of {size} bytes is no ModelInferRequest: it is cut off or damaged")
