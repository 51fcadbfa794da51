"""The data plane's state machine: queues, batches in flight, slices. One method per event.

Rules: every instant comes in as `now_us`; nothing here awaits, logs, reads a clock or sees a payload; each
event returns commands, which the driver carries out after the call. `wake_us` says when `wake` is due.
Every request that `arrive` is told of is answered exactly once. Batches come before answers in what an event
returns: an answer may be the occasion for its recipient to cancel a request of such a batch.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from serving.policy.admission import refuse
from serving.policy.arbitration import decide
from serving.policy.batching.seam import BatchReport, Choice, PieceView
from serving.scheduler.commands import Answer, Command, ReplaceWorker, RunBatch
from serving.scheduler.lanes import Lane
from serving.scheduler.models import Model, explain
from serving.scheduler.requests import Piece, Request
from serving.scheduler.slices import Replica, Slice, SliceQueue
from serving.specs import Limits, ServedModel
from serving.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    DRAINING,
    MEMORY_FULL,
    MODEL_ERROR,
    NEVER_US,
    NO_REPLICA,
    WORKER_LOST,
    Outcome,
)  # fmt: skip

RETRIES = 1
"""Batches that a request may lose with their worker and still be dispatched again: a request that kills
workers takes at most two of them."""


class Scheduler:
    """Drives every model's queue over every slice."""

    def __init__(self, models: Iterable[ServedModel], limits: Limits) -> None:
        self._limits = limits
        self._models = {served.name: Model(served) for served in models}
        self._slices: dict[str, Slice] = {}
        self._requests: dict[int, Request] = {}  # accepted, not yet answered
        self._running: dict[int, Slice] = {}  # batch id -> its slice
        self._expiries: list[
            tuple[int, int]
        ] = []  # heap of (instant, request id); answered ones leave lazily
        self._batch_count = 0
        self._held_bytes = 0
        self._draining = False
        self.wake_us = NEVER_US

    # what the driver may ask

    @property
    def open_requests(self) -> int:
        """Accepted requests without an answer."""
        return len(self._requests)

    def queue_rows(self, model: str) -> int:
        """Rows waiting for a batch."""
        return self._models[model].queue.backlog.rows

    def is_idle(self, slice_name: str) -> bool:
        """Whether a slice has nothing to run and nothing waits for it."""
        live = self._slices.get(slice_name)
        return live is not None and live.free and not any(q.queue.backlog.rows for q in live.queues.values())

    def can_answer(self, model: str, variant: str) -> bool:
        """Whether a live replica of the variant exists."""
        return bool(self._models[model].resident.get(variant))

    # events of requests

    def arrive(self, request: Request, now_us: int) -> Sequence[Command]:
        """A request joins its model's queue, or is refused at once."""
        model = self._models[request.model]
        backlog = model.queue.backlog
        outcome = self._refuse(model, request)
        if outcome is not None:
            return (Answer(request, outcome, None, explain(outcome, request, model)),)
        self._requests[request.id] = request
        self._held_bytes += request.payload_bytes
        self._split(request, model)
        backlog.requests += 1
        model.policy.on_arrival(request.rows, request.lane_key, now_us)
        if request.expires_us != NEVER_US:
            self._watch(request)
        for live in model.slices:
            if live.free:
                self.wake_us = now_us  # plan once for all arrivals of this instant
                break
        return ()

    def cancel(self, request_id: int) -> Sequence[Command]:
        """The client left: waiting rows are freed; rows in flight are computed for nobody."""
        request = self._requests.get(request_id)
        return () if request is None else (self._end(request, CLIENT_GONE),)

    def wake(self, now_us: int) -> Sequence[Command]:
        """Deadlines that passed, batches that hang, and batches that are due."""
        answers = self._expire(now_us)
        stalled = self._find_stalled(now_us)
        return [*self._plan(now_us), *answers, *stalled]

    def drain(self) -> None:
        """Refuse all that comes from now on; what was accepted is answered."""
        self._draining = True

    # events of batches and slices

    def batch_done(self, batch_id: int, compute_us: int, now_us: int) -> Sequence[Command]:
        """A batch was computed. Unknown ids (of a slice that was given up) are ignored."""
        live = self._running.get(batch_id)
        batch = self._settle(batch_id)
        if batch is None or live is None:
            return ()
        here = live.queues.get(batch.model)
        replica = here.replicas.get(batch.variant) if here is not None else None
        if replica is not None:
            replica.learn(batch, compute_us, now_us - batch.started_us)
        report = BatchReport(batch.variant, batch.rows, batch.size, compute_us, batch.full, live.name)
        self._models[batch.model].policy.on_done(report, now_us)
        answers = self._expire(now_us)
        for piece in batch.pieces:
            request = piece.request
            request.open_pieces -= 1
            if request.open_pieces == 0 and self._requests.pop(request.id, None) is not None:
                self._held_bytes -= request.payload_bytes
                request.pieces = []  # they know it too: a cycle would wait for the garbage collector
                answers.append(Answer(request, COMPLETED, batch))
        return [*self._plan(now_us), *answers]

    def batch_failed(self, batch_id: int, detail: str, now_us: int) -> Sequence[Command]:
        """The model raised: its batch fails, nothing else does."""
        batch = self._settle(batch_id)
        if batch is None:
            return ()
        answers = self._expire(now_us)
        for piece in batch.pieces:
            if piece.request.id in self._requests:
                answers.append(self._end(piece.request, MODEL_ERROR, detail))
        return [*self._plan(now_us), *answers]

    def replica_up(self, slice_name: str, model: str, replica: Replica, now_us: int) -> Sequence[Command]:
        """A replica can take batches (or its latency is known better than before)."""
        live = self._slices.setdefault(slice_name, Slice(slice_name))
        owner = self._models[model]
        here = live.queues.get(model)
        if here is None:
            here = live.queues[model] = SliceQueue(model, owner.queue, owner.policy, live, owner.slices)
            owner.slices.append(live)
        before = here.replicas.get(replica.variant)
        if before is None:
            owner.resident[replica.variant] = owner.resident.get(replica.variant, 0) + 1
        else:  # the profile was refined; what its batches taught still holds
            replica.residuals = before.residuals
        here.replicas[replica.variant] = replica
        answers = self._expire(now_us)
        return [*self._plan(now_us), *answers]

    def replica_down(
        self, slice_name: str, model: str, variant: str, detail: str, now_us: int
    ) -> Sequence[Command]:
        """One replica is gone; batches that it has still come back. Requests only it could answer end."""
        live = self._slices.get(slice_name)
        here = live.queues.get(model) if live is not None else None
        if live is None or here is None or here.replicas.pop(variant, None) is None:
            return ()
        owner = self._models[model]
        owner.resident[variant] -= 1
        if not here.replicas:
            del live.queues[model]
            owner.slices.remove(live)
        answers = [*self._expire(now_us), *self._abandon(owner, detail)]
        return [*self._plan(now_us), *answers]

    def slice_down(self, slice_name: str, detail: str, now_us: int) -> Sequence[Command]:
        """A slice's worker is gone: its batches are retried elsewhere where that can be, else failed."""
        live = self._slices.pop(slice_name, None)
        if live is None:
            return ()
        lost = [piece for batch in live.running.values() for piece in batch.pieces]
        for batch_id, batch in live.running.items():
            del self._running[batch_id]
            for request in {piece.request for piece in batch.pieces}:
                request.lost += 1
        for name, here in live.queues.items():
            self._models[name].slices.remove(live)
            for variant in here.replicas:
                self._models[name].resident[variant] -= 1
        answers = self._expire(now_us)
        answers += self._retry(lost, detail)
        for name in live.queues:
            answers += self._abandon(self._models[name], detail)
        return [*self._plan(now_us), *answers]

    def hold(self, slice_name: str) -> None:
        """A measurement takes the slice: no batch starts until `release`."""
        live = self._slices.get(slice_name)
        if live is not None:
            live.holds += 1

    def release(self, slice_name: str, now_us: int) -> Sequence[Command]:
        """The measurement is over."""
        live = self._slices.get(slice_name)
        if live is None or live.holds == 0:
            return ()
        live.holds -= 1
        answers = self._expire(now_us)
        return [*self._plan(now_us), *answers]

    # admission

    def _refuse(self, model: Model, request: Request) -> Outcome | None:
        if self._draining:
            return DRAINING
        if not model.can_answer(request):
            return NO_REPLICA
        if self._held_bytes and self._held_bytes + request.payload_bytes > self._limits.held_bytes:
            return MEMORY_FULL
        return refuse(model.queue.backlog, request.rows, self._limits)

    def _split(self, request: Request, model: Model) -> None:
        """Queue a request in pieces that a batch can hold."""
        if request.rows == 1:  # most are: what follows comes to the same, for 0.4 us more
            piece = Piece(request, 0, 1)
            request.pieces = [piece]
            request.open_pieces = request.waiting = 1
            model.queue.insert(piece)
            return
        rows_max = self._batch_limit(model, request)
        for first_row in range(0, request.rows, rows_max):
            piece = Piece(request, first_row, min(rows_max, request.rows - first_row))
            request.pieces.append(piece)
            model.queue.insert(piece)
        request.open_pieces = request.waiting = len(request.pieces)

    @staticmethod
    def _batch_limit(model: Model, request: Request) -> int:
        """The largest batch that some replica would run of this request."""
        replicas = (
            live.queues[model.served.name].replicas.get(v) for live in model.slices for v in request.variants
        )
        return max(replica.rows_max(request.size) for replica in replicas if replica is not None)

    # dispatch

    def _plan(self, now_us: int) -> list[Command]:
        """Give every free slice its best batch; set `wake_us` for the rest. Batches first, then sheds."""
        batches: list[Command] = []
        shed: list[Command] = []
        wake_us = self._expiries[0][0] if self._expiries else NEVER_US
        for live in self._slices.values():
            while live.free:
                batch, ask_us = self._choose(live, shed, now_us)
                wake_us = min(wake_us, ask_us)
                if batch is None:
                    break
                batches.append(batch)
            for running in live.running.values():
                wake_us = min(wake_us, running.started_us + self._limits.stall_us)
        self.wake_us = wake_us
        return batches + shed

    def _choose(self, live: Slice, shed: list[Command], now_us: int) -> tuple[RunBatch | None, int]:
        """The slice's next batch, if one should run now; and when to ask again, if none."""
        queues: list[SliceQueue] = []
        choices: list[Choice] = []
        wake_us = NEVER_US
        for here in live.queues.values():
            if here.queue.backlog.rows:
                for late, first in here.policy.hopeless(here, now_us):
                    shed += self._shed(late.pieces[:first])
                choice = here.policy.choose(here, now_us)
                if choice.lane is None:
                    wake_us = min(wake_us, choice.wake_us)
                else:
                    queues.append(here)
                    choices.append(choice)
        if not choices:
            return None, wake_us
        index, ask_us = decide(choices, len(self._slices), now_us)
        if index < 0:
            return None, min(wake_us, ask_us)
        here, choice = queues[index], choices[index]
        lane = choice.lane
        assert isinstance(lane, Lane)  # noqa: S101  # the policy was shown nothing else
        wanted = lane.pieces[choice.skip : choice.skip + choice.count]
        shed += self._shed(lane.pieces[: choice.skip])
        count = sum(piece.lane is lane for piece in wanted)  # less, where a shed request had pieces behind
        if count == 0:
            return None, now_us
        return self._dispatch(live, here, lane, (count, choice.variant), now_us), NEVER_US

    def _shed(self, pieces: Sequence[PieceView]) -> list[Command]:
        """End the requests of pieces that can no longer be answered in time."""
        return [
            self._end(piece.request, DEADLINE_UNMET)
            for piece in list(pieces)
            if isinstance(piece, Piece) and piece.request.id in self._requests
        ]

    def _dispatch(
        self, live: Slice, here: SliceQueue, lane: Lane, chosen: tuple[int, str], now_us: int
    ) -> RunBatch:
        """Take the first pieces of a lane (`chosen`: how many, for which variant) into a batch."""
        count, variant = chosen
        pieces = here.queue.take(lane, count)
        self._batch_count += 1
        batch = RunBatch(self._batch_count, live.name, pieces, sum(piece.rows for piece in pieces))
        batch.model = here.model
        batch.variant = variant
        batch.replica = here.replicas[variant].id
        batch.size = lane.size
        batch.started_us = now_us
        batch.full = bool(lane.pieces)
        backlog = here.queue.backlog
        for piece in pieces:
            request = piece.request
            request.started_us = request.started_us or now_us
            request.waiting -= 1
            if request.waiting == 0:
                backlog.requests -= 1
        live.running[batch.id] = batch
        self._running[batch.id] = live
        return batch

    def _settle(self, batch_id: int) -> RunBatch | None:
        live = self._running.pop(batch_id, None)
        return None if live is None else live.running.pop(batch_id)

    def _find_stalled(self, now_us: int) -> list[Command]:
        found = ((live.name, live.stalled(now_us, self._limits.stall_us)) for live in self._slices.values())
        return [ReplaceWorker(name, reason) for name, reason in found if reason]

    # endings

    def _watch(self, request: Request) -> None:
        """Answer the request when its own deadline passes; forget the watches of many that ended before."""
        if len(self._expiries) > 2 * len(self._requests) + 64:
            self._expiries = [entry for entry in self._expiries if entry[1] in self._requests]
            heapify(self._expiries)
        heappush(self._expiries, (request.expires_us, request.id))
        self.wake_us = min(self.wake_us, request.expires_us)

    def _end(self, request: Request, outcome: Outcome, detail: str = "") -> Answer:
        """Take a request out of everything and answer it."""
        del self._requests[request.id]
        self._held_bytes -= request.payload_bytes
        queue = self._models[request.model].queue
        for piece in request.pieces:
            if piece.lane is not None:
                queue.remove(piece)
        request.pieces = []
        if request.waiting:
            request.waiting = 0
            queue.backlog.requests -= 1
        return Answer(request, outcome, None, detail)

    def _expire(self, now_us: int) -> list[Command]:
        """Answer those whose own deadline has passed, waiting or running."""
        answers: list[Command] = []
        while self._expiries and self._expiries[0][0] <= now_us:
            request = self._requests.get(heappop(self._expiries)[1])
            if request is not None:
                answers.append(self._end(request, DEADLINE_QUEUED if request.waiting else DEADLINE_RUNNING))
        return answers

    def _retry(self, lost: Sequence[Piece], detail: str) -> list[Command]:
        """Queue pieces again that a live replica can still answer; end the requests of the others."""
        answers: list[Command] = []
        for piece in lost:
            request = piece.request
            if request.id not in self._requests:
                continue
            model = self._models[request.model]
            if request.lost > RETRIES or not model.can_answer(request):
                answers.append(self._end(request, WORKER_LOST, detail))
                continue
            if request.waiting == 0:
                model.queue.backlog.requests += 1
            request.waiting += 1
            model.queue.insert(piece)
        return answers

    def _abandon(self, model: Model, detail: str) -> list[Command]:
        """End waiting requests that no live replica can answer: nobody can say when one will be back."""
        stranded = {
            piece.request.id: piece.request
            for lane in model.queue.lanes
            for piece in lane.pieces
            if not model.can_answer(piece.request)
        }
        return [self._end(request, WORKER_LOST, detail) for request in stranded.values()]
