"""The scheduler's rules, said a second time and plainly: no queues are kept, everything is looked up.

Rows are followed one by one: each waits, is in exactly one batch in flight, or is computed. Which batch runs
is said exactly for the policy `static`; of the others what must hold of any policy.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import ceil

from serving.policy.estimates.latency import TRY_US
from serving.policy.estimates.suspicion import suspect_us
from serving.scheduler.cold import MISS_EVERY_US
from serving.scheduler.commands import RunBatch
from serving.scheduler.endings import RETRIES
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import (
    DEADLINE_UNREACHABLE,
    DRAINING,
    NEVER_US,
    NO_REPLICA,
    NOT_LOADED,
    QUEUE_FULL,
    Outcome,
)

SERVES_LATE = ("static", "aimd", "nanily", "mark", "slab", "dybatch")
"""Policies that give nothing up (nanily only in its mode `shed`)."""

WAITING, LOST, COMPUTED = 0, -1, -2  # else the id of the batch that a row is in


class Site:
    """A live slice: its replicas by (model, variant), how often each failed in a row, the batches on it.

    The first batch runs; a second one was sent ahead, to start when the first is back.
    """

    def __init__(self) -> None:
        self.holds = 0
        self.suspect = False
        self.replicas: dict[tuple[str, str], Replica] = {}
        self.failures: dict[tuple[str, str], int] = {}
        self.running: dict[int, RunBatch] = {}
        self.since_us = 0  # start of the batch that runs
        self.warned_us = 0  # when it was last said to be stalled

    @property
    def free(self) -> bool:
        return not self.holds and not self.running

    @property
    def runs(self) -> RunBatch:
        return next(iter(self.running.values()))

    def start(self, batch: RunBatch, now_us: int) -> None:
        if not self.running:
            self.since_us, self.warned_us = now_us, 0
        self.running[batch.id] = batch

    def finish(self, batch_id: int, now_us: int) -> RunBatch:
        assert batch_id == self.runs.id, "a worker computes in order"
        self.since_us, self.warned_us, self.suspect = now_us, 0, False
        return self.running.pop(batch_id)

    def opens_us(self) -> int:
        """From when on a batch may be sent: 0 to a free slice, ahead of its end to one that runs one."""
        if self.free:
            return 0
        if self.holds or self.suspect or len(self.running) > 1 or not self.runs.lead_us:
            return NEVER_US
        return self.since_us + int(self.runs.typical_us - self.runs.lead_us)

    def starts_us(self, now_us: int) -> int:
        """When it would start."""
        return now_us if not self.running else max(now_us, self.since_us + int(self.runs.typical_us))

    def suspect_us(self) -> int:
        """From when its batch makes it suspect."""
        return suspect_us(self.since_us, self.runs.predicted_us) if self.running else NEVER_US

    def stall_us(self, stall_us: int) -> int:
        """From when its batch is given up, and then again."""
        if not self.running:
            return NEVER_US
        return max(self.since_us + int(self.runs.predicted_us), self.warned_us) + stall_us

    def serves(self, model: str) -> bool:
        return model in {name for name, _ in self.replicas}

    def rungs(self, request: Request) -> list[Replica]:
        """The replicas here that may answer a request; which of them does is not said again."""
        keys = [(request.model, variant) for variant in request.variants]
        return [self.replicas[key] for key in keys if key in self.replicas]

    def quickest(self, lane: Sequence[Piece]) -> Replica:
        """Of those the one that computes a row of a lane in the least time."""
        size = max(piece.size for piece in lane)
        return min(self.rungs(lane[0].request), key=lambda replica: replica.typical_us(1, size))


class Away:
    """A variant that can be loaded: in so long; or by `ready_us`, where somebody does. A Miss was last said
    at `said_us`."""

    def __init__(self, load_us: int, ready_us: int | None = None) -> None:
        self.load_us = load_us
        self.ready_us = ready_us
        self.said_us = -NEVER_US

    def loaded_us(self, now_us: int) -> int:
        if self.ready_us is None:
            return now_us + self.load_us
        return self.ready_us if self.ready_us > now_us else 2 * now_us - self.ready_us

    def asks_us(self) -> int:
        """When a Miss is to be said (again) for what waits."""
        return self.said_us + MISS_EVERY_US if self.ready_us is None else NEVER_US


class Case:
    """An open request: where each of its rows is, the batches that it lost with a worker, when its pieces
    were due as it came, and when since it was last tightened for others. `unsettled`: it came when no replica
    could say how it is to be cut; how much later each of its pieces is due than the one before, else None."""

    unsettled: int | None = None

    def __init__(self, request: Request) -> None:
        self.request = request
        self.pieces = list(request.pieces)
        self.due_us = self.tight_us = self.pieces_due_us
        self.rows = [WAITING] * request.rows
        self.lost = 0

    @property
    def pieces_due_us(self) -> list[int]:
        return [piece.deadline_us for piece in self.request.pieces]

    @property
    def waits(self) -> bool:
        return WAITING in self.rows

    def where(self, piece: Piece) -> int:
        """Where a piece is; its rows are never apart."""
        places = set(self.rows[piece.first_row : piece.first_row + piece.rows])
        assert len(places) == 1
        return places.pop()

    def move(self, piece: Piece, place: int) -> None:
        self.rows[piece.first_row : piece.first_row + piece.rows] = [place] * piece.rows

    def note_cuts(self, parts: "dict[Piece, tuple[int, int]]") -> None:
        """Pieces may have been cut: the new ones are due as those were that they are of."""
        now = self.request.pieces
        if now and len(now) != len(self.pieces):
            of = [max(i for i, old in enumerate(self.pieces) if old.first_row <= p.first_row) for p in now]
            self.due_us = [self.due_us[place] for place in of]
            self.tight_us = [self.tight_us[place] for place in of]
            for piece, place in zip(now, of, strict=True):
                if self.pieces[place] in parts:
                    parts[piece] = parts[self.pieces[place]]
        self.pieces = list(now)


class Rules:
    """What is known of a scheduler, and what follows from it."""

    def __init__(self, models: Sequence[ServedModel], limits: Limits) -> None:
        self.models: dict[str, ServedModel] = {model.name: model for model in models}
        self.limits = limits
        self.sites: dict[str, Site] = {}
        self.open: dict[int, Case] = {}
        self.parts: dict[
            Piece, tuple[int, int]
        ] = {}  # failed batch and half of it that a piece is tried with
        self.heard_us: dict[str, int] = {}  # by model: the last batch that came back, of its present policy
        self.away: dict[tuple[str, str], Away] = {}
        self.latest: dict[tuple[str, str], Replica] = {}  # of each variant the replica that went last
        self.retired: set[str] = set()
        self.draining = False

    def policy(self, model: str) -> str:
        return self.models[model].batching.policy

    def sheds(self, model: str) -> bool:
        """Whether its policy gives up what waits; those that do not serve it late."""
        batching = self.models[model].batching
        return batching.policy not in SERVES_LATE or batching.mode == "shed"

    def serves_late(self, model: str) -> bool:
        return not self.sheds(model)

    def is_static(self, model: str) -> bool:
        return self.policy(model) == "static"

    # what waits

    def lane_key(self, piece: Piece) -> Hashable:
        """Pieces of the same key may share a batch."""
        return piece.request.model, piece.request.lane_key, self.parts.get(piece)

    def waiting(self) -> dict[Hashable, list[Piece]]:
        """All lanes, the most urgent piece of each first."""
        lanes: dict[Hashable, list[Piece]] = {}
        for case in self.open.values():
            for piece in case.request.pieces if case.waits else ():
                if case.where(piece) == WAITING:
                    lanes.setdefault(self.lane_key(piece), []).append(piece)
        for lane in lanes.values():
            lane.sort(key=lambda p: (p.deadline_us, p.request.id, p.first_row))
        return lanes

    def lanes_of(self, site: Site, asked: Callable[[str], bool]) -> list[list[Piece]]:
        """The lanes that the site could take a batch from, of the models that are `asked` for.

        One that runs a batch takes nothing ahead while a free slice of the model lets it wait.
        """
        return [
            lane
            for lane in self.waiting().values()
            for request in (lane[0].request,)
            if site.rungs(request) and asked(request.model)
            if not site.running or not self.waits_elsewhere(request.model)
        ]

    def waits_elsewhere(self, model: str) -> bool:
        return any(site.free and site.serves(model) for site in self.sites.values())

    def closed(self, lane: Sequence[Piece]) -> bool:
        return lane[0] in self.parts

    # when it is due

    def rows_max(self, request: Request, replicas: Iterable[Replica]) -> int:
        """The largest batch of such requests that any of the replicas runs."""
        size = self.models[request.model].batching.size
        return min(max(each.rows_max(request.bucket) for each in replicas), size or 1 << 30)

    def delayed_us(self, lane: Sequence[Piece]) -> int:
        """Until when a lane may wait for more rows, of a policy that gives nothing up."""
        if self.closed(lane):
            return 0
        oldest_us = min(piece.arrived_us for piece in lane)
        model = self.models[lane[0].request.model]
        return oldest_us + (model.slo_us if model.batching.policy == "mark" else model.batching.delay_us)

    def due_us(self, site: Site, lane: Sequence[Piece]) -> int:
        """When a batch of static must go at the latest, whichever variant runs it."""
        request = lane[0].request
        if sum(piece.rows for piece in lane) >= self.rows_max(request, site.rungs(request)):
            return 0
        return self.delayed_us(lane)

    def latest_start_us(self, site: Site, lane: Sequence[Piece]) -> int:
        """Of a lane that one variant alone may answer."""
        (replica,) = site.rungs(lane[0].request)
        limit = self.rows_max(lane[0].request, [replica])
        size = max(piece.request.size for piece in lane)
        rows = lane[0].rows
        for piece in lane[1:]:
            if rows + piece.rows > limit:
                break
            rows += piece.rows
        return lane[0].deadline_us - ceil(replica.predict_us(rows, size))

    def instants(self, now_us: int) -> Iterable[int]:
        """When a wake is due at the latest."""
        for case in self.open.values():
            yield case.request.expires_us
        for site in self.sites.values():
            yield site.stall_us(self.limits.stall_us)
            if not site.suspect:
                yield site.suspect_us()
            if site.opens_us() == 0:
                yield from (self.due_us(site, lane) for lane in self.lanes_of(site, self.is_static))
                yield from (self.delayed_us(lane) for lane in self.lanes_of(site, self.serves_late))
                yield from (lane[0].deadline_us for lane in self.lanes_of(site, self.sheds))
            elif site.opens_us() > now_us and any(
                site.serves(case.request.model) for case in self.open.values() if case.waits
            ):
                yield site.opens_us()
            if site.suspect:  # what is late and still there is kept to try
                lanes = self.lanes_of(site, self.sheds)
                yield from (p.deadline_us for lane in lanes for p in lane if p.deadline_us > now_us)
        for lane in self.lanes_away():
            if self.choices(lane[0].request) == 1:  # else which of them is nearest changes with time
                yield self.asks_us(lane[0].request, now_us)
                yield self.hopeless_us(lane[0], now_us)

    # what is not loaded

    def lanes_away(self) -> list[list[Piece]]:
        """The lanes that wait for what is on no site, and can be loaded."""
        lanes = self.waiting().values()
        return [
            lane for lane in lanes if not self.allowed(lane[0].request) and self.can_come(lane[0].request)
        ]

    def can_come(self, request: Request) -> bool:
        return self.choices(request) > 0

    def choices(self, request: Request) -> int:
        """Variants that could be loaded for it."""
        return sum((request.model, variant) in self.away for variant in request.variants)

    def nearest(self, request: Request, now_us: int) -> Away | None:
        """What would be loaded first of what may answer the request; of equals the preferred one."""
        found = [self.away.get((request.model, variant)) for variant in request.variants]
        return min((each for each in found if each), key=lambda each: each.loaded_us(now_us), default=None)

    def answer_us(self, request: Request, now_us: int) -> int:
        """When a row of it could be answered at the earliest by what is not loaded yet."""
        away = self.nearest(request, now_us)
        if away is None:
            return NEVER_US
        (variant,) = [v for v in request.variants if self.away.get((request.model, v)) is away]
        replica = self.latest.get((request.model, variant))
        row_us = ceil(replica.typical_us(1, request.bucket)) if replica is not None else 0
        return away.loaded_us(now_us) + row_us

    def asks_us(self, request: Request, now_us: int) -> int:
        """When the next Miss is to be said while the request waits."""
        away = self.nearest(request, now_us)
        return NEVER_US if away is None or self.allowed(request) else away.asks_us()

    def hopeless_us(self, piece: Piece, now_us: int) -> int:
        """The first instant from which what it waits for comes too late for it."""
        instants = range(now_us, max(piece.deadline_us, now_us) + 2)  # it cannot be there in no time
        late = bisect_left(
            instants, True, key=lambda at: self.answer_us(piece.request, at) > piece.deadline_us
        )
        return instants[late]

    # who ends

    def allowed(self, request: Request) -> list[Replica]:
        """The live replicas that may answer a request."""
        return [
            site.replicas[request.model, variant]
            for site in self.sites.values()
            for variant in request.variants
            if (request.model, variant) in site.replicas
        ]

    def in_time(self, request: Request, now_us: int) -> bool:
        """Whether a row of it, alone and at once, would be back before the last of its pieces is due."""
        if not self.allowed(request):
            return self.answer_us(request, now_us) + request.declared_us <= request.latest_us
        least_us = [replica.typical_us(1, request.size) for replica in self.allowed(request)]
        return bool(least_us) and now_us + min(least_us) + request.declared_us <= request.latest_us

    def doomed(self, case: Case) -> bool:
        """It took too many workers with it, or rows of it wait for a variant that is nowhere."""
        waits = case.waits or LOST in case.rows
        nowhere = not self.allowed(case.request) and not self.can_come(case.request)
        return case.lost > RETRIES or (waits and nowhere)

    def too_dear(self, request: Request) -> bool:
        """Whether its rows would take a slice longer than a batch may be late, on the quickest of all."""
        costs = []
        for each in self.allowed(request):
            batch = each.piece_max(request.size)
            batches = [min(batch, request.rows - first) for first in range(0, request.rows, batch)]
            costs.append(sum(each.typical_us(rows, request.size) + request.declared_us for rows in batches))
        return request.rows > 1 and min(costs) > self.limits.stall_us - 1  # sums of floats

    def vain(self, request: Request) -> bool:
        """Whether it declares a longer time than its client gave it: to come back is no use."""
        return request.declared_us > max(request.deadline_us - request.arrived_us, 0)

    def refusal(self, request: Request, now_us: int) -> Outcome | None:
        if self.draining:
            return DRAINING
        if request.model in self.retired:
            return NO_REPLICA
        if not self.allowed(request) and not self.can_come(request):
            return NO_REPLICA
        due_us = request.deadline_us - request.declared_us
        if request.declared_us and now_us > due_us:
            return DEADLINE_UNREACHABLE
        if not self.allowed(request) and self.answer_us(request, now_us) > due_us:
            return NOT_LOADED
        waiting = [case for case in self.open.values() if case.waits and case.request.model == request.model]
        rows = sum(case.rows.count(WAITING) for case in waiting) + request.rows
        full = len(waiting) >= self.limits.queue_requests or (waiting and rows > self.limits.queue_rows)
        return QUEUE_FULL if full else None

    def cuts(self, request: Request) -> list[tuple[int, int]]:
        """First rows and deadlines of its pieces: as large as some replica would run within the SLO.

        Where the client did not say when all of it is due, each is due as much later as the first may take.
        """
        return self.cut(request, request.deadline_us - request.declared_us, self.later_us(request))

    def later_us(self, request: Request) -> int:
        """How much later each piece of a request that comes is due than the one before."""
        return request.deadline_us - request.arrived_us if request.expires_us == NEVER_US else 0

    def cut(self, request: Request, due_us: int, later_us: int) -> list[tuple[int, int]]:
        """First rows and deadlines of its pieces, the first one due at `due_us`."""
        batch_max = self.models[request.model].spec.batch_max
        largest = max((each.piece_max(request.size) for each in self.allowed(request)), default=batch_max)
        firsts = range(0, request.rows, largest)
        return [(first_row, due_us + number * later_us) for number, first_row in enumerate(firsts)]

    def tried(self, site: Site, lane: Sequence[Piece], now_us: int) -> bool:
        """Whether what waits beside a suspect site could still be in time, or is one request kept to try."""
        request = lane[0].request
        least_us = [
            each.typical_us(lane[0].rows, request.size)
            for other in self.sites.values()
            if other is site or not other.suspect
            for each in other.rungs(request)
        ]
        own = self.policy(request.model) == "clockwork"  # its estimate may be lower
        if lane[0].deadline_us >= now_us + (0 if own else min(least_us)):
            return True
        in_doubt = now_us - self.heard_us.get(request.model, 0) >= TRY_US
        return in_doubt and len({piece.request for piece in lane}) == 1
