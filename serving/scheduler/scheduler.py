"""The data plane's state machine: queues, batches in flight, slices. One method per event.

Rules: every instant comes in as `now_us`; nothing here awaits, logs, reads a clock or sees a payload; each
event returns commands, which the driver carries out after the call. `wake_us` says when `wake` is due.
Every request that `arrive` is told of is answered exactly once. Batches come before answers in what an event
returns: an answer may be the occasion for its recipient to cancel a request of such a batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from mypy_extensions import mypyc_attr

from serving.policy.batching.seam import BatchReport
from serving.policy.freshness import Judgement
from serving.policy.isolation import halves
from serving.policy.latency import Lateness
from serving.scheduler.accepted import Accepted
from serving.scheduler.commands import Answer, Command
from serving.scheduler.devices import Device
from serving.scheduler.dispatch import Dispatch
from serving.scheduler.door import Door
from serving.scheduler.models import Model, explain
from serving.scheduler.replicas import Replica
from serving.scheduler.requests import Piece, Request
from serving.scheduler.slices import Slice, SliceQueue
from serving.specs import Limits, ServedModel, TenantSpec
from serving.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    MODEL_ERROR,
    NEVER_US,
    WORKER_LOST,
    Outcome,
)  # fmt: skip

RETRIES = 1
"""Batches that a request may lose with their worker and still be dispatched again: a request that kills
workers takes at most two of them."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler:
    """Drives every model's queue over every slice. `ahead`: whether a batch may be sent shortly before the
    one that runs should be back. `devices`: by slice; those that it does not name share one."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        limits: Limits,
        tenants: Mapping[str, TenantSpec] = MappingProxyType({}),
        ahead: bool = True,
        devices: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._limits = limits
        self._models = {served.name: Model(served) for served in models}
        self._slices: dict[str, Slice] = {}
        self._device_of = devices
        self._devices: dict[str, Device] = {}
        self._accepted = Accepted()
        self._dispatch = Dispatch(self._slices, ahead)
        self._door = Door(self._models, tenants, limits)
        self._lateness = Lateness()
        self._timed = False  # wake_us is an instant that was asked for ahead
        self.wake_us = NEVER_US

    # what the driver may ask

    @property
    def open_requests(self) -> int:
        """Accepted requests without an answer."""
        return len(self._accepted)

    def queue_rows(self, model: str) -> int:
        """Rows waiting for a batch."""
        return self._models[model].queue.backlog.rows

    def queue_requests(self, model: str) -> int:
        """Requests of which rows wait for a batch."""
        return self._models[model].queue.backlog.requests

    def is_idle(self, slice_name: str) -> bool:
        """Whether a slice has nothing to run and nothing waits for it."""
        live = self._slices.get(slice_name)
        return live is not None and live.idle

    def idle_us(self, slice_name: str, now_us: int) -> int:
        """For how long a slice has had nothing to do, 0 where it has."""
        return now_us - self._slices[slice_name].free_since_us if self.is_idle(slice_name) else 0

    def can_answer(self, model: str, variant: str) -> bool:
        """Whether a live replica of the variant exists."""
        return bool(self._models[model].resident.get(variant))

    def judgements(self) -> list[Judgement]:
        """What batches say of each live replica's profile."""
        return [judgement for live in self._slices.values() for judgement in live.judgements()]

    def quickest_us(self, request: Request) -> float:
        """What a row of a request (accepted or not) takes at least; 0 where no replica may answer it."""
        return self._models[request.model].quickest_us(request)

    # events of requests

    def arrive(self, request: Request, now_us: int) -> Sequence[Command]:
        """A request joins its model's queue, or is refused at once."""
        model = self._models[request.model]
        outcome = self._door.refuse(model, request, self._accepted, now_us)
        if outcome is not None:
            answer = Answer(request, outcome, None, explain(outcome, request, model))
            answer.retry_us = self._door.retry_us(outcome, model, request, now_us)
            return (answer,)
        self._accepted.add(request)
        if request.expires_us < self.wake_us:
            # Not before now: decoding may have taken longer than the client gave.
            self.wake_us = min(self.wake_us, max(request.expires_us, now_us))
        self._split(request, model)
        model.queue.backlog.requests += 1
        model.policy.on_arrival(request, now_us)
        self._ask_for_plan(model, request.pieces[0].deadline_us, now_us)
        return ()

    def tighten(self, request_id: int, deadline_us: int, now_us: int) -> Sequence[Command]:
        """Others wait for its answer too and need it by `deadline_us`: its pieces move forward in their lane.

        What its own client was promised stays. Once it cannot be met for the others any more, it is due as
        before: it is not given up for their sake.
        """
        request = self._accepted.get(request_id)
        if request is not None and any(piece.deadline_us > deadline_us for piece in request.pieces):
            model = self._models[request.model]
            model.queue.tighten(request, deadline_us)
            if request.waiting:
                self._ask_for_plan(model, deadline_us, now_us)
        return ()

    def pass_on(self, request: Request, heir: Request, now_us: int) -> None:
        """Its client left, and another waits for the same answer: it is `heir`'s from now on."""
        model = self._models[request.model]
        model.queue.pass_on(request, heir)
        if request.waiting:
            self._ask_for_plan(model, heir.deadline_us, now_us)

    def expire(self, request_id: int, expires_us: int, now_us: int) -> None:
        """It is to be answered by then, not when its client had said; NEVER_US: its driver sees to that."""
        if (request := self._accepted.get(request_id)) is not None:
            self._accepted.expire(request, expires_us)
            self.wake_us = min(self.wake_us, max(expires_us, now_us))

    def cancel(self, request_id: int) -> Sequence[Command]:
        """The client left: waiting rows are freed; rows in flight are computed for nobody."""
        request = self._accepted.get(request_id)
        return () if request is None else (self._end(request, CLIENT_GONE),)

    def wake(self, now_us: int) -> Sequence[Command]:
        """Deadlines that passed, batches that hang, and batches that are due."""
        if self._timed and now_us >= self.wake_us:
            self._lateness.add(now_us - self.wake_us)
        answers = self._expire(now_us)
        doubts = [doubt for live in self._slices.values() for doubt in live.doubts(now_us)]
        return [*self._plan(answers, now_us), *doubts]

    def drain(self) -> None:
        """Refuse all that comes from now on; what was accepted is answered."""
        self._door.draining = True

    # events of batches and slices

    def batch_done(self, batch_id: int, compute_us: int, now_us: int) -> Sequence[Command]:
        """A batch was computed. Unknown ids (of a slice that was given up) are ignored."""
        batch = self._dispatch.settle(batch_id, now_us)
        if batch is None:
            return ()
        here = self._slices[batch.slice].queues.get(batch.model)
        flags = here.learn(batch, compute_us, now_us) if here is not None else []
        report = BatchReport(
            batch.variant, batch.rows, batch.bucket, compute_us, batch.full, batch.slice, batch.typical_us,
            batch.size,
        )  # fmt: skip
        self._models[batch.model].policy.on_done(report, now_us)
        answers: list[Command] = [*flags, *self._expire(now_us)]
        for piece in batch.pieces:
            request = piece.request
            request.open_pieces -= 1
            if request.open_pieces == 0 and self._accepted.remove(request):
                request.pieces = []  # they know it too: a cycle would wait for the garbage collector
                answers.append(Answer(request, COMPLETED, batch))
        return self._plan(answers, now_us)

    def batch_failed(self, batch_id: int, detail: str, now_us: int) -> Sequence[Command]:
        """The model raised: the batch is tried again in halves, until only what it raises on fails."""
        batch = self._dispatch.settle(batch_id, now_us)
        if batch is None:
            return ()
        here = self._slices[batch.slice].queues.get(batch.model)
        failures = here.failed(batch.variant) if here is not None else 0
        answers = self._expire(now_us)
        left = [piece for piece in batch.pieces if piece.request.id in self._accepted]
        parts = halves(left, failures) if len(batch.pieces) > 1 else []
        if not parts:
            for piece in left:
                if piece.request.id in self._accepted:
                    answers.append(self._end(piece.request, MODEL_ERROR, detail))
        for number, part in enumerate(parts, start=1):
            for piece in part:
                piece.apart = 2 * batch.id + number
            answers += self._retry(part, MODEL_ERROR, detail, now_us)
        return self._plan(answers, now_us)

    def replica_up(self, slice_name: str, model: str, replica: Replica, now_us: int) -> Sequence[Command]:
        """A replica can take batches (or its latency is known better than before)."""
        live = self._slices.get(slice_name)
        if live is None:
            device = self._devices.setdefault(self._device_of.get(slice_name, ""), Device())
            live = self._slices[slice_name] = Slice(slice_name, self._limits.stall_us, device)
            live.free_since_us = now_us
        owner = self._models[model]
        here = live.queues.get(model)
        if here is None:
            shared = (owner.slices, self._lateness)
            here = live.queues[model] = SliceQueue(model, owner.queue, owner.policy, live, shared)
            owner.slices.append(live)
        if replica.variant not in here.replicas:
            owner.resident[replica.variant] = owner.resident.get(replica.variant, 0) + 1
        flags = here.put(replica)
        live.fit()
        self._door.regroup()
        return [*self._plan(self._expire(now_us), now_us), *flags]

    def replica_down(
        self, slice_name: str, model: str, variant: str, detail: str, now_us: int
    ) -> Sequence[Command]:
        """One replica is gone; batches that it has still come back. Requests only it could answer end."""
        live = self._slices.get(slice_name)
        here = live.queues.get(model) if live is not None else None
        if live is None or here is None or here.replicas.pop(variant, None) is None:
            return ()
        here.forget()  # what was chosen may have been for this variant
        owner = self._models[model]
        owner.resident[variant] -= 1
        if not here.replicas:
            del live.queues[model]
            owner.slices.remove(live)
        live.fit()
        self._door.regroup()
        return self._plan([*self._expire(now_us), *self._abandon(owner, detail)], now_us)

    def slice_down(self, slice_name: str, detail: str, now_us: int) -> Sequence[Command]:
        """A slice's worker is gone: its batches are retried elsewhere where that can be, else failed."""
        live = self._slices.pop(slice_name, None)
        if live is None:
            return ()
        lost = [piece for batch in live.running.values() for piece in batch.pieces]
        self._dispatch.forget(live)
        for batch in live.started:  # one that was sent ahead has killed nobody
            for request in {piece.request for piece in batch.pieces}:
                request.lost += 1
        for name, here in live.queues.items():
            self._models[name].slices.remove(live)
            for variant in here.replicas:
                self._models[name].resident[variant] -= 1
        self._door.regroup()
        answers = self._expire(now_us)
        answers += self._retry(lost, WORKER_LOST, detail, now_us)
        for name in live.queues:
            answers += self._abandon(self._models[name], detail)
        return self._plan(answers, now_us)

    def hold(self, slice_name: str) -> None:
        """A measurement takes the slice: no batch starts until `release`."""
        live = self._slices.get(slice_name)
        if live is not None:
            live.hold()

    def release(self, slice_name: str, now_us: int) -> Sequence[Command]:
        """The measurement is over."""
        live = self._slices.get(slice_name)
        if live is None or live.holds == 0:
            return ()
        live.release(now_us)
        return self._plan(self._expire(now_us), now_us)

    # steps

    def _ask_for_plan(self, model: Model, due_us: int, now_us: int) -> None:
        """What waits has changed: plan where a slice can take a batch, else when something nearer comes."""
        if self.wake_us == now_us and not self._timed:
            return  # another event of this instant has asked for the plan
        for live in model.slices:
            opens_us = live.opens_us
            if opens_us <= now_us:
                self.wake_us = now_us  # plan once for all events of this instant
                self._timed = False
                break
            self.wake_us = min(self.wake_us, opens_us)
            if live.suspect:  # nothing else may ask in time to give it up
                self.wake_us = min(self.wake_us, max(due_us, now_us))

    def _split(self, request: Request, model: Model) -> None:
        """Queue a request in pieces of at most the batch b with 2 l(b) <= SLO.

        The SLO is a promise for what fits into one: each further piece is due as much later, unless the
        client has said when all of it is. Large requests so leave room between their pieces for small ones.
        """
        if request.rows == 1:  # most are: what follows comes to the same, for 0.4 us more
            piece = Piece(request, 0, 1)
            request.pieces = [piece]
            request.open_pieces = request.waiting = 1
            model.queue.insert(piece)
            return
        rows_max = max(replica.piece_max(request.size) for replica in model.replicas(request))
        slack_us = request.deadline_us - request.arrived_us if request.expires_us == NEVER_US else 0
        for first_row in range(0, request.rows, rows_max):
            piece = Piece(request, first_row, min(rows_max, request.rows - first_row))
            piece.deadline_us += len(request.pieces) * slack_us
            request.pieces.append(piece)
            model.queue.insert(piece)
        request.deadline_us = piece.deadline_us
        request.open_pieces = request.waiting = len(request.pieces)

    def _plan(self, answers: Sequence[Command], now_us: int) -> list[Command]:
        """The batches that are to run now, then the answers of the event and of what is given up for them."""
        given_up: list[Command] = []

        def give_up(request: Request) -> bool:
            if request.own_us is not None:
                self._models[request.model].queue.relax(request)
                return False
            given_up.append(self._shed(request, DEADLINE_UNMET, now_us))
            return True

        batches, wake_us = self._dispatch.plan(give_up, now_us)
        wake_us = min(wake_us, self._accepted.next_expiry_us)
        for live in self._slices.values():
            if live.doubt_us < wake_us:
                wake_us = live.doubt_us
        self.wake_us = wake_us
        self._timed = True
        return [*batches, *given_up, *answers]

    # endings

    def _end(self, request: Request, outcome: Outcome, detail: str = "") -> Answer:
        """Take a request out of everything and answer it."""
        self._accepted.remove(request)
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
        while (request := self._accepted.pop_expired(now_us)) is not None:
            outcome = DEADLINE_QUEUED if request.waiting else DEADLINE_RUNNING
            answers.append(self._shed(request, outcome, now_us))
        return answers

    def _shed(self, request: Request, outcome: Outcome, now_us: int) -> Answer:
        """End a request that was too late, and say when another try may fare better."""
        answer = self._end(request, outcome)
        answer.retry_us = self._door.retry_us(outcome, self._models[request.model], request, now_us)
        return answer

    def _retry(self, pieces: Sequence[Piece], outcome: Outcome, detail: str, now_us: int) -> list[Command]:
        """Queue pieces again that a live replica can still answer in time; end the others' requests so."""
        answers: list[Command] = []
        for piece in pieces:
            request = piece.request
            if request.id not in self._accepted:
                continue
            model = self._models[request.model]
            in_time = now_us + model.quickest_us(request) <= request.deadline_us
            if request.lost > RETRIES or not model.can_answer(request) or not in_time:
                answers.append(self._end(request, outcome, detail))
                continue
            if request.waiting == 0:
                model.queue.backlog.requests += 1
            request.waiting += 1
            piece.returned = True
            model.queue.insert(piece)
        return answers

    def _abandon(self, model: Model, detail: str) -> list[Command]:
        """End waiting requests that no live replica can answer: nobody can say when one will be back."""
        return [self._end(request, WORKER_LOST, detail) for request in model.stranded()]
