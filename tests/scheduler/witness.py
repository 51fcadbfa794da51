"""A witness beside the scheduler: it performs each event and holds what is said in return to the rules."""

from collections.abc import Callable, Mapping, Sequence

from serving.policy.isolation import FAILURES_MAX
from serving.scheduler.commands import Answer, Command, ReplaceWorker, RunBatch, Suspect
from serving.scheduler.replicas import Replica
from serving.scheduler.requests import Piece, Request
from serving.scheduler.scheduler import Scheduler
from serving.specs import Limits, ServedModel, TenantSpec
from serving.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    DEADLINE_UNREACHABLE,
    MODEL_ERROR,
    NEVER_US,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    WORKER_LOST,
    Outcome,
)
from tests.scheduler.rules import COMPUTED, LOST, WAITING, Case, Rules, Site
from tests.scheduler.values import only

HELD_OFF = (OVERLOAD, QUOTA, DEADLINE_UNREACHABLE)
COME_BACK = (*HELD_OFF, QUEUE_FULL, DEADLINE_QUEUED, DEADLINE_UNMET)
Causes = Mapping[Outcome, Callable[[Case], bool]]


class Witness(Rules):
    """One method per event, each with its promises."""

    def __init__(
        self, models: Sequence[ServedModel], limits: Limits, tenants: Sequence[TenantSpec] = ()
    ) -> None:
        super().__init__(models, limits)
        self.scheduler = Scheduler(models, limits, {tenant.name: tenant for tenant in tenants})
        self.outcomes: dict[int, Outcome] = {}
        self.batch_ids: set[int] = set()

    # events of requests

    def arrive(self, request: Request, now_us: int) -> None:
        expected, before_us, due_us = self.refusal(request), self.scheduler.wake_us, request.deadline_us
        cuts = self.cuts(request) if expected is None else []
        commands = self.scheduler.arrive(request, now_us)
        if expected is not None or commands:
            (answer,) = only(commands, Answer)
            assert len(commands) == 1
            held_off = self.policy(request.model) == "slo" and answer.outcome in HELD_OFF
            assert answer.outcome is expected or (expected is None and held_off)
            assert answer.retry_us > 0 or answer.outcome not in COME_BACK
            self.outcomes[request.id] = answer.outcome
        else:
            assert [(piece.first_row, piece.deadline_us) for piece in request.pieces] == cuts
            assert sum(piece.rows for piece in request.pieces) == request.rows
            assert request.deadline_us == request.pieces[-1].deadline_us
            self.open[request.id] = Case(request)
            self._woken(request, due_us, before_us, now_us)
        self.check(now_us)

    def _woken(self, request: Request, due_us: int, before_us: int, now_us: int) -> None:
        """A plan is asked for where a slice can take a batch, else for what it brings nearer."""
        mine = [site for site in self.sites.values() if site.serves(request.model)]
        opens_us = min(site.opens_us() for site in mine)
        if opens_us > now_us:
            nearer_us = min(request.expires_us, opens_us)
            if any(site.suspect for site in mine):
                nearer_us = min(nearer_us, due_us)
            assert self.scheduler.wake_us == min(before_us, max(nearer_us, now_us)), "a plan for nothing"

    def cancel(self, request_id: int, now_us: int) -> None:
        known = request_id in self.open
        self._conclude(self.scheduler.cancel(request_id), now_us, {CLIENT_GONE: lambda c: known})
        assert request_id not in self.open
        self.check(now_us)

    def tighten(self, request_id: int, deadline_us: int, now_us: int) -> None:
        case, before_us = self.open.get(request_id), self.scheduler.wake_us
        was_us = case.pieces_due_us if case is not None else []
        assert not self.scheduler.tighten(request_id, deadline_us, now_us)
        if case is not None:
            case.tight_us = [min(due_us, deadline_us) for due_us in was_us]
            assert case.pieces_due_us == case.tight_us
        if case is not None and case.waits and case.tight_us != was_us:
            self._woken(case.request, deadline_us, before_us, now_us)
        else:
            assert self.scheduler.wake_us == before_us, "a plan for nothing"
        self.check(now_us)

    def pass_on(self, request_id: int, heir: Request, now_us: int) -> None:
        """From now on its pieces are due as if the heir had asked."""
        case, before_us = self.open[request_id], self.scheduler.wake_us
        later_us = heir.deadline_us - case.due_us[0]
        own = heir.expires_us != NEVER_US
        case.due_us = [heir.deadline_us if own else due_us + later_us for due_us in case.due_us]
        self.scheduler.pass_on(case.request, heir, now_us)
        case.tight_us = case.due_us
        assert case.pieces_due_us == case.due_us
        assert case.request.deadline_us == case.due_us[-1]
        assert (case.request.tenant, case.request.arrived_us) == (heir.tenant, heir.arrived_us)
        if case.waits:
            self._woken(case.request, heir.deadline_us, before_us, now_us)
        else:
            assert self.scheduler.wake_us == before_us, "a plan for nothing"
        self.check(now_us)

    def expire(self, request_id: int, expires_us: int, now_us: int) -> None:
        self.scheduler.expire(request_id, expires_us, now_us)
        assert self.open[request_id].request.expires_us == expires_us
        self.check(now_us)

    def wake(self, now_us: int) -> None:
        commands = self.scheduler.wake(now_us)
        doubted, stalled = [], []
        for name, site in self.sites.items():
            if not site.suspect and site.suspect_us() <= now_us:
                site.suspect = True
                doubted.append(name)
            if site.stall_us(self.limits.stall_us) <= now_us:
                site.warned_us = now_us
                stalled.append(name)
        assert [command.slice for command in only(commands, Suspect)] == doubted
        assert [command.slice for command in only(commands, ReplaceWorker)] == stalled
        self._conclude(commands, now_us, {})
        self._settled(now_us)
        assert self.scheduler.wake_us > now_us, "a driver would spin"

    def drain(self) -> None:
        self.scheduler.drain()
        self.draining = True

    # events of batches and slices

    def batch_done(self, batch_id: int, compute_us: int, now_us: int) -> None:
        site, batch = self._finish(batch_id, COMPUTED, now_us)
        site.failures[batch.model, batch.variant] = 0
        if 2 * compute_us > batch.typical_us:  # else it shows that the estimate is far too high
            self.heard_us[batch.model] = now_us
        commands = self.scheduler.batch_done(batch_id, compute_us, now_us)
        self._conclude(commands, now_us, {COMPLETED: lambda case: set(case.rows) == {COMPUTED}})
        assert all(answer.batch is batch for answer in only(commands, Answer) if answer.outcome is COMPLETED)
        assert all(set(case.rows) != {COMPUTED} for case in self.open.values())
        self._settled(now_us)

    def batch_failed(self, batch_id: int, now_us: int) -> None:
        site, batch = self._finish(batch_id, LOST, now_us)
        replica = (batch.model, batch.variant)
        failures = 0
        if replica in site.replicas:
            failures = site.failures[replica] = site.failures.get(replica, 0) + 1
        left = [p for p in batch.pieces if p.request.id in self.open and p.request.expires_us > now_us]
        again = len(batch.pieces) > 1 and failures <= FAILURES_MAX
        broken = {p.request.id for p in left if not again or not self.in_time(p.request, now_us)}
        for place, piece in enumerate(left):
            self.parts[piece] = (batch.id, int(place >= (len(left) + 1) // 2))
        commands = self.scheduler.batch_failed(batch_id, "why", now_us)
        self._conclude(commands, now_us, {MODEL_ERROR: lambda case: case.request.id in broken})
        assert not broken & set(self.open)
        assert all(a.detail == "why" for a in only(commands, Answer) if a.outcome is MODEL_ERROR)
        self._settled(now_us)

    def unknown_batch(self, batch_id: int, now_us: int) -> None:
        """A report of a batch that is not in flight (any more)."""
        before = self.scheduler.wake_us
        assert not self.scheduler.batch_done(batch_id, 1, now_us)
        assert not self.scheduler.batch_failed(batch_id, "why", now_us)
        assert self.scheduler.wake_us == before
        self.check(now_us)

    def replica_up(self, slice_name: str, model: str, replica: Replica, now_us: int) -> None:
        self.sites.setdefault(slice_name, Site()).replicas[model, replica.variant] = replica
        self._conclude(self.scheduler.replica_up(slice_name, model, replica, now_us), now_us, {})
        self._settled(now_us)

    def slice_down(self, slice_name: str, now_us: int) -> None:
        known = slice_name in self.sites
        site = self.sites.pop(slice_name, Site())
        late = set()
        for batch in site.running.values():
            self._mark(batch, LOST)
            for request in {piece.request for piece in batch.pieces if piece.request.id in self.open}:
                self.open[request.id].lost += batch is site.runs
                if not self.in_time(request, now_us):
                    late.add(request.id)
        commands = self.scheduler.slice_down(slice_name, "why", now_us)
        self._conclude(
            commands, now_us, {WORKER_LOST: lambda case: case.request.id in late or self.doomed(case)}
        )
        assert not late & set(self.open)
        assert not any(self.doomed(case) for case in self.open.values())
        self._settled(now_us) if known else self.check(now_us)

    def replica_down(self, slice_name: str, model: str, variant: str, now_us: int) -> None:
        site = self.sites.get(slice_name, Site())
        known = site.replicas.pop((model, variant), None) is not None
        site.failures.pop((model, variant), None)
        commands = self.scheduler.replica_down(slice_name, model, variant, "why", now_us)
        self._conclude(commands, now_us, {WORKER_LOST: self.doomed})
        assert not any(self.doomed(case) for case in self.open.values())
        self._settled(now_us) if known else self.check(now_us)

    def hold(self, slice_name: str, now_us: int) -> None:
        self.scheduler.hold(slice_name)
        if slice_name in self.sites:
            self.sites[slice_name].holds += 1
        self.check(now_us)

    def release(self, slice_name: str, now_us: int) -> None:
        site = self.sites.get(slice_name)
        free = site is None or site.holds == 0
        if site is not None and not free:
            site.holds -= 1
        self._conclude(self.scheduler.release(slice_name, now_us), now_us, {})
        self.check(now_us) if free else self._settled(now_us)

    # what was said

    def _conclude(self, commands: Sequence[Command], now_us: int, causes: Causes) -> None:
        """Enter the answers, then the batches: those of ended requests must not be in one."""
        given_up = set()
        for answer in only(commands, Answer):
            case = self.open.pop(answer.request.id)  # KeyError: it was never accepted, or answered before
            expired = case.request.expires_us <= now_us
            queued = case.waits or LOST in case.rows
            allowed = {
                DEADLINE_QUEUED: expired and case.waits,
                DEADLINE_RUNNING: expired and not case.waits,
                DEADLINE_UNMET: queued and self.sheds(case.request.model),
            }
            cause = causes.get(answer.outcome)
            assert allowed.get(answer.outcome) or (cause is not None and cause(case)), answer.outcome
            assert answer.retry_us > 0 or answer.outcome not in COME_BACK
            if answer.outcome is DEADLINE_UNMET:
                assert answer.request.own_us is None, "given up for the sake of others"
                given_up.add(case.request)
            self.outcomes[case.request.id] = answer.outcome
        for case in self.open.values():
            case.rows = [WAITING if place == LOST else place for place in case.rows]
        for batch in only(commands, RunBatch):
            # A request of several pieces may be given up when its first one has just been dispatched.
            pieces = [piece for piece in batch.pieces if piece.request not in given_up]
            self._start(batch, pieces, now_us)

    def _start(self, batch: RunBatch, pieces: Sequence[Piece], now_us: int) -> None:
        site = self.sites[batch.slice]
        head = batch.pieces[0].request
        replica = site.replica_for(head)
        start_us = site.starts_us(now_us)
        assert site.opens_us() <= now_us, "a slice runs one batch at a time, and is sent one ahead"
        assert site.free or not self.waits_elsewhere(batch.model)
        assert (batch.staged, batch.started_us) == (not site.free, start_us)
        assert batch.id not in self.batch_ids
        assert batch.rows == sum(piece.rows for piece in batch.pieces)
        assert batch.rows <= self.models[batch.model].spec.batch_max
        assert batch.rows <= self.rows_max(site, head) or len(batch.pieces) == 1
        assert all(piece.request.expires_us > now_us for piece in batch.pieces)
        assert {self.lane_key(piece) for piece in batch.pieces} == {self.lane_key(batch.pieces[0])}
        assert (batch.model, batch.bucket) == (head.model, head.bucket)
        assert batch.size == max(piece.request.size for piece in batch.pieces) <= batch.bucket
        assert (batch.variant, batch.replica) == (site.variant_for(head), replica.id)
        assert batch.predicted_us == replica.predict_us(batch.rows, batch.size)
        assert batch.typical_us == replica.typical_us(batch.rows, batch.size)
        if pieces:
            lane = self.waiting()[self.lane_key(pieces[0])]
            rule = self._out_of_turn if self.sheds(batch.model) else self._in_turn
            rule(pieces, lane)
            if self.is_static(batch.model):
                self._due_and_full(site, batch.rows, lane, start_us)
        self.batch_ids.add(batch.id)
        site.start(batch, now_us)
        self._mark(batch, batch.id)

    def _in_turn(self, pieces: Sequence[Piece], lane: Sequence[Piece]) -> None:
        assert pieces == lane[: len(pieces)], "the most urgent of one lane, in their order"

    def _out_of_turn(self, pieces: Sequence[Piece], lane: Sequence[Piece]) -> None:
        """In their order; or sheltered ones first, and then those in their order that are not given up."""
        first = [piece for piece in lane if piece.sheltered]
        others = [piece for piece in lane if not piece.sheltered]
        count = sum(piece.sheltered for piece in pieces)
        turns = [*first[:count], *others[: len(pieces) - count]]
        assert pieces in (lane[: len(pieces)], turns)

    def _due_and_full(self, site: Site, rows: int, lane: Sequence[Piece], start_us: int) -> None:
        taken = 0
        for piece in lane:
            taken += piece.rows
            if taken > rows:
                assert taken > self.rows_max(site, piece.request), "a piece that fits was left behind"
                break
        assert self.due_us(site, lane) <= start_us
        due = [one for one in self.lanes_of(site, self.is_static) if self.due_us(site, one) <= start_us]
        assert self.latest_start_us(site, lane) == min(self.latest_start_us(site, one) for one in due)

    def _finish(self, batch_id: int, place: int, now_us: int) -> tuple[Site, RunBatch]:
        site = next(site for site in self.sites.values() if batch_id in site.running)
        batch = site.finish(batch_id, now_us)
        self._mark(batch, place)
        return site, batch

    def _mark(self, batch: RunBatch, place: int) -> None:
        for piece in batch.pieces:
            case = self.open.get(piece.request.id)
            if case is not None:
                assert case.where(piece) == (WAITING if place > 0 else batch.id)
                case.move(piece, place)

    # what must hold

    def check(self, now_us: int) -> None:
        """True after every event."""
        assert self.scheduler.open_requests == len(self.open)
        running = {batch_id for site in self.sites.values() for batch_id in site.running}
        assert set(self.scheduler._dispatch._running) == running
        self._check_queues()
        assert all(case.pieces_due_us in (case.due_us, case.tight_us) for case in self.open.values())
        for name, site in self.sites.items():
            waiting = [name for name, _ in site.replicas if self.scheduler.queue_rows(name)]
            assert self.scheduler.is_idle(name) == (site.free and not waiting)
            assert self.scheduler._slices[name].suspect == site.suspect
        assert self.scheduler.wake_us <= max(now_us, min(self.instants(now_us), default=NEVER_US))

    def _check_queues(self) -> None:
        lanes = self.waiting()
        for name in self.models:
            queue = self.scheduler._models[name].queue
            mine = [lane for lane in lanes.values() if lane[0].request.model == name]
            assert queue.backlog.requests == len({piece.request for lane in mine for piece in lane})
            assert self.scheduler.queue_rows(name) == sum(piece.rows for lane in mine for piece in lane)
            kept = {lane.pieces[0]: lane for lane in queue.lanes}
            assert len(kept) == len(mine)
            for lane in mine:
                assert kept[lane[0]].pieces == lane
                assert kept[lane[0]].closed == self.closed(lane)
        for name, variant in {(c.request.model, v) for c in self.open.values() for v in c.request.variants}:
            resident = any((name, variant) in site.replicas for site in self.sites.values())
            assert self.scheduler.can_answer(name, variant) == resident

    def _settled(self, now_us: int) -> None:
        """True besides, after events that look at everything: nothing is overdue, no slice idle in vain."""
        self.check(now_us)
        assert all(case.request.expires_us > now_us for case in self.open.values())
        for site in self.sites.values():
            if site.opens_us() == 0:  # ahead of an end, only what cannot grow is sent
                start_us = site.starts_us(now_us)
                assert all(self.due_us(site, lane) > start_us for lane in self.lanes_of(site, self.is_static))
                assert all(self.delayed_us(lane) > start_us for lane in self.lanes_of(site, self.serves_late))
                assert all(lane[0].deadline_us > start_us for lane in self.lanes_of(site, self.sheds))
            if site.suspect:
                assert all(self.tried(site, lane, now_us) for lane in self.lanes_of(site, self.sheds))
