"""A request as the scheduler knows it (no payload), and the pieces that travel in batches."""

from collections.abc import Hashable
from math import inf
from typing import TYPE_CHECKING

from serving.values.objectives import MOST_ACCURATE
from serving.values.sequences import SequenceStep
from serving.values.specs import DEFAULT_TENANT
from serving.values.vocabulary import NEVER_US

if TYPE_CHECKING:
    from serving.scheduler.waiting.lanes import Lane


Wants = tuple[tuple[str, ...], str, float]
"""`Request.variants`, `.optimize` and `.cost_max`: what lanes have in common that are answered alike."""


class Request:
    """An inference call. Mutable and slotted: this is the hot path (a frozen dataclass costs 3 times more).

    `lane_key` names what it waits with. `kin` names what else it may share a batch with if one variant runs
    both (None: nothing). `variants` may answer it, the most accurate first. `optimize` is what is best for it
    among them, for at most `cost_max` a million rows. `tier` is the tier it asked for. `size` is its largest
    row's size, `bucket` the size bucket. `declared_us`: by how much each batch of it takes longer than its
    rows do, as its parameters say. It is the same for all that may share a batch with it.

    `deadline_us` is the promise (the client's or the SLO's, the tighter), `parts` times the SLO: a later
    answer is late. `latest_us` is when its last piece is due, which orders the queue. It is never before the
    deadline, and after it if the rows are too many for the promise (`pieces.split`). `expires_us` is the
    client's own deadline: it must be answered by then whatever happens. `own_us`: while others wait for its
    answer and need it sooner, when its pieces were due before.

    `step`: what it says of its sequence, None if it stands for itself. `sequence` is the sequence's number in
    the model's book, `home` the only slice that may run it ("": any), `slot` its place there.

    `name`: its client's name for it, `trace`: the traceparent that it came with; "" for none.
    `below`: the traceparent that another server got for it, "" while none did (an observer's words may stand
    there, too).
    `ran`: what an observer keeps of its last batch.
    """

    __slots__ = (
        "arrived_us",
        "below",
        "bucket",
        "cost_max",
        "deadline_us",
        "declared_us",
        "expires_us",
        "filling_us",
        "home",
        "id",
        "kin",
        "lane_key",
        "latest_us",
        "lost",
        "model",
        "name",
        "open_pieces",
        "optimize",
        "own_us",
        "parts",
        "payload_bytes",
        "pieces",
        "protected",
        "ran",
        "rank",
        "rows",
        "sequence",
        "size",
        "slot",
        "started_us",
        "step",
        "tenant",
        "tier",
        "trace",
        "variants",
        "waiting",
    )  # fmt: skip

    def __init__(self, request_id: int, model: str, rows: int, arrived_us: int, deadline_us: int) -> None:
        self.id = request_id
        self.model = model
        self.rows = rows
        self.arrived_us = arrived_us
        self.deadline_us = deadline_us
        self.latest_us = deadline_us
        self.parts = 1
        self.expires_us = NEVER_US
        self.size = 0
        self.bucket = 0
        self.declared_us = 0
        self.tenant = DEFAULT_TENANT
        self.rank = 0
        self.protected = False  # others cause the overload that it arrived in
        self.payload_bytes = 0
        self.variants: tuple[str, ...] = ()
        self.optimize = MOST_ACCURATE
        self.cost_max = inf
        self.tier = ""
        self.lane_key: Hashable = ()
        self.kin: Hashable = None
        self.pieces: list[Piece] = []
        self.open_pieces = 0  # not yet computed
        self.waiting = 0  # not yet dispatched
        self.own_us: list[int] | None = None
        self.lost = 0  # batches that died with their worker while it was in them
        self.filling_us = 0  # what it waited for its first batch to fill, though the slice was free
        self.started_us = 0  # when its first piece was dispatched; 0 while all of it waits
        self.step: SequenceStep | None = None
        self.sequence = 0
        self.home = ""
        self.slot = -1
        self.name = ""
        self.trace = ""
        self.below = ""
        self.ran: object = None

    def is_vain(self, now_us: int) -> bool:
        """Return whether it declares a time that is longer than it can wait, however quick the model is."""
        return self.declared_us > 0 and now_us + self.declared_us > self.deadline_us


class Offered:
    """A request that an edge refused before it knew more of it than its model: one row. A
    `serving.policy.batching.interface.ArrivalView`."""

    __slots__ = ("bucket", "lane_key", "rows")

    def __init__(self, bucket: int) -> None:
        self.rows = 1
        self.bucket = bucket
        self.lane_key: Hashable = ()


def wants_of(request: Request) -> Wants:
    """Return what decides which variant answers a request."""
    return request.variants, request.optimize, request.cost_max


class Piece:
    """`rows` rows of a request from `first_row` on; `lane` is where it waits, None once it is dispatched.

    `deadline_us` is when its rows are to be computed, but for the time that its request declares. `size` is
    its request's. `apart`: the part of a failed batch that it is tried again with, 0 where it is in
    none.
    """

    __slots__ = (
        "apart",
        "arrived_us",
        "deadline_us",
        "downgrade",
        "first_row",
        "lane",
        "protected",
        "request",
        "returned",
        "rows",
        "sequence",
        "size",
    )  # fmt: skip

    def __init__(self, request: Request, first_row: int, rows: int) -> None:
        self.request = request
        self.first_row = first_row
        self.rows = rows
        self.deadline_us = request.deadline_us - request.declared_us
        self.arrived_us = request.arrived_us
        self.protected = request.protected
        self.size = request.size
        self.lane: Lane | None = None
        self.apart = 0
        self.returned = False  # it was in a batch before
        self.downgrade = ""  # why its batch is not run by the variant that would without pressure
        self.sequence = 0  # its place among equal deadlines; kept when it comes back
