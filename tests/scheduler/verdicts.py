"""What the scheduler says is held to the rules: who ends, which batch runs, what is true afterwards."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from serving.scheduler.commands import Answer, Command, Miss, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.specs import Limits, ServedModel, TenantSpec
from serving.values.vocabulary import (
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    DEADLINE_UNREACHABLE,
    NEVER_US,
    NOT_LOADED,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    Outcome,
)
from tests.scheduler.book import Book
from tests.scheduler.rules import LOST, WAITING, Case, Rules, Site
from tests.scheduler.values import only

COME_BACK = (OVERLOAD, QUOTA, DEADLINE_UNREACHABLE, QUEUE_FULL, NOT_LOADED, DEADLINE_QUEUED, DEADLINE_UNMET)
Causes = Mapping[Outcome, Callable[[Case], bool]]


class Verdicts(Rules):
    """A scheduler, and what it has said so far."""

    def __init__(
        self, models: Sequence[ServedModel], limits: Limits, tenants: Sequence[TenantSpec] = ()
    ) -> None:
        super().__init__(models, limits)
        self.scheduler = Scheduler(models, limits, {tenant.name: tenant for tenant in tenants})
        self.outcomes: dict[int, Outcome] = {}
        self.largest = {model.name: model.spec.batch_max for model in models}
        self.batch_ids: set[int] = set()
        self.book = Book(self.models)

    # what was said

    def _conclude(self, commands: Sequence[Command], now_us: int, causes: Causes) -> None:
        """Enter the answers, then the batches: those of ended requests must not be in one."""
        given_up = set()
        lonely = self._lonely()
        for answer in only(commands, Answer):
            case = self.open.pop(answer.request.id)  # KeyError: it was never accepted, or answered before
            expired = case.request.expires_us <= now_us
            queued = case.waits or LOST in case.rows
            allowed = {
                DEADLINE_QUEUED: expired and case.waits,
                DEADLINE_RUNNING: expired and not case.waits,
                DEADLINE_UNMET: queued and (self.sheds(case.request.model) or self._too_late(case, now_us)),
            }
            cause = causes.get(answer.outcome)
            assert allowed.get(answer.outcome) or (cause is not None and cause(case)), answer.outcome
            assert answer.retry_us > 0 or answer.outcome not in COME_BACK or self.vain(case.request)
            if answer.outcome is DEADLINE_UNMET:
                assert answer.request.own_us is None, "given up for the sake of others"
                assert case is not lonely or self._hopeless(case, now_us), (
                    "the quickest could still answer it"
                )
                given_up.add(case.request)
            self.outcomes[case.request.id] = answer.outcome
            due_us = max(case.due_us) + case.request.declared_us
            self.book.ended(case.request, answer.outcome, due_us, now_us)
        for case in self.open.values():
            case.rows = [WAITING if place == LOST else place for place in case.rows]
        for case in self.open.values():
            case.note_cuts(self.parts)
        for miss in only(commands, Miss):
            waiting = [lane[0].request for lane in self.lanes_away()]
            asked = next(r for r in waiting if r.model == miss.model and self.asks_us(r, now_us) <= now_us)
            self._miss([miss], asked, now_us)
        for batch in only(commands, RunBatch):
            # A request of several pieces may be given up when its first one has just been dispatched.
            pieces = [piece for piece in batch.pieces if piece.request not in given_up]
            self._start(batch, pieces, now_us)

    def _miss(self, misses: Sequence[Miss], request: Request, now_us: int) -> None:
        """Something that the request may be answered by is asked for: what would be there first."""
        for miss in misses:
            away = self.away[miss.model, miss.variant]
            assert away is self.nearest(request, now_us)
            away.said_us = now_us

    def _too_late(self, case: Case, now_us: int) -> bool:
        """What could answer it comes when it is over."""
        request = case.request
        return not self.allowed(request) and NEVER_US > self.answer_us(request, now_us) > min(case.due_us)

    def _lonely(self) -> Case | None:
        """What waits alone, whole, before slices that are all free, of a policy that gives up only what is
        late or in the way."""
        waiting = [case for case in self.open.values() if case.waits or LOST in case.rows]
        if len(waiting) != 1 or not all(site.free and not site.suspect for site in self.sites.values()):
            return None
        (case,) = waiting
        one = len(case.pieces) == 1 and bool(self.allowed(case.request))
        return case if one and self.policy(case.request.model) == "slo" else None

    def _hopeless(self, case: Case, now_us: int) -> bool:
        """Not even the quickest of all that may answer it, on any slice, would be in time."""
        (piece,) = case.pieces
        mine = [site for site in self.sites.values() if site.rungs(case.request)]
        least_us = min(site.quickest([piece]).typical_us(piece.rows, piece.size) for site in mine)
        return piece.deadline_us < now_us + least_us

    def _looks(self, model: str) -> bool:
        """Whether the model has variants that can be loaded: what is due otherwise is looked at anew."""
        return any(name == model for name, _ in self.away)

    def _settle(self, case: Case) -> None:
        """A replica can say how the request is to be cut: as if it had been there when it came."""
        request, later_us = case.request, case.unsettled
        if later_us is None or not self.allowed(request):
            return
        cuts = self.cut(request, case.due_us[0], later_us)
        tight_us = case.tight_us[-1] if case.tight_us != case.due_us else NEVER_US
        case.unsettled = None
        case.due_us = [due_us for _, due_us in cuts]
        case.tight_us = [min(due_us, tight_us) for due_us in case.due_us]
        case.pieces = list(request.pieces)
        assert not case.pieces or [piece.first_row for piece in case.pieces] == [row for row, _ in cuts]

    @staticmethod
    def _is_of(site: Site, batch: RunBatch) -> bool:
        """Whether the batch ran on the replica that its variant has there now."""
        replica = site.replicas.get((batch.model, batch.variant))
        return replica is not None and replica.id == batch.replica

    def _start(self, batch: RunBatch, pieces: Sequence[Piece], now_us: int) -> None:
        site = self.sites[batch.slice]
        head = batch.pieces[0].request
        replica = site.replicas[batch.model, batch.variant]
        start_us = site.starts_us(now_us)
        assert site.opens_us() <= now_us, "a slice runs one batch at a time, and is sent one ahead"
        assert site.free or not self.waits_elsewhere(batch.model)
        assert (batch.staged, batch.started_us) == (not site.free, start_us)
        assert batch.id not in self.batch_ids
        assert batch.rows == sum(piece.rows for piece in batch.pieces)
        assert batch.rows <= self.largest[batch.model]
        assert batch.rows <= self.rows_max(head, [replica]) or len(batch.pieces) == 1
        assert all(piece.request.expires_us > now_us for piece in batch.pieces)
        assert all(batch.variant in piece.request.variants for piece in batch.pieces), "a floor is kept"
        assert all(self._akin(piece, batch.pieces[0]) for piece in batch.pieces)
        assert (batch.model, batch.bucket) == (head.model, head.bucket)
        assert batch.size == max(piece.request.size for piece in batch.pieces) <= batch.bucket
        assert batch.replica == replica.id
        assert not batch.downgrade or len(head.variants) > 1
        assert batch.declared_us == head.declared_us
        assert batch.predicted_us == replica.predict_us(batch.rows, batch.size) + batch.declared_us
        assert batch.typical_us == replica.typical_us(batch.rows, batch.size) + batch.declared_us
        if pieces:
            first, *others = self._by_lane(pieces)
            lane = self.waiting()[self.lane_key(pieces[0])]
            rule = self._out_of_turn if self.sheds(batch.model) else self._in_turn
            rule(first, lane)
            for kin in others:
                self._in_turn(kin, self.waiting()[self.lane_key(kin[0])])
            if self.is_static(batch.model):
                self._due_and_full(site, replica, sum(piece.rows for piece in first), lane, start_us)
        self.batch_ids.add(batch.id)
        site.start(batch, now_us)
        self._mark(batch, batch.id)

    def _akin(self, piece: Piece, other: Piece) -> bool:
        """Whether they may share a batch: of one lane; or of the same kind, and neither of a failed batch."""
        if self.lane_key(piece) == self.lane_key(other):
            return True
        same = (piece.request.model, piece.request.kin) == (other.request.model, other.request.kin)
        return same and piece not in self.parts and other not in self.parts

    def _by_lane(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        return [list(part) for _, part in groupby(pieces, key=self.lane_key)]

    def _in_turn(self, pieces: Sequence[Piece], lane: Sequence[Piece]) -> None:
        assert pieces == lane[: len(pieces)], "the most urgent of one lane, in their order"

    def _out_of_turn(self, pieces: Sequence[Piece], lane: Sequence[Piece]) -> None:
        """In their order; or sheltered ones first, and then those in their order that are not given up."""
        first = [piece for piece in lane if piece.protected]
        others = [piece for piece in lane if not piece.protected]
        count = sum(piece.protected for piece in pieces)
        turns = [*first[:count], *others[: len(pieces) - count]]
        assert pieces in (lane[: len(pieces)], turns)

    def _due_and_full(
        self, site: Site, replica: Replica, rows: int, lane: Sequence[Piece], start_us: int
    ) -> None:
        """Where one variant alone may answer all that is due, the most urgent goes first."""
        limit = self.rows_max(lane[0].request, [replica])
        taken = 0
        for piece in lane:
            taken += piece.rows
            if taken > rows:
                assert taken > limit, "a piece that fits was left behind"
                break
        assert self.delayed_us(lane) <= start_us or sum(piece.rows for piece in lane) >= limit
        due = [one for one in self.lanes_of(site, self.is_static) if self.due_us(site, one) <= start_us]
        if all(len(site.rungs(one[0].request)) == 1 for one in [lane, *due]):
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
        assert all(self.scheduler.models[name].open == self.open_of(name) for name in self.scheduler._models)
        running = {batch_id for site in self.sites.values() for batch_id in site.running}
        assert set(self.scheduler._dispatch._running) == running
        self._check_queues()
        self.book.check(self.scheduler.seen(now_us), self, now_us)
        assert all(case.pieces_due_us in (case.due_us, case.tight_us) for case in self.open.values())
        for name, site in self.sites.items():
            waiting = [name for name, _ in site.replicas if self.scheduler.queue_rows(name)]
            assert self.scheduler.is_idle(name) == (site.free and not waiting)
            assert self.scheduler._slices[name].suspect == site.suspect
        latest_us = max(now_us, min(self.instants(now_us), default=NEVER_US))
        assert self.scheduler.wake_us <= latest_us, "it wakes too late; waits are in `Rules.delayed_us`"

    def open_of(self, model: str) -> int:
        return sum(case.request.model == model for case in self.open.values())

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
            assert self.scheduler.can_answer(name, variant) == (resident or (name, variant) in self.away)

    def _settled(self, now_us: int) -> None:
        """True besides, after events that look at everything: nothing is overdue, no slice idle in vain."""
        self.check(now_us)
        assert all(case.request.expires_us > now_us for case in self.open.values())
        for lane in self.lanes_away():
            if self.choices(lane[0].request) == 1:
                assert self.answer_us(lane[0].request, now_us) <= lane[0].deadline_us, "it waits in vain"
                assert self.asks_us(lane[0].request, now_us) > now_us, "nobody is asked for it"
        for site in self.sites.values():
            if site.opens_us() == 0:  # ahead of an end, only what cannot grow is sent
                start_us = site.starts_us(now_us)
                assert all(self.due_us(site, lane) > start_us for lane in self.lanes_of(site, self.is_static))
                assert all(self.delayed_us(lane) > start_us for lane in self.lanes_of(site, self.serves_late))
                assert all(lane[0].deadline_us > start_us for lane in self.lanes_of(site, self.sheds))
            if site.suspect:
                assert all(self.tried(site, lane, now_us) for lane in self.lanes_of(site, self.sheds))
