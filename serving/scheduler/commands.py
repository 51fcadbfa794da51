"""What the scheduler asks of its driver, carried out after the event's call has returned."""

from dataclasses import dataclass

from serving.scheduler.requests import Piece, Request
from serving.vocabulary import Outcome


class RunBatch:
    """Send these pieces, in this order, to a replica. Also the scheduler's record of the batch in flight."""

    __slots__ = ("full", "id", "model", "pieces", "replica", "rows", "size", "slice", "started_us", "variant")

    def __init__(self, batch_id: int, slice_name: str, pieces: list[Piece], rows: int) -> None:
        self.id = batch_id
        self.slice = slice_name
        self.pieces = pieces
        self.rows = rows
        self.model = ""
        self.variant = ""
        self.replica = 0
        self.full = False
        self.size = 0
        self.started_us = 0


class Answer:
    """End this request. `batch` is the one that completed it, where one did."""

    __slots__ = ("batch", "detail", "outcome", "request")

    def __init__(
        self, request: Request, outcome: Outcome, batch: RunBatch | None = None, detail: str = ""
    ) -> None:
        self.request = request
        self.outcome = outcome
        self.batch = batch
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ReplaceWorker:
    """The slice's worker holds a batch for longer than any may take: end it."""

    slice: str
    reason: str


Command = RunBatch | Answer | ReplaceWorker
