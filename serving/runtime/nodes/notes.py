"""What a gateway and a node say to each other, beside the batches: one note a frame, as JSON.

caller -> door     Greet, Proof: a node, a worker that a node is about to start, or an engine (Ray)
door -> caller     Challenge, then Admitted or Refused
node -> gateway    Join, Pong, Ended, Printed, Want, Stored, Leaving
gateway -> node    Welcome, Ping, Start, End, Release, Check, Offer, Chunk (with a payload)
gateway -> engine  Needed, each second
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.worker.frames.wire import Frame, FrameKind, ProtocolError, pack_frame

Role = Literal["node", "worker", "cell", "engine"]
NODE: Final[Role] = "node"
WORKER: Final[Role] = "worker"
CELL: Final[Role] = "cell"
ENGINE: Final[Role] = "engine"


@dataclass(frozen=True, slots=True)
class Greet:
    """The first note. `name`: of the node, the cell or the engine, or the number of the worker's Start."""

    role: Role
    name: str
    nonce: str
    what: Literal["greet"] = "greet"


@dataclass(frozen=True, slots=True)
class Challenge:
    """`proof`: that the door has the key, over both nonces."""

    nonce: str
    proof: str
    what: Literal["challenge"] = "challenge"


@dataclass(frozen=True, slots=True)
class Proof:
    """`proof`: that the caller has the key, over both nonces."""

    proof: str
    what: Literal["proof"] = "proof"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The caller is admitted. A worker's frames follow on its connection, a node's Join on another."""

    what: Literal["admitted"] = "admitted"


@dataclass(frozen=True, slots=True)
class Refused:
    """The caller is not admitted; `reason` follows its name in a sentence. `again`: it may be later."""

    reason: str
    again: bool = False
    what: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Join:
    """What a node is. `kind`: of its processor; `cores`: how many it may use; `gpus`: kinds of GPUs by name
    ("cuda:0"); `release`: of Penstock."""

    kind: str
    cores: int
    memory_bytes: int
    gpus: dict[str, str]
    release: str
    what: Literal["join"] = "join"


@dataclass(frozen=True, slots=True)
class Welcome:
    """`workers`: what each worker is given and held to; `slices`: how many slices name the node."""

    workers: WorkersSpec
    slices: int
    what: Literal["welcome"] = "welcome"


@dataclass(frozen=True, slots=True)
class Ping:
    """`number`: counts them."""

    number: int
    what: Literal["ping"] = "ping"


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a Ping. `now_us`: by the node's monotonic clock."""

    number: int
    now_us: int
    what: Literal["pong"] = "pong"


@dataclass(frozen=True, slots=True)
class Start:
    """Start a slice's worker. `number`: its own; `key`: what it proves itself by. `spec.cores` count the
    cores that the node may use, from 0."""

    number: int
    key: str
    spec: SliceSpec
    what: Literal["start"] = "start"


@dataclass(frozen=True, slots=True)
class End:
    """End a slice's worker now."""

    slice: str
    reason: str
    what: Literal["end"] = "end"


@dataclass(frozen=True, slots=True)
class Release:
    """Give back the share of a slice that is gone."""

    slice: str
    what: Literal["release"] = "release"


@dataclass(frozen=True, slots=True)
class Check:
    """End the slice's worker if it computes outside of its share."""

    slice: str
    pid: int
    what: Literal["check"] = "check"


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has ended, or could not be started. `how` in words; `crashed`: by its own fault; `overran`: it
    held more memory than it may."""

    number: int
    how: str
    crashed: bool = False
    overran: bool = False
    what: Literal["ended"] = "ended"


@dataclass(frozen=True, slots=True)
class Printed:
    """A line that a worker printed; see `serving.runtime.workers.contract.WorkerLog.printed`."""

    slice: str
    stream: str
    model: str
    line: str
    what: Literal["printed"] = "printed"


@dataclass(frozen=True, slots=True)
class ParcelFile:
    """A file of a parcel. `place`: which of the parcel's folders; `name`: relative to it; `blob`: the SHA-256
    of its content."""

    place: Literal["folder", "code", "artifact"]
    name: str
    size_bytes: int
    blob: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The files that a model's worker needs. `digest`: of names and contents."""

    digest: str
    files: tuple[ParcelFile, ...]
    what: Literal["offer"] = "offer"


@dataclass(frozen=True, slots=True)
class Want:
    """The contents of an Offer that the node does not have."""

    digest: str
    blobs: tuple[str, ...]
    what: Literal["want"] = "want"


@dataclass(frozen=True, slots=True)
class Chunk:
    """The payload is the next part of a content; `last`: the content ends with it."""

    blob: str
    last: bool
    what: Literal["chunk"] = "chunk"


@dataclass(frozen=True, slots=True)
class Stored:
    """The files of an Offer lie below `root`; or they do not, because of `fault`."""

    digest: str
    root: str = ""
    fault: str = ""
    what: Literal["stored"] = "stored"


@dataclass(frozen=True, slots=True)
class Leaving:
    """The node will end soon."""

    reason: str
    what: Literal["leaving"] = "leaving"


@dataclass(frozen=True, slots=True)
class Needed:
    """The nodes that the gateway has a use for now, there or not."""

    nodes: tuple[str, ...]
    what: Literal["needed"] = "needed"


Note = (
    Greet | Challenge | Proof | Admitted | Refused | Join | Welcome | Ping | Pong | Start | End | Release
    | Check | Ended | Printed | Offer | Want | Chunk | Stored | Leaving | Needed
)  # fmt: skip

NOTE_NAMES: Final = tuple(each.__name__.lower() for each in get_args(Note))
"""What `what` may be."""
_NOTES: Final[TypeAdapter[Note]] = TypeAdapter(Annotated[Note, Field(discriminator="what")])


def pack_note(note: Note, payload_bytes: int = 0) -> bytes:
    """Return the frame of a note; the caller sends `payload_bytes` of payload right behind it."""
    return pack_frame(FrameKind.NOTE, _NOTES.dump_json(note), payload_bytes)


def unpack_note(frame: Frame) -> Note:
    """Return the note of a frame. Raises ProtocolError if it is none."""
    if frame.kind is not FrameKind.NOTE:
        raise ProtocolError(f"a {frame.kind.name} frame among notes")
    try:
        return _NOTES.validate_json(bytes(frame.meta).rstrip(b"\0"))
    except ValidationError as error:
        raise ProtocolError(f"a note cannot be read: {error!s:.300}") from None
