"""What the gateway and the rehearsal host say to each other: one JSON object a packet.

    gateway -> host   begin a slice (with three descriptors: socket, requests, answers); end one
    host -> gateway   a slice has ended

The packets keep their bounds (SOCK_SEQPACKET), and both ends are of one release, so nothing is versioned.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from serving.values.rehearsal import RehearsalSpec

PACKET_BYTES_MAX: Final = 1 << 16
DESCRIPTORS: Final = 3


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a rehearsed worker. `number`: its own among all of the host; `life`: of its slice, from 1."""

    number: int
    slice: str
    device: str
    kind: str
    share: str
    life: int
    rehearsal: RehearsalSpec


@dataclass(frozen=True, slots=True)
class End:
    """End a rehearsed worker at once, as a kill ends a process."""

    number: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A rehearsed worker has ended; `how` in words, as of a process. `crashed`: by its own fault."""

    number: int
    how: str
    crashed: bool = False


Note = Begin | End | Ended
_KINDS: Final[dict[str, type[Begin] | type[End] | type[Ended]]] = {
    "begin": Begin, "end": End, "ended": Ended,
}  # fmt: skip


def pack(note: Note) -> bytes:
    """Return the packet of a note."""
    return orjson.dumps({"what": type(note).__name__.lower(), **asdict(note)})


def unpack(packet: bytes) -> Note:
    """Return the note of a packet; ValueError if it is none."""
    try:
        found: dict[str, Any] = orjson.loads(packet)
        kind = _KINDS[found.pop("what")]
        if kind is Begin:
            found["rehearsal"] = RehearsalSpec(**found["rehearsal"])
        return kind(**found)
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise ValueError(f"a packet cannot be read: {error!r}") from None
