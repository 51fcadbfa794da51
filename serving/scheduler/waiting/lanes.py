"""A model's waiting pieces, in lanes: the pieces of a lane may share a batch."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import takewhile
from math import exp, inf

from serving.policy.estimates.arrival_slack import ArrivalSlack
from serving.policy.limits.admission import QueueLength
from serving.policy.variants.climbing import Allowance
from serving.scheduler.waiting.requests import Piece, Request, Wants, wants_of
from serving.values.vocabulary import NEVER_US

USED_US = 1_000_000  # over which models that overload slices have their shares of them
_LEFT = -1


class Lane:
    """Pieces ordered by deadline, ties by arrival. A `serving.policy.batching.interface.LaneView`."""

    __slots__ = (
        "_arrivals",
        "_keys",
        "_size",
        "bucket",
        "closed",
        "declared_us",
        "home",
        "key",
        "kin",
        "pieces",
        "protected",
        "rows",
        "variants",
        "wants",
    )  # fmt: skip

    def __init__(
        self, key: Hashable, wants: Wants, bucket: int, closed: bool = False, kin: Hashable = None
    ) -> None:
        self.key = key
        self.kin = None if closed else kin
        self.closed = closed
        self.wants = wants
        self.variants = wants[0]
        self.bucket = bucket
        self.declared_us = 0
        self.home = ""  # the only slice that may run it; "": any
        self._size = 0  # of the largest piece; _LEFT: that one has gone, and no caller has asked since
        self.rows = 0
        self.pieces: list[Piece] = []
        self.protected: list[Piece] = []
        self._keys: list[
            tuple[int, int]
        ] = []  # (deadline, sequence) of each piece: bisect needs no key calls
        self._arrivals: deque[Piece] = deque()  # in order of arrival; those that left are skipped lazily

    @property
    def size(self) -> int:
        """The size of the largest row that waits. O(1), but once after the largest has left."""
        if self._size == _LEFT:
            self._size = max([piece.size for piece in self.pieces], default=0)
        return self._size

    @property
    def oldest_us(self) -> int:
        """Arrival of the piece that waits longest."""
        while self._arrivals[0].lane is not self:
            self._arrivals.popleft()
        return self._arrivals[0].arrived_us

    def insert(self, piece: Piece) -> None:
        """Insert a piece in O(log n) comparisons; usually at the end, as deadlines come in the order of
        arrivals."""
        self._place(piece)
        piece.lane = self
        if piece.returned:  # to its place among those that arrived earlier
            earlier = takewhile(lambda other: other.arrived_us <= piece.arrived_us, self._arrivals)
            self._arrivals.insert(sum(1 for _ in earlier), piece)
        else:
            self._arrivals.append(piece)
        self.rows += piece.rows
        if piece.size > self._size != _LEFT:
            self._size = piece.size

    def take(self, pieces: Sequence[Piece]) -> None:
        """Remove pieces; mostly they are the first ones."""
        count = len(pieces)
        if pieces == self.pieces[:count]:
            del self.pieces[:count]
            del self._keys[:count]
        else:
            for piece in pieces:
                self._cut(piece)
        for piece in pieces:
            self._leave(piece)
        self._forget()

    def remove(self, piece: Piece) -> None:
        """Take out one piece, wherever it stands."""
        self._cut(piece)
        self._leave(piece)
        self._forget()

    def replace(self, pieces: Iterable[Piece]) -> None:
        """Let these wait in place of all that do: the same rows, cut otherwise."""
        for piece in self.pieces:
            piece.lane = None
        self.pieces = sorted(pieces, key=_order)
        self._keys = [_order(piece) for piece in self.pieces]
        self.protected = [piece for piece in self.pieces if piece.protected]
        self._arrivals = deque(sorted(self.pieces, key=lambda piece: (piece.arrived_us, piece.sequence)))
        for piece in self.pieces:
            piece.lane = self

    def move(self, piece: Piece, deadline_us: int) -> None:
        """Give a piece another deadline, and the place that goes with it."""
        self._cut(piece)
        if piece.protected:
            self.protected.remove(piece)
        piece.deadline_us = deadline_us
        self._place(piece)

    def _place(self, piece: Piece) -> None:
        key = _order(piece)
        keys = self._keys
        if not keys or key > keys[-1]:
            keys.append(key)
            self.pieces.append(piece)
        else:
            place = bisect_left(keys, key)
            keys.insert(place, key)
            self.pieces.insert(place, piece)
        if piece.protected:
            insort(self.protected, piece, key=_order)

    def _cut(self, piece: Piece) -> None:
        place = bisect_left(self._keys, _order(piece))
        del self._keys[place]
        del self.pieces[place]

    def _leave(self, piece: Piece) -> None:
        piece.lane = None
        self.rows -= piece.rows
        if piece.size == self._size > 0:
            self._size = _LEFT
        if piece.protected:
            self.protected.remove(piece)

    def _forget(self) -> None:
        """Bound the arrivals that have left: at most as many as the waiting pieces, plus a few."""
        if len(self._arrivals) > 2 * len(self.pieces) + 16:
            self._arrivals = deque(piece for piece in self._arrivals if piece.lane is self)


def _order(piece: Piece) -> tuple[int, int]:
    return piece.deadline_us, piece.sequence


class Queue:
    """One model's lanes and their total. `version` changes whenever a piece comes or goes. `fair_share`: in
    overload, the slices' worth of time that the model may have; 0 where none is shared out. `allowances`:
    what a row may take of it, by what its lane wants, where there is a choice. `comers`: kept where a choice
    of variants has to think of them. `floor`: the share of what it is
    entitled to from which the model need not go first. `homed`: a lane may have a home."""

    __slots__ = (
        "_first_due_us", "_lanes", "_looked", "_sequence", "_total", "_used_at_us", "_used_us", "allowances",
        "backlog", "comers", "fair_share", "floor", "homed", "version",
    )  # fmt: skip

    def __init__(self, total: QueueLength | None = None) -> None:
        """Create a queue. `total`: counts the rows of all queues."""
        self._total = total or QueueLength()
        self._lanes: dict[Hashable, Lane] = {}
        self._sequence = 0
        self.backlog = QueueLength()
        self.version = 0
        self.homed = False
        self.fair_share = 0.0
        self.floor = inf
        self.allowances: dict[Wants, Allowance] = {}
        self.comers: ArrivalSlack | None = None
        self._first_due_us = NEVER_US
        self._looked = 0  # the version that it is of
        self._used_us = 0.0  # of the slices' time, decayed over USED_US
        self._used_at_us = 0

    @property
    def lanes(self) -> Iterable[Lane]:
        """Lanes with waiting pieces, in the order of their first arrival."""
        return self._lanes.values()

    def use(self, compute_us: int, now_us: int) -> None:
        """Count a batch of the model that has had a slice."""
        self._used_us = self.used_us(now_us) + compute_us
        self._used_at_us = now_us

    def used_us(self, now_us: int) -> float:
        """Return how much of the slices' time the model has had lately."""
        return self._used_us * exp((self._used_at_us - now_us) / USED_US)

    def kin(self, lane: Lane) -> list[Lane]:
        """Return the other lanes with pieces that may share a batch with this lane's pieces."""
        if lane.kin is None or len(self._lanes) < 2:
            return []
        return [
            other
            for other in self._lanes.values()
            if other is not lane and other.kin == lane.kin and other.home == lane.home
        ]

    @property
    def first_due_us(self) -> int:
        """The least deadline of what waits; NEVER_US where nothing does."""
        if self._looked != self.version:
            self._looked = self.version
            self._first_due_us = min(
                [lane.pieces[0].deadline_us for lane in self._lanes.values()], default=NEVER_US
            )
        return self._first_due_us

    def insert(self, piece: Piece) -> None:
        """Let a piece wait in the lane of its request, or of the part of a failed batch that it is in."""
        request = piece.request
        key = (request.lane_key, piece.apart) if piece.apart else request.lane_key
        lane = self._lanes.get(key)
        if lane is None:
            apart = piece.apart > 0
            lane = self._lanes[key] = Lane(key, wants_of(request), request.bucket, apart, request.kin)
            lane.declared_us = request.declared_us
            lane.home = request.home
            self.homed = self.homed or lane.home != ""
        if not piece.sequence:  # it may be cut into as many as it has rows, which keep its place
            piece.sequence = self._sequence + 1
            self._sequence += piece.rows
        lane.insert(piece)
        self.backlog.rows += piece.rows
        self._total.rows += piece.rows
        self.version += 1

    def take(self, lane: Lane, pieces: Sequence[Piece]) -> None:
        """Remove pieces of a lane; an empty lane is forgotten, as clients choose the keys."""
        before = lane.rows
        lane.take(pieces)
        self.backlog.rows -= before - lane.rows
        self._total.rows -= before - lane.rows
        self.version += 1
        if not lane.pieces:
            del self._lanes[lane.key]

    def remove(self, piece: Piece) -> None:
        """Take out one waiting piece."""
        lane = piece.lane
        if lane is None:
            raise ValueError("only a waiting piece can be removed")
        lane.remove(piece)
        self.backlog.rows -= piece.rows
        self._total.rows -= piece.rows
        self.version += 1
        if not lane.pieces:
            del self._lanes[lane.key]

    def replace(self, lane: Lane, pieces: Iterable[Piece]) -> None:
        """Let these wait in a lane in place of all that do: the same rows, cut otherwise."""
        lane.replace(pieces)
        self.version += 1

    def tighten(self, request: Request, deadline_us: int) -> None:
        """Let its pieces be due by `deadline_us`, those that run too, should they come back."""
        if request.own_us is None:
            request.own_us = [piece.deadline_us for piece in request.pieces]
        for piece in request.pieces:
            self._move(piece, min(piece.deadline_us, deadline_us - request.declared_us))

    def relax(self, request: Request) -> None:
        """Let its pieces be due again as they were before it was tightened."""
        for piece, deadline_us in zip(request.pieces, request.own_us or (), strict=True):
            self._move(piece, deadline_us)
        request.own_us = None

    def pass_on(self, request: Request, successor: Request) -> None:
        """Make a request another client's, due when `successor` is.

        Its pieces that are due later are as much later as before, unless that client has set one deadline.
        """
        pieces = request.pieces  # none where it has ended, and is about to be answered
        before_us = request.own_us or [piece.deadline_us for piece in pieces]
        further_us = successor.deadline_us - request.deadline_us
        request.own_us = None
        request.arrived_us, request.deadline_us, request.tenant = (
            successor.arrived_us, successor.deadline_us, successor.tenant,
        )  # fmt: skip
        request.latest_us = successor.deadline_us
        for piece, due_us in zip(pieces, before_us[: len(pieces)], strict=True):
            if successor.expires_us == NEVER_US:
                request.latest_us = max(successor.deadline_us, due_us + request.declared_us + further_us)
            self._move(piece, request.latest_us - request.declared_us)

    def _move(self, piece: Piece, deadline_us: int) -> None:
        if piece.lane is None:
            piece.deadline_us = deadline_us
        elif deadline_us != piece.deadline_us:
            piece.lane.move(piece, deadline_us)
            self.version += 1
