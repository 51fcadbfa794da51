"""A model of the scheduler by its promises: it performs each event and checks all that is said in return.

Rows are followed one by one: each waits, is in exactly one batch in flight, or is computed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import TypeVar

from serving.scheduler.commands import Answer, Command, ReplaceWorker, RunBatch
from serving.scheduler.requests import Piece, Request
from serving.scheduler.scheduler import RETRIES, Scheduler
from serving.scheduler.slices import Replica
from serving.specs import Limits, ServedModel
from serving.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DRAINING,
    MODEL_ERROR,
    NEVER_US,
    NO_REPLICA,
    QUEUE_FULL,
    WORKER_LOST,
    Outcome,
)  # fmt: skip

WAITING, LOST, COMPUTED = 0, -1, -2  # else the id of the batch that a row is in
C = TypeVar("C")


class Site:
    """A live slice: its replicas by (model, variant), and the batches on it with the start of their watch."""

    def __init__(self) -> None:
        self.holds = 0
        self.replicas: dict[tuple[str, str], Replica] = {}
        self.running: dict[int, RunBatch] = {}
        self.since_us: dict[int, int] = {}

    def variant_for(self, request: Request) -> str | None:
        """The first variant that the request allows and that is resident here."""
        return next((v for v in request.variants if (request.model, v) in self.replicas), None)


class Case:
    """An open request: where each of its rows is, and the batches that it lost with a worker."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rows = [WAITING] * request.rows
        self.lost = 0

    def where(self, piece: Piece) -> int:
        """Where a piece is; its rows are never apart."""
        places = set(self.rows[piece.first_row : piece.first_row + piece.rows])
        assert len(places) == 1
        return places.pop()

    def move(self, piece: Piece, place: int) -> None:
        self.rows[piece.first_row : piece.first_row + piece.rows] = [place] * piece.rows


def only(commands: Iterable[Command], kind: type[C]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


class Witness:
    """Beside a scheduler: one method per event, each with its promises."""

    def __init__(self, models: Sequence[ServedModel], limits: Limits) -> None:
        self.scheduler = Scheduler(models, limits)
        self.models: Mapping[str, ServedModel] = {model.name: model for model in models}
        self.limits = limits
        self.sites: dict[str, Site] = {}
        self.open: dict[int, Case] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.batch_ids: set[int] = set()
        self.draining = False

    # events of requests

    def arrive(self, request: Request, now_us: int) -> None:
        expected, before = self._refusal(request), self.scheduler.wake_us
        commands = self.scheduler.arrive(request, now_us)
        if expected is not None:
            assert [answer.outcome for answer in only(commands, Answer)] == [expected]
            assert len(commands) == 1
            self.outcomes[request.id] = expected
        else:
            assert not commands
            assert [piece.first_row for piece in request.pieces] == self._cuts(request)
            assert sum(piece.rows for piece in request.pieces) == request.rows
            self.open[request.id] = Case(request)
            if not self._finds_a_free_slice(request):
                assert self.scheduler.wake_us == min(before, request.expires_us), "a plan for nothing"
        self.check(now_us)

    def cancel(self, request_id: int, now_us: int) -> None:
        known = request_id in self.open
        self._conclude(self.scheduler.cancel(request_id), now_us, {CLIENT_GONE: lambda c: known})
        assert request_id not in self.open
        self.check(now_us)

    def wake(self, now_us: int) -> None:
        commands = self.scheduler.wake(now_us)
        stalled = {
            name: batch_id
            for name, site in self.sites.items()
            for batch_id, since_us in site.since_us.items()
            if now_us - since_us >= self.limits.stall_us
        }
        assert sorted(c.slice for c in only(commands, ReplaceWorker)) == sorted(stalled)
        for name, batch_id in stalled.items():
            self.sites[name].since_us[batch_id] = now_us
        self._conclude(commands, now_us, {})
        self._settled(now_us)
        assert self.scheduler.wake_us > now_us, "a driver would spin"

    def drain(self) -> None:
        self.scheduler.drain()
        self.draining = True

    # events of batches and slices

    def batch_done(self, batch_id: int, now_us: int) -> None:
        batch = self._finish(batch_id, COMPUTED)
        commands = self.scheduler.batch_done(batch_id, 1, now_us)
        self._conclude(commands, now_us, {COMPLETED: lambda case: set(case.rows) == {COMPUTED}})
        assert all(answer.batch is batch for answer in only(commands, Answer) if answer.outcome is COMPLETED)
        assert all(set(case.rows) != {COMPUTED} for case in self.open.values())
        self._settled(now_us)

    def batch_failed(self, batch_id: int, now_us: int) -> None:
        batch = self._finish(batch_id, LOST)
        broken = {piece.request.id for piece in batch.pieces}
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
        for batch in site.running.values():
            self._mark(batch, LOST)
            for request_id in {piece.request.id for piece in batch.pieces} & set(self.open):
                self.open[request_id].lost += 1
        commands = self.scheduler.slice_down(slice_name, "why", now_us)
        self._conclude(commands, now_us, {WORKER_LOST: self._doomed})
        assert not any(self._doomed(case) for case in self.open.values())
        self._settled(now_us) if known else self.check(now_us)

    def replica_down(self, slice_name: str, model: str, variant: str, now_us: int) -> None:
        site = self.sites.get(slice_name, Site())
        known = site.replicas.pop((model, variant), None) is not None
        commands = self.scheduler.replica_down(slice_name, model, variant, "why", now_us)
        self._conclude(commands, now_us, {WORKER_LOST: self._doomed})
        assert not any(self._doomed(case) for case in self.open.values())
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

    def _conclude(
        self, commands: Sequence[Command], now_us: int, causes: Mapping[Outcome, Callable[[Case], bool]]
    ) -> None:
        """Enter the answers, then the batches: those of ended requests must not be in one."""
        for answer in only(commands, Answer):
            case = self.open.pop(answer.request.id)  # KeyError: it was never accepted, or answered before
            expired = case.request.expires_us <= now_us
            waiting = WAITING in case.rows
            allowed = {DEADLINE_QUEUED: expired and waiting, DEADLINE_RUNNING: expired and not waiting}
            cause = causes.get(answer.outcome)
            assert allowed.get(answer.outcome) or (cause is not None and cause(case)), answer.outcome
            self.outcomes[case.request.id] = answer.outcome
        for case in self.open.values():
            case.rows = [WAITING if place == LOST else place for place in case.rows]
        for batch in only(commands, RunBatch):
            self._start(batch, now_us)

    def _start(self, batch: RunBatch, now_us: int) -> None:
        site = self.sites[batch.slice]
        assert site.holds == 0
        assert not site.running, "a slice of width 1 runs one batch at a time"
        assert batch.id not in self.batch_ids
        lane = self._lane(batch.pieces[0].request)
        head = lane[0].request
        count, rows, limit = len(batch.pieces), sum(p.rows for p in batch.pieces), self._limit(site, head)
        assert batch.pieces == lane[:count], "the most urgent of one lane, in their order"
        assert rows == batch.rows <= self.models[batch.model].spec.batch_max
        assert rows <= limit or count == 1
        assert count == len(lane) or rows + lane[count].rows > limit, "a piece that fits was left behind"
        assert all(piece.request.expires_us > now_us for piece in batch.pieces)
        assert (batch.model, batch.size) == (head.model, head.size)
        assert batch.variant == site.variant_for(head)
        assert batch.replica == site.replicas[batch.model, batch.variant].id
        assert self._due_us(site, lane) <= now_us
        due = [one for one in self._lanes_of(site) if self._due_us(site, one) <= now_us]
        assert self._latest_start_us(site, lane) == min(self._latest_start_us(site, one) for one in due)
        self.batch_ids.add(batch.id)
        site.running[batch.id], site.since_us[batch.id] = batch, now_us
        self._mark(batch, batch.id)

    def _finish(self, batch_id: int, place: int) -> RunBatch:
        site = next(site for site in self.sites.values() if batch_id in site.running)
        del site.since_us[batch_id]
        batch = site.running.pop(batch_id)
        self._mark(batch, place)
        return batch

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
        for name in self.models:
            self._check_queue(name)
        for name, site in self.sites.items():
            busy = site.holds or site.running
            waiting = [name for name, _ in site.replicas if self.scheduler.queue_rows(name)]
            assert self.scheduler.is_idle(name) == (not busy and not waiting)
        assert self.scheduler.wake_us <= max(now_us, min(self._instants(), default=NEVER_US))

    def _check_queue(self, name: str) -> None:
        waiting = [case for case in self._of(name) if WAITING in case.rows]
        backlog = self.scheduler._models[name].queue.backlog
        assert backlog.requests == len(waiting)
        assert self.scheduler.queue_rows(name) == sum(case.rows.count(WAITING) for case in waiting)
        lanes = list(self.scheduler._models[name].queue.lanes)
        assert {lane.key for lane in lanes} == {case.request.lane_key for case in waiting}
        for variant in {v for case in self._of(name) for v in case.request.variants}:
            resident = any((name, variant) in site.replicas for site in self.sites.values())
            assert self.scheduler.can_answer(name, variant) == resident

    def _settled(self, now_us: int) -> None:
        """True besides, after events that look at everything: nothing is overdue, no slice idle in vain."""
        self.check(now_us)
        assert all(case.request.expires_us > now_us for case in self.open.values())
        for site in self.sites.values():
            if not site.holds and not site.running:
                assert all(self._due_us(site, lane) > now_us for lane in self._lanes_of(site))

    def _instants(self) -> Iterable[int]:
        """When a wake is due."""
        for case in self.open.values():
            yield case.request.expires_us
        for site in self.sites.values():
            yield from (since_us + self.limits.stall_us for since_us in site.since_us.values())
            if not site.holds and not site.running:
                yield from (self._due_us(site, lane) for lane in self._lanes_of(site))

    # the rules, said a second time

    def _of(self, model: str) -> list[Case]:
        return [case for case in self.open.values() if case.request.model == model]

    def _lane(self, like: Request) -> list[Piece]:
        """The waiting pieces that may share a batch with this request, the most urgent first."""
        pieces = [
            piece
            for case in self._of(like.model)
            for piece in case.request.pieces
            if case.request.lane_key == like.lane_key and case.where(piece) == WAITING
        ]
        return sorted(pieces, key=lambda p: (p.request.deadline_us, p.request.id, p.first_row))

    def _lanes_of(self, site: Site) -> list[list[Piece]]:
        heads = {
            (case.request.model, case.request.lane_key): case.request
            for case in self.open.values()
            if WAITING in case.rows and site.variant_for(case.request) is not None
        }
        return [self._lane(head) for head in heads.values()]

    def _replica(self, site: Site, request: Request) -> Replica:
        return site.replicas[request.model, site.variant_for(request) or ""]

    def _limit(self, site: Site, request: Request) -> int:
        size = self.models[request.model].batching.size
        return min(self._replica(site, request).rows_max(request.size), size or 1 << 30)

    def _due_us(self, site: Site, lane: Sequence[Piece]) -> int:
        if sum(piece.rows for piece in lane) >= self._limit(site, lane[0].request):
            return 0
        oldest_us = min(piece.request.arrived_us for piece in lane)
        return oldest_us + self.models[lane[0].request.model].batching.delay_us

    def _latest_start_us(self, site: Site, lane: Sequence[Piece]) -> int:
        head, limit = lane[0].request, self._limit(site, lane[0].request)
        rows = lane[0].rows
        for piece in lane[1:]:
            if rows + piece.rows > limit:
                break
            rows += piece.rows
        return head.deadline_us - ceil(self._replica(site, head).predict_us(rows, head.size))

    def _allowed(self, request: Request) -> list[Replica]:
        return [
            site.replicas[request.model, variant]
            for site in self.sites.values()
            for variant in request.variants
            if (request.model, variant) in site.replicas
        ]

    def _finds_a_free_slice(self, request: Request) -> bool:
        return any(
            not site.holds and not site.running and request.model in {model for model, _ in site.replicas}
            for site in self.sites.values()
        )

    def _doomed(self, case: Case) -> bool:
        """It took too many workers with it, or rows of it wait for a variant that is nowhere."""
        waits = WAITING in case.rows or LOST in case.rows
        return case.lost > RETRIES or (waits and not self._allowed(case.request))

    def _refusal(self, request: Request) -> Outcome | None:
        if self.draining:
            return DRAINING
        if not self._allowed(request):
            return NO_REPLICA
        waiting = [case for case in self._of(request.model) if WAITING in case.rows]
        rows = sum(case.rows.count(WAITING) for case in waiting) + request.rows
        full = len(waiting) >= self.limits.queue_requests or (waiting and rows > self.limits.queue_rows)
        return QUEUE_FULL if full else None

    def _cuts(self, request: Request) -> list[int]:
        """First rows of its pieces: as large as some replica would run within the SLO."""
        largest = max(replica.rows_max(request.size) for replica in self._allowed(request))
        return list(range(0, request.rows, largest))
