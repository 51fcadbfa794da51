"""The data plane's driver: calls in, replies out, batches to workers, time to the scheduler.

It decides nothing. Every event is one synchronous call of the scheduler; its commands are carried out
after the call has returned.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType

from serving.policy.estimates.freshness import Judgement
from serving.policy.estimates.latency import Lateness
from serving.policy.scaling.interface import LoadReport
from serving.ports import Call, Reply
from serving.profile.derived.latency import Latency
from serving.runtime.calls import payloads
from serving.runtime.calls.batch_lanes import Lanes
from serving.runtime.calls.builds import Builds
from serving.runtime.calls.nondeterminism import Doubts
from serving.runtime.calls.outgoing import Outgoing
from serving.runtime.calls.payloads import Pending, gather, output_us, rows_of
from serving.runtime.calls.pending_calls import hand_over
from serving.runtime.clocks.alarm import Alarm
from serving.runtime.clocks.clock import now_us
from serving.runtime.observer import BatchRunner, Observer, RowAnswer
from serving.scheduler.commands import Answer, Command, FlagProfile, Miss, ReplaceWorker, RunBatch, Suspect
from serving.scheduler.models.variant_reasons import VariantReasons, load_of, variant_reasons_of
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.sequences import replica_at
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Request
from serving.scheduler.waiting.sequence_book import SequenceStanding
from serving.values.specs import DEFAULT_TENANT, Limits, ServedModel, TenantSpec
from serving.values.vocabulary import COMPLETED, MEMORY_FULL, NO_REPLICA, QUEUE_FULL, Kind, Outcome
from serving.worker.frames.batches import BatchResult

logger = logging.getLogger(__name__)


class Gateway:
    """`serving.ports.Serving` over real workers, made on the running event loop. `devices`: by slice; the
    code that starts a slice enters it. `on_missed(model, variant)`: a variant that is not loaded is wanted.
    `on_retired(model)`: the last open request of a retired model is answered. The gateway calls both after it
    is done with their cause. `on_models`: the models, or a single model, differ from now on. `before(now_us)`
    is called before anything that may answer requests: a request with a passed deadline that is watched
    elsewhere ends first."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        limits: Limits,
        observer: Observer,
        tenants: Iterable[TenantSpec] = (),
        record: Callable[[Call, int], None] | None = None,
        devices: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        default = TenantSpec(DEFAULT_TENANT)
        self.tenants: Mapping[str, TenantSpec] = {each.name: each for each in (default, *tenants)}
        self._served = {model.name: model for model in models}
        self.models: Mapping[str, ServedModel] = self._served  # one object, whatever comes and goes
        self.on_missed: Callable[[str, str], None] = lambda _model, _variant: None
        self.on_retired: Callable[[str], None] = lambda _model: None
        self.on_models: Callable[[], None] = lambda: None
        self.on_readiness: Callable[[], None] = lambda: None  # what is ready may be otherwise than before
        self.before: Callable[[int], None] = lambda _now: None
        self.on_stuck: Callable[[str, str], None] = lambda _slice, _reason: None
        self.on_flag: Callable[[FlagProfile], None] = lambda _flag: None
        self.devices = dict(devices)
        self.prices: dict[str, float] = {}  # of an hour, by slice
        self.sequence_drain_s = min(limits.drain_s, limits.startup_s / 2)  # then control gives a worker up
        self.rehearsed: set[str] = set()  # slices with made-up answers
        self._scheduler = Scheduler(self.models.values(), limits, self.tenants, devices=self.devices)
        self._observer = observer
        self._record = record  # called with every call and its arrival, whatever becomes of it
        self._alarm = Alarm(self._wake)
        self._runners: dict[str, BatchRunner] = {}
        self._pending: dict[int, Pending] = {}
        self._batches: dict[int, RunBatch] = {}
        self._answering = Lateness()
        self._reserve_us = 0  # what answering takes after a batch: it is planned to be back so much earlier
        self._count = 0
        self._draining = False
        self._loop = asyncio.get_running_loop()
        self._lanes = {name: Lanes(model) for name, model in self.models.items()}
        self._retiring: set[str] = set()
        self._answered: set[str] = set()  # models that could ever answer
        self._opened = False  # whether any model ever could
        self.builds = Builds()
        self.doubts = Doubts()
        self.outgoing = Outgoing()

    # what edges see

    @property
    def ready(self) -> bool:
        """New requests are welcome, something has been able to answer, and every model can that ever could or
        is required, but for those that have just come or may have no replica.

        A model that never came up takes the others out of no load balancer; one that is gone does."""
        if self._draining or not self._opened:
            return False
        for name, model in self.models.items():
            counts = (name in self._answered or model.required) and not model.dispensable
            if counts and not self._lanes[name].coming and not self.model_ready(name):
                return False
        return True

    def model_ready(self, name: str) -> bool:
        """Return whether a variant that may answer is live, or will be when it is asked for."""
        model = self.models[name]
        names = model.own.variants or (model.answering_variant,)
        return any(self._scheduler.can_answer(name, variant) for variant in names)

    now_us = staticmethod(now_us)

    @property
    def open_requests(self) -> int:
        """Accepted calls without a reply."""
        return len(self._pending)

    def held_bytes(self) -> int:
        """Return the bytes of the accepted calls' tensors together."""
        return self._scheduler.held_bytes

    def queue_rows(self, model: str) -> int:
        """Return the number of rows that wait for a batch."""
        return self._scheduler.queue_rows(model)

    def queue_requests(self, model: str) -> int:
        """Return the number of requests with rows that wait for a batch."""
        return self._scheduler.queue_requests(model)

    def submit(self, call: Call, deliver: Callable[[Reply], None], again: bool = False) -> int:
        """See `serving.ports.Serving.submit`. `again`: it waited for another call, its arrival is known."""
        now = now_us()
        lanes = self._lanes.get(call.model.name)
        if lanes is None or (call.model is not lanes.model and not lanes.takes(call)):
            return self._turn_away(call, deliver, now)
        self._count += 1
        request = lanes.describe(call, self._count, now, self._reserve_us)
        pending = self._pending[request.id] = Pending(call, request, deliver, now)
        pending.reserve_us = self._reserve_us
        if not again:
            if self._record is not None:
                self._record(call, request.arrived_us)
            self._observer.parsed(request.model, now - request.arrived_us)
        commands = self._scheduler.arrive(request, now)
        if commands:
            self._execute(commands, now)
            return request.id if request.id in self._pending else 0
        self._alarm.set(self._scheduler.wake_us, now)
        return request.id

    def cancel(self, request_id: int) -> None:
        """See `serving.ports.Serving.cancel`."""
        self._execute(self._scheduler.cancel(request_id), now_us())

    def tighten(self, request_id: int, deadline_us: int) -> None:
        """Tighten a request's deadline to `deadline_us`, because other calls wait for the same answer. The
        promise to its own client stays."""
        pending = self._pending.get(request_id)
        if pending is not None:
            now = now_us()
            self._execute(self._scheduler.tighten(request_id, deadline_us - pending.reserve_us, now), now)

    def pass_on(self, request_id: int, successor: Call, deliver: Callable[[Reply], None]) -> bool:
        """Give an open request to `successor`, which waits for the same answer, as its own client is gone.

        Return whether any of it still waits for a batch.
        """
        pending = self._pending[request_id]
        pending.call, pending.deliver, pending.reserve_us = successor, deliver, self._reserve_us
        pending.submitted_us = max(pending.submitted_us, successor.arrived_us)
        now = now_us()
        described = self._lanes[successor.model.name].describe(successor, self._count, now, self._reserve_us)
        self._scheduler.pass_on(pending.request, described, now)
        self._alarm.set(self._scheduler.wake_us, now)
        return pending.request.waiting > 0

    def expire(self, request_id: int, expires_us: int) -> None:
        """Let an open request expire then, and no more when its client had said; one that has is answered."""
        now = now_us()
        self._scheduler.expire(request_id, expires_us, now)
        if expires_us <= now:
            self._wake(now)
        else:
            self._alarm.set(self._scheduler.wake_us, now)

    def judgements(self) -> Sequence[Judgement]:
        """Return what batches say of each live replica's profile."""
        return self._scheduler.judgements()

    def quickest_us(self, call: Call) -> float:
        """Return the least time (us) that a row of a call takes; 0 if no replica may answer it."""
        lanes = self._lanes.get(call.model.name)
        if lanes is None:
            return 0.0
        return self._scheduler.models[call.model.name].quickest_us(lanes.sketch(call))

    def preferred(self, call: Call) -> float:
        """Return the accuracy of the variant that would answer a call at the present load. Return -inf if
        that is unknown, or if there is nothing to choose."""
        if call.variant or len(call.objective.variants) < 2 or call.model.name not in self._lanes:
            return -inf
        return self._scheduler.models[call.model.name].preferred(call.objective.wants)

    def standing(self, model: str) -> VariantReasons:
        """Return why the variants of a model answer that do; KeyError where it is unknown."""
        return variant_reasons_of(self._scheduler.models[model], now_us())

    def sequences(self, model: str) -> SequenceStanding | None:
        """Return the sequences of a model; None if it has none. KeyError where it is unknown."""
        book = self._scheduler.models[model].book
        return None if book is None else book.standing()

    def close_place(self, slice_name: str, model: str, variant: str) -> int:
        """See `serving.runtime.draining.SequencePlaces`."""
        return self._scheduler.close_place(slice_name, model, variant)

    def replica_of(self, slice_name: str, model: str, variant: str) -> int:
        """See `serving.runtime.draining.SequencePlaces`."""
        return replica_at(self._scheduler.models.get(model), slice_name, variant)

    def load(self, model: str) -> tuple[float, int]:
        """Return the share of its slices' time that a model takes, and the number of these slices. Raises
        KeyError if the model is unknown."""
        here = self._scheduler.models[model]
        return load_of(here, now_us()), len(here.slices)

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """Count a request that an edge turned away before it became a call. If the edge had no room for it,
        it also counts as offered load."""
        if outcome is MEMORY_FULL or outcome is QUEUE_FULL:
            self._scheduler.offer(model, tenant, now_us())
        self._observer.refused(model, tenant, outcome)

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """See `serving.ports.Serving.answered`."""
        self._observer.answered(model, reply, read_us, made_us)

    def invalidate(self, model: str = "") -> int:  # noqa: ARG002  # Serving's signature
        """Return 0: nothing is kept here."""
        return 0

    def stop_ready(self) -> None:
        """Turn readiness to false; the gateway still takes requests."""
        self._draining = True
        self.on_readiness()

    def drain(self) -> None:
        """Refuse what comes from now on; what was accepted is answered."""
        self._draining = True
        self._scheduler.drain()
        self.on_readiness()

    # what the fleet tells of models

    def serve(self, model: ServedModel) -> None:
        """Serve a model that is new, is to be served differently from before, or is served again. Earlier
        calls are taken if they fit the model as it is now."""
        now = now_us()
        before = self._lanes.get(model.name)
        self.builds.serve(before.model if before is not None else None, model)
        self._lanes[model.name] = Lanes(model, before, coming=before is None)
        self._served[model.name] = model
        self._retiring.discard(model.name)
        self._execute(self._scheduler.serve(model, now), now)
        self.on_models()
        self.on_readiness()

    def retire(self, name: str) -> None:
        """Stop taking new requests for a model. Raises KeyError if it is not served."""
        del self._served[name]
        self._scheduler.retire(name)
        self._retiring.add(name)
        self._answered.discard(name)
        self._loop.call_soon(self._look_retired, name)
        self.on_models()
        self.on_readiness()

    def forget(self, name: str) -> None:
        """Forget a model that was retired. Raises ValueError and KeyError as the scheduler does."""
        if name in self._served:
            raise ValueError(f"{name} is served: retire it first")
        self._scheduler.forget(name)
        del self._lanes[name]
        self._retiring.discard(name)
        self.doubts.forget(name)

    def cold(self, model: str, variant: str, load_us: int, reason: str = "") -> None:
        """See `Scheduler.cold`."""
        now = now_us()
        self._execute(self._scheduler.cold(model, variant, load_us, now, reason), now)
        self._opened = self._opened or (model in self._served and self.model_ready(model))
        self.on_readiness()

    def expect(self, model: str, variant: str, ready_us: int) -> None:
        """See `Scheduler.expect`."""
        now = now_us()
        self._execute(self._scheduler.expect(model, variant, ready_us, now), now)
        self._opened = self._opened or (model in self._served and self.model_ready(model))
        self.on_readiness()

    def seen(self) -> tuple[LoadReport, ...]:
        """See `Scheduler.seen`."""
        return self._scheduler.seen(now_us())

    def rates(self) -> dict[str, float]:
        """See `Scheduler.rates`."""
        return self._scheduler.rates(now_us())

    def busy(self, slice_name: str) -> frozenset[str]:
        """See `Scheduler.busy`."""
        return self._scheduler.busy(slice_name)

    # what it tells of slices

    def replica_up(
        self, runner: BatchRunner, model: str, variant: str, replica: int, latency: Latency
    ) -> None:
        """Note that a replica may be used (again), with its known latency."""
        now, served = now_us(), self._lanes[model].model
        self._runners[runner.slice] = runner
        self.builds.live((runner.slice, model, variant), replica, served.spec.version)
        self._lanes[model].coming = False
        up = Replica(replica, variant, latency, served)
        up.price = self.prices.get(runner.slice, 0.0)
        self._execute(self._scheduler.replica_up(runner.slice, model, up, now), now)
        if model in self._served and self.model_ready(model):
            self._answered.add(model)
            self._opened = True
        self.on_readiness()

    def replica_down(self, slice_name: str, model: str, variant: str, reason: str) -> None:
        """Note that a replica is gone, though its worker lives."""
        now = now_us()
        self.before(now)
        self.builds.gone(slice_name, model, variant)
        detail = f"{model} {variant} is gone from slice {slice_name}: {reason}"
        self._execute(self._scheduler.replica_down(slice_name, model, variant, detail, now), now)
        self.on_readiness()

    def slice_down(self, slice_name: str, reason: str, blamed: bool = False) -> None:
        """Note that a worker is gone, and its batches with it. `blamed`: what it computed is to blame."""
        now = now_us()
        self.before(now)
        self._runners.pop(slice_name, None)
        self.builds.gone(slice_name)
        self._batches = {key: batch for key, batch in self._batches.items() if batch.slice != slice_name}
        detail = f"the worker of slice {slice_name} {reason}"
        self._execute(self._scheduler.slice_down(slice_name, detail, now, blamed), now)
        self.on_readiness()

    def hold(self, slice_name: str) -> None:
        """Start no batch on the slice until `release`."""
        self._scheduler.hold(slice_name)

    def release(self, slice_name: str) -> None:
        """Free the slice for batches again."""
        now = now_us()
        self._execute(self._scheduler.release(slice_name, now), now)

    def computing(self, slice_name: str) -> str:
        """Return the model of the oldest batch that a slice's worker has, which is what it computes; "" for
        none."""
        return next((batch.model for batch in self._batches.values() if batch.slice == slice_name), "")

    def is_quiet(self, slice_name: str) -> bool:
        """Return whether nothing has run or waited there for a while: a measurement would delay nothing."""
        return self._scheduler.is_quiet(slice_name, now_us())

    def batch_done(self, result: BatchResult) -> None:
        """Take a batch that a worker computed."""
        now = now_us()
        self.before(now)
        batch = self._batches.pop(result.batch_id, None)
        if batch is None:
            return
        back_us = output_us(batch, result, now)
        self._observer.batch_done(batch, result.compute_us, now - batch.started_us, back_us)
        commands = self._scheduler.batch_done(batch.id, result.compute_us, now)
        for command in commands:  # the worker first: it is idle
            if type(command) is RunBatch:
                self._run(command)
        lanes = self._lanes.get(batch.model)
        if result.outputs and lanes is not None and lanes.model.spec.decoupled:
            payloads.give_rows(batch, result, self._pending)
        payloads.keep_parts(batch, result, self._pending, now, batch.slice in self.rehearsed)
        self._execute([command for command in commands if type(command) is not RunBatch], now)
        self._answering.add(now_us() - now)
        self._reserve_us = int(self._answering.value_us or 0)

    def row_answered(self, answer: BatchResult) -> None:
        """Take an answer to a row of a decoupled model's batch. It may have no outputs, and be the last."""
        now = now_us()
        self.before(now)
        batch = self._batches.get(answer.batch_id)
        if batch is None:
            return
        piece = batch.pieces[answer.size]
        pending = self._pending.get(piece.request.id)
        if pending is None:
            return  # its client has left, or it was too late
        payloads.take_row(pending, piece, answer)
        self._observer.row_answered(batch.model, pending.answered(batch, piece, answer, now))
        commands = self._scheduler.row_answered(batch.id, piece.request.id, answer.is_last, now)
        self._execute(commands, now)

    def pieces_of(self, batch_id: int) -> Sequence[int]:
        """Return how many rows each piece of a batch has, in order; () where the batch is unknown."""
        batch = self._batches.get(batch_id)
        return () if batch is None else [piece.rows for piece in batch.pieces]

    def batch_failed(self, batch_id: int, message: str, bad_input: bool = False) -> None:
        """Take a batch that failed because a model function raised. `bad_input`: it blames the input."""
        now = now_us()
        self.before(now)
        if self._batches.pop(batch_id, None) is not None:
            self._execute(self._scheduler.batch_failed(batch_id, message, now, bad_input), now)

    # steps

    def _turn_away(self, call: Call, deliver: Callable[[Reply], None], now: int) -> int:
        """Turn away a call that was understood for a model that has changed or gone since."""
        request = Request(0, call.model.name, call.rows, call.arrived_us or now, now)
        request.tenant = call.tenant
        reply = Reply(NO_REPLICA, f"{request.model} was changed or unloaded as the request came in")
        self._observer.request_done(request, reply, now - request.arrived_us, False)
        hand_over(deliver, reply, request.model)
        return 0

    def _look_retired(self, name: str) -> None:
        if name in self._retiring and not self._scheduler.models[name].open:
            self._retiring.discard(name)
            self.on_retired(name)

    def _wake(self, now: int) -> None:
        self._execute(self._scheduler.wake(now), now)

    def _execute(self, commands: Sequence[Command], now: int) -> None:
        for command in commands:
            if type(command) is Answer:
                self._answer(command)
            elif type(command) is RunBatch:
                self._run(command)
            elif type(command) is Suspect:
                logger.warning("slice %s is suspected: %s", command.slice, command.reason)
                self._observer.worker_suspected(command.slice)
            elif type(command) is ReplaceWorker:
                self.on_stuck(command.slice, command.reason)
            elif type(command) is FlagProfile:
                self.on_flag(command)
            elif type(command) is Miss:
                self._loop.call_soon(self.on_missed, command.model, command.variant)
        self._alarm.set(self._scheduler.wake_us, now)

    def _run(self, batch: RunBatch) -> None:
        self._batches[batch.id] = batch
        pending = [self._pending[piece.request.id] for piece in batch.pieces]
        if version := self.builds.versions.get((batch.slice, batch.model, batch.variant), 0):
            payloads.run_by(version, batch.pieces, pending)
        inputs, parameters = gather(batch.pieces, pending), pending[0].call.parameters
        trace = self.outgoing.trace(self._lanes[batch.model], batch.variant, pending)
        self._runners[batch.slice].run(batch.id, batch.replica, batch.rows, inputs, parameters, trace)

    def _leave(self, request: Request) -> None:
        """Tell the worker that nobody waits for the answers of a request that runs there."""
        for batch, row in rows_of(request, self._batches.values()):
            if batch.slice in self._runners:
                self._runners[batch.slice].leave(batch.id, row)

    def _answer(self, answer: Answer) -> None:
        request = answer.request
        pending = self._pending.pop(request.id)
        if request.started_us and pending.call.model.spec.decoupled and answer.outcome is not COMPLETED:
            self._leave(request)
            kind = "cancel" if answer.outcome.kind is Kind.CANCELLED else "fail"
            self._observer.row_answered(request.model, RowAnswer(pending.answers, kind))
        answered_us = now_us()  # others of the same batch were answered before
        within = answered_us <= request.deadline_us + pending.reserve_us
        if answer.outcome is COMPLETED and answer.batch is not None:
            reply = pending.complete(answer.batch)
            reply.answered_us = answered_us
            if pending.refused_output:
                self._observer.output_refused(request.model, pending.refused_output)
        else:
            reply = Reply(answer.outcome, answer.detail)
        if request.started_us:
            waited_us = max(request.started_us - pending.submitted_us, 0)  # a successor may have come after
            reply.batch_us = min(request.filling_us, waited_us)
            reply.queue_us = waited_us - reply.batch_us
        elif answer.outcome.kind is Kind.SHED:
            reply.queue_us = answered_us - pending.submitted_us
        reply.retry_us, reply.version = answer.retry_us, pending.other_version
        self._observer.request_done(request, reply, answered_us - request.arrived_us, within)
        if request.model in self._retiring:
            self._loop.call_soon(self._look_retired, request.model)
        hand_over(pending.deliver, reply, request.model)
