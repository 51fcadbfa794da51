"""The data plane's state machine: queues, batches in flight, slices. One method per event.

Rules: every instant comes in as `now_us`; nothing here awaits, logs, reads a clock or sees a payload; each
event returns commands, which the driver carries out after the call. `wake_us` says when `wake` is due.
Every request that `arrive` is told of is answered exactly once. Batches come before answers in what an event
returns: an answer may be the occasion for its recipient to cancel a request of such a batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from mypy_extensions import mypyc_attr

from serving.policy.batching.interface import BatchReport
from serving.policy.estimates.freshness import Judgement
from serving.policy.estimates.latency import Lateness
from serving.policy.isolation import halves
from serving.policy.limits.admission import QueueLength
from serving.policy.scaling.interface import LoadReport
from serving.scheduler.admission import Admission
from serving.scheduler.cold import ColdStarts
from serving.scheduler.commands import Command
from serving.scheduler.dispatch import Dispatch
from serving.scheduler.endings import RETRIES, Endings
from serving.scheduler.models.load_reports import look
from serving.scheduler.models.models import ScheduledModel
from serving.scheduler.pieces import settle, shrink, split
from serving.scheduler.sequences import Sequences
from serving.scheduler.slices.comers import Comers
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.slices.roster import Roster
from serving.scheduler.slices.slices import Slice, SliceQueue
from serving.scheduler.waiting.accepted import Accepted
from serving.scheduler.waiting.requests import Offered, Request
from serving.values.specs import Limits, ServedModel, TenantSpec
from serving.values.vocabulary import CLIENT_GONE, DEADLINE_UNMET, DRAINING, NEVER_US, NO_REPLICA, WORKER_LOST

QUIET_US: Final = 1_000_000
"""Without a batch, before control may lend an idle slice to measurements of up to half an SLO."""


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
        self._waiting = QueueLength()  # of all models together: its rows alone
        self._models = {served.name: ScheduledModel(served, -1, self._waiting) for served in models}
        self._slices: dict[str, Slice] = {}
        self._accepted = Accepted()
        self._roster = Roster()
        self._comers = Comers(devices, limits.stall_us, self._roster)
        self._dispatch = Dispatch(self._slices, self._models, self._waiting, self._roster, ahead)
        self._admission = Admission(self._models, tenants, limits)
        self._sequences = Sequences(self._models)
        self._endings = Endings(self._models, self._accepted, self._admission, self._sequences)
        self._cold = ColdStarts(self._models)
        self._lateness = Lateness()
        self._timed = False  # wake_us is an instant that was asked for ahead
        self._due_us = NEVER_US
        self._noted_us = NEVER_US  # when an arrival found a review due

    # what the driver may ask

    @property
    def wake_us(self) -> int:
        """Return when the next timer event is due."""
        return min(self._noted_us, self._due_us)

    @property
    def models(self) -> Mapping[str, ScheduledModel]:
        """What is kept of each model, to look at."""
        return self._models

    @property
    def open_requests(self) -> int:
        """Accepted requests without an answer."""
        return len(self._accepted)

    @property
    def held_bytes(self) -> int:
        """Tensors of the accepted requests together."""
        return self._accepted.held_bytes

    def queue_rows(self, model: str) -> int:
        """Return the number of rows that wait for a batch."""
        return self._models[model].queue.backlog.rows

    def queue_requests(self, model: str) -> int:
        """Return the number of requests with rows that wait for a batch."""
        return self._models[model].queue.backlog.requests

    def rates(self, now_us: int) -> dict[str, float]:
        """Return the steady rate of requests a second by model, whatever became of them."""
        return {name: model.forecast.rate(now_us) for name, model in self._models.items()}

    def busy(self, slice_name: str) -> frozenset[str]:
        """Return the models with batches in flight on a slice, rows waiting that it could take, or live
        sequences there."""
        live = self._slices.get(slice_name)
        return frozenset() if live is None else live.wanted().union(self._sequences.on(slice_name))

    def is_idle(self, slice_name: str) -> bool:
        """Return whether a slice has nothing to run and nothing waits for it."""
        live = self._slices.get(slice_name)
        return live is not None and live.idle

    def is_quiet(self, slice_name: str, now_us: int) -> bool:
        """Return whether the slice has had nothing to do for QUIET_US: a measurement would delay nothing."""
        live = self._slices.get(slice_name)
        quiet = live is not None and live.idle and now_us - live.free_since_us >= QUIET_US
        return quiet and not self._sequences.on(slice_name)

    def can_answer(self, model: str, variant: str) -> bool:
        """Return whether a live replica of the variant exists, or will when one is asked for."""
        return self._models[model].can_answer(variant)

    def judgements(self) -> list[Judgement]:
        """Return what batches say of each live replica's profile."""
        return [judgement for live in self._slices.values() for judgement in live.judgements()]

    def seen(self, now_us: int) -> tuple[LoadReport, ...]:
        """Return a report of the load of each model with load-following replicas: its requests and their
        outcomes."""
        return look(self._models.values(), self._slices.values(), now_us)

    # events of requests

    def offer(self, model: str, tenant: str, now_us: int) -> None:
        """Count a request that an edge refused for want of room as offered load. It counts as one row, of the
        size bucket of the model's latest request. A model that is unknown by now counts nothing."""
        owner = self._models.get(model)
        if owner is not None:
            owner.forecast.arrivals += 1
            owner.intake.came(1, now_us)
            owner.policy.on_arrival(Offered(owner.bucket), now_us)
            owner.flow(tenant).rate.add(1, now_us)

    def arrive(self, request: Request, now_us: int) -> Sequence[Command]:
        """Put a request into its model's queue, or refuse it at once. Either may cause a Miss."""
        model = self._models[request.model]
        model.forecast.arrivals += 1
        model.intake.came(request.rows, now_us)
        model.policy.on_arrival(request, now_us)
        model.bucket = request.bucket
        if request.step is not None and (refusal := self._endings.exclude(request)) is not None:
            return (refusal,)
        outcome = self._admission.admit(model, request, self._accepted, now_us)
        if self._admission.is_due:
            self._noted_us = now_us
        if outcome is not None:
            answer = self._endings.refuse(model, request, outcome, now_us)
            asks = model.absent and outcome is not DRAINING and outcome is not NO_REPLICA
            return (answer, *self._cold.ask(model, request.variants, now_us)) if asks else (answer,)
        self._accepted.add(request)
        model.open += 1
        if request.expires_us < self._due_us:
            # Not before now: decoding may have taken longer than the client gave.
            self._due_us = min(self._due_us, max(request.expires_us, now_us))
        if request.step is None or not self._sequences.accept(model, request, now_us):
            split(request, model)
        else:
            self._due_us = min(self._due_us, max(self._sequences.look_us, now_us))
        model.queue.backlog.requests += 1
        self._ask_for_plan(model, request.pieces[0].deadline_us, now_us)
        if not model.absent:
            return ()
        misses = self._cold.wait(model, request, now_us)
        self._due_us = min(self._due_us, max(self._cold.look_us, now_us))
        return misses

    def tighten(self, request_id: int, deadline_us: int, now_us: int) -> Sequence[Command]:
        """Tighten a request's deadline to `deadline_us`, because other calls also wait for its answer. Its
        pieces move forward in their lane.

        The promise to its own client stays. Once the others' deadline cannot be met, the request is due as
        before: it is not given up for their sake.
        """
        request = self._accepted.get(request_id)
        if request is None:
            return ()
        due_us = deadline_us - request.declared_us
        if any(piece.deadline_us > due_us for piece in request.pieces):
            model = self._models[request.model]
            model.queue.tighten(request, deadline_us)
            if request.waiting:
                self._ask_for_plan(model, due_us, now_us)
                self._look_again(model, now_us)
        return ()

    def pass_on(self, request: Request, successor: Request, now_us: int) -> None:
        """Pass a request on to `successor`, because its client left and another call waits for the same
        answer."""
        model = self._models[request.model]
        model.queue.pass_on(request, successor)
        if request.id in model.unsettled and successor.expires_us != NEVER_US:
            model.unsettled[request.id] = request, 0
        if request.waiting:
            self._ask_for_plan(model, successor.deadline_us - request.declared_us, now_us)
            self._look_again(model, now_us)

    def expire(self, request_id: int, expires_us: int, now_us: int) -> None:
        """Set when a request is answered at the latest, instead of its client's deadline; NEVER_US: its
        driver sees to that."""
        if (request := self._accepted.get(request_id)) is not None:
            self._accepted.expire(request, expires_us)
            self._due_us = min(self._due_us, max(expires_us, now_us))

    def cancel(self, request_id: int) -> Sequence[Command]:
        """Cancel a request of a client that left: waiting rows are freed, and rows in flight are computed in
        vain."""
        request = self._accepted.get(request_id)
        if request is None:
            return ()
        if request.sequence:
            self._wake_now(0)  # for what it leaves: its slot, and requests behind it
        return (self._endings.end(request, CLIENT_GONE),)

    def wake(self, now_us: int) -> Sequence[Command]:
        """Handle expired deadlines, hung batches, and batches that are due."""
        if self._timed and now_us >= self._due_us:
            self._lateness.add(now_us - self._due_us)
        if self._admission.is_due:
            self._admission.review(now_us)
            self._noted_us = NEVER_US
            if now_us < self._due_us:
                return ()
        answers = self._endings.expire(now_us)
        doubts: list[Command] = []
        if self._roster.doubt_us <= now_us:
            doubts += [doubt for live in self._slices.values() for doubt in live.doubts(now_us)]
        return [*self._plan(answers, now_us), *doubts]

    def drain(self) -> None:
        """Refuse all that comes from now on; what was accepted is answered."""
        self._admission.draining = True

    # events of batches and slices

    def batch_done(self, batch_id: int, compute_us: int, now_us: int) -> Sequence[Command]:
        """Note that a batch was computed. Ignore unknown ids (of a slice that was given up)."""
        batch = self._dispatch.settle(batch_id, now_us)
        if batch is None:
            return ()
        here = self._slices[batch.slice].queues.get(batch.model)
        flags = here.learn(batch, compute_us, now_us) if here is not None else []
        report = BatchReport(
            batch.variant, batch.rows, batch.bucket, batch.told_us(compute_us), batch.full, batch.slice,
            batch.typical_us - batch.declared_us, batch.size,
        )  # fmt: skip
        model = self._models.get(batch.model)
        if model is not None and batch.started_us >= model.since_us:  # else it has been forgotten
            model.policy.on_done(report, now_us)
            model.intake.busy_us += compute_us
        answers: list[Command] = [*flags, *self._endings.expire(now_us)]
        for piece in batch.pieces:
            request = piece.request
            request.open_pieces -= 1
            if request.open_pieces == 0 and self._accepted.remove(request):
                answers.append(self._endings.complete(request, batch, now_us))
            if request.sequence:
                self._sequences.back(request, now_us)
        return self._plan(answers, now_us)

    def row_answered(self, batch_id: int, request_id: int, last: bool, now_us: int) -> Sequence[Command]:
        """Note an answer of a decoupled model to a request, which is tried nowhere again from now on. `last`:
        it was the last one. Ignore unknown batches and requests."""
        batch = self._dispatch.alive(batch_id, now_us)
        request = self._accepted.get(request_id)
        if batch is None or request is None:
            return ()
        request.lost = RETRIES + 1
        if not last or not self._accepted.remove(request):
            return ()
        request.open_pieces = 0
        return (self._endings.complete(request, batch, now_us),)

    def batch_failed(
        self, batch_id: int, detail: str, now_us: int, bad_input: bool = False
    ) -> Sequence[Command]:
        """Note that the model raised an error for a batch. Try the batch again in halves, until only the rows
        that the model raises on fail. `bad_input`: the model blames the input."""
        batch = self._dispatch.settle(batch_id, now_us)
        if batch is None:
            return ()
        here = self._slices[batch.slice].queues.get(batch.model)
        failures = here.failed(batch) if here is not None and not bad_input else 0
        answers = self._endings.expire(now_us)
        left = [piece for piece in batch.pieces if piece.request.id in self._accepted]
        parts = []
        if len(batch.pieces) > 1 and self._sequences.may_repeat(batch.model, batch.pieces[0].request):
            parts = halves(left, failures)
        answers += self._endings.fail(batch.id, left, parts, (detail, bad_input), now_us)
        if parts:
            self._cold.look_us = now_us  # its replica may be gone
        for piece in batch.pieces:
            if piece.lane is None:  # it is not tried again
                self._sequences.back(piece.request, now_us)
        return self._plan(answers, now_us)

    def replica_up(self, slice_name: str, model: str, replica: Replica, now_us: int) -> Sequence[Command]:
        """Note that a replica can take batches (or that its latency is known better than before)."""
        owner, live = self._models[model], self._slices.get(slice_name)
        if live is None:
            live = self._slices[slice_name] = self._comers.enter(slice_name, now_us)
            self._dispatch.enter(live)
        here = live.queues.get(model)
        if here is None:
            owner.alike = self._roster.of_model(model)
            shared = (owner.slices, owner.alike, self._lateness)
            here = live.queues[model] = SliceQueue(model, owner.queue, owner.policy, live, shared)
            owner.slices.append(live)
        if replica.variant not in here.replicas:
            owner.resident[replica.variant] = owner.resident.get(replica.variant, 0) + 1
        owner.absent.pop(replica.variant, None)
        flags = here.put(replica)
        live.fit()
        self._sequences.up(owner, slice_name, replica.variant, replica.id, now_us)
        if owner.unsettled:
            settle(owner)
        self._admission.regroup()
        return [*self._plan(self._endings.expire(now_us), now_us), *flags]

    def replica_down(
        self, slice_name: str, model: str, variant: str, detail: str, now_us: int
    ) -> Sequence[Command]:
        """Note that a replica is gone; its batches in flight still come back. End the requests that only it
        could answer."""
        live = self._slices.get(slice_name)
        here = live.queues.get(model) if live is not None else None
        gone = here.replicas.pop(variant, None) if here is not None else None
        if live is None or here is None or gone is None:
            return ()
        here.renew()  # what was chosen may have been for this variant
        owner = self._models[model]
        if not here.replicas:
            del live.queues[model]
        owner.leave(live, [gone], last=not here.replicas)
        self._sequences.down(owner, slice_name, variant, detail, now_us)
        live.fit()
        self._admission.regroup()
        self._cold.look_us = now_us
        return self._plan([*self._endings.expire(now_us), *self._endings.abandon(owner, detail)], now_us)

    def slice_down(
        self, slice_name: str, detail: str, now_us: int, blamed: bool = False
    ) -> Sequence[Command]:
        """Take a slice with a worker that is gone: its batches are retried elsewhere if that is possible,
        else failed. `blamed`: what the worker computed has ended it, and must not end another."""
        live = self._slices.pop(slice_name, None)
        if live is None:
            return ()
        lost = [piece for batch in live.running.values() for piece in batch.pieces]
        self._dispatch.forget(live)
        for batch in live.started:  # a batch that was sent ahead cannot have killed the worker
            for request in {piece.request for piece in batch.pieces}:
                request.lost += RETRIES + 1 if blamed else 1
        for name, here in live.queues.items():
            self._models[name].leave(live, here.replicas.values(), last=True)
            for variant in here.replicas:
                self._sequences.down(self._models[name], slice_name, variant, detail, now_us, dead=True)
        self._admission.regroup()
        self._cold.look_us = now_us
        answers = self._endings.expire(now_us)
        answers += self._endings.retry(lost, WORKER_LOST, detail, now_us)
        for name in live.queues:
            answers += self._endings.abandon(self._models[name], detail)
        return self._plan(answers, now_us)

    # events of models

    def serve(self, served: ServedModel, now_us: int) -> Sequence[Command]:
        """Serve a model that is new, is to be served differently from before, or again: its queue and what
        runs stay.

        If its batching or its SLO changed, its policy begins anew; what waits keeps its deadlines.
        """
        model = self._models.get(served.name)
        if model is None:
            model = self._models[served.name] = ScheduledModel(served, now_us, self._waiting)
        elif model.serve(served):
            shrink(model)
        self._sequences.serve(model)
        model.forecast.begin(now_us)
        self._admission.regroup()
        return self._plan(self._endings.expire(now_us), now_us)

    def retire(self, model: str) -> None:
        """Refuse its requests from now on; what was accepted is answered. KeyError where it is unknown."""
        self._models[model].retired = True

    def forget(self, model: str) -> None:
        """Let a model be unknown. ValueError while its requests are open or it has live replicas; KeyError
        where it is unknown."""
        self._models[model].check_over()
        del self._models[model]
        self._sequences.forget(model)
        self._admission.regroup()

    def cold(
        self, model: str, variant: str, load_us: int, now_us: int, reason: str = ""
    ) -> Sequence[Command]:
        """Note that a variant is loaded within `load_us` of a Miss, whenever no slice holds it. NEVER_US: it
        cannot be loaded any more, for that `reason` if it lasts, and what waits for it ends."""
        owner = self._models[model]
        answers = self._endings.expire(now_us)
        self._cold.mark(owner, variant, load_us, now_us, reason)
        if load_us == NEVER_US:
            why = f": {reason}" if reason else ""
            answers += self._endings.abandon(owner, f"{model} {variant} cannot be loaded{why}")
        return self._plan(answers, now_us)

    def expect(self, model: str, variant: str, ready_us: int, now_us: int) -> Sequence[Command]:
        """Note that a variant is being loaded and will be live at about `ready_us`; end the requests that
        cannot wait so long."""
        self._cold.expect(self._models[model], variant, ready_us, now_us)
        return self._plan(self._endings.expire(now_us), now_us)

    def close_place(self, slice_name: str, model: str, variant: str) -> int:
        """Let a replica take no new sequence, as it is to go. Return how many it has."""
        owner = self._models.get(model)
        return 0 if owner is None else self._sequences.close(owner, slice_name, variant)

    def hold(self, slice_name: str) -> None:
        """Hold the slice for a measurement: no batch starts until `release`."""
        live = self._slices.get(slice_name)
        if live is not None:
            live.hold()

    def release(self, slice_name: str, now_us: int) -> Sequence[Command]:
        """Release the slice: the measurement is over."""
        live = self._slices.get(slice_name)
        if live is None or live.holds == 0:
            return ()
        live.release(now_us)
        return self._plan(self._endings.expire(now_us), now_us)

    # steps

    def _ask_for_plan(self, model: ScheduledModel, due_us: int, now_us: int) -> None:
        """Ask for a plan, as what waits has changed: at once if a slice can take a batch, else when something
        nearer comes."""
        if self._due_us == now_us and not self._timed:
            return  # another event of this instant has asked for the plan
        self._roster.ripen(now_us)
        for there in model.alike:
            if there.free or there.ripe:
                self._wake_now(now_us)  # plan once for all events of this instant
                break
            self._due_us = min(self._due_us, there.opens_us(now_us))
            if there.suspects:  # nothing else may ask in time to give it up
                self._due_us = min(self._due_us, max(due_us, now_us))

    def _wake_now(self, now_us: int) -> None:
        """Have the driver wake the scheduler after all events of this instant."""
        self._due_us = now_us
        self._timed = False

    def _look_again(self, model: ScheduledModel, now_us: int) -> None:
        """Look again, as what waits has other due times: a variant that is not loaded may come too late for
        it."""
        if model.absent:
            self._cold.look_us = self._due_us = min(self._due_us, now_us)

    def _plan(self, answers: Sequence[Command], now_us: int) -> list[Command]:
        """Return the batches that are to run now, then the answers of the event and of what is given up for
        them."""
        given_up: list[Command] = []

        def give_up(request: Request) -> bool:
            if request.own_us is not None:
                self._models[request.model].queue.relax(request)
                return False
            given_up.append(self._endings.shed(request, DEADLINE_UNMET, now_us))
            return True

        if self._sequences.is_due(now_us):
            answers = [*answers, *self._endings.follow(self._cold, now_us)]
        if now_us >= self._cold.look_us:
            answers = [*answers, *self._cold.look(give_up, now_us)]
        batches, wake_us = self._dispatch.plan(give_up, now_us)
        wake_us = min(min(wake_us, self._accepted.next_expiry_us), self._cold.look_us)  # of two mypyc makes C
        wake_us = min(wake_us, now_us if self._sequences.stirred else self._sequences.look_us)
        self._due_us = min(wake_us, self._roster.doubt_us)
        self._timed = True
        return [*batches, *given_up, *answers]
