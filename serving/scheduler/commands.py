"""What the scheduler asks of its driver, carried out after the event's call has returned."""

from dataclasses import dataclass
from math import ceil

from serving.policy.estimates.freshness import Freshness
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.vocabulary import Outcome


class RunBatch:
    """Send these pieces, in this order, to a replica. Also the scheduler's record of the batch in flight.

    A `staged` batch was sent ahead, while another ran: until the other is back, `started_us` is when this
    batch should start. `size` is its largest row's size, `bucket` its lane's. `typical_us` is what it
    typically takes, `lead_us` how long before its end the next batch may go. `declared_us`: the part of its
    time that its requests declare (`Request.declared_us`). `beside`: another slice of the device was busy
    when it started; `joined`: another became busy while it ran. `cold`: it did not follow at once on another
    batch of its replica. `downgrade`: why it runs on a variant that would not run it without pressure
    (`vocabulary.Downgrade`). "" if the usual variant runs it.
    """

    __slots__ = (
        "beside", "bucket", "cold", "declared_us", "downgrade", "full", "id", "joined", "lead_us",
        "longest_us", "model", "pieces", "predicted_us", "replica", "rows", "size", "slice", "staged",
        "started_us", "turns", "typical_us", "variant", "warned_us",
    )  # fmt: skip

    def __init__(self, batch_id: int, slice_name: str, pieces: list[Piece], rows: int) -> None:
        self.id = batch_id
        self.slice = slice_name
        self.pieces = pieces
        self.rows = rows
        self.model = ""
        self.variant = ""
        self.replica = 0
        self.full = False
        self.bucket = 0
        self.size = 0
        self.declared_us = 0
        self.started_us = 0
        self.staged = False
        self.typical_us = 0.0
        self.lead_us = 0.0  # 0: the next waits for its end
        self.warned_us = 0  # when it was last said to be stalled
        self.predicted_us = 0.0  # what was planned with, dispatch to result
        self.longest_us = 0.0  # the same, whoever may have joined it since
        self.beside = False
        self.joined = False
        self.cold = True
        self.downgrade = ""
        self.turns = 0  # of its device, as of its start

    def told_us(self, compute_us: int) -> int:
        """Return what a batch that computed for so long says of the time that its rows take. Where requests
        declare some, that is what is left, and at most what was expected: how exactly the model keeps to what
        they declare, it does not say."""
        if not self.declared_us:
            return compute_us
        return max(min(compute_us, ceil(self.typical_us)) - self.declared_us, 0)


class Answer:
    """End this request. `batch` is the one that completed it, where one did; `retry_us` as in `Reply`."""

    __slots__ = ("batch", "detail", "outcome", "request", "retry_us")

    def __init__(
        self, request: Request, outcome: Outcome, batch: RunBatch | None = None, detail: str = ""
    ) -> None:
        self.request = request
        self.outcome = outcome
        self.batch = batch
        self.detail = detail
        self.retry_us = 0


@dataclass(frozen=True)
class Suspect:
    """The slice's batch is out for longer than predicted and allowed for: nothing is planned on it."""

    slice: str
    reason: str


@dataclass(frozen=True)
class ReplaceWorker:
    """The slice's worker holds a batch for longer than any may take: end it."""

    slice: str
    reason: str


@dataclass(frozen=True)
class FlagProfile:
    """What batches say of a replica's profile has changed, or is still so of a new one."""

    slice: str
    replica: int
    freshness: Freshness


@dataclass(frozen=True)
class Miss:
    """A request came, or waits, for a variant that is neither loaded nor being loaded."""

    model: str
    variant: str


Command = RunBatch | Answer | Suspect | ReplaceWorker | FlagProfile | Miss
