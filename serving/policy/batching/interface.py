"""The seam of every batching policy: what it is shown, what it answers.

A policy belongs to one model's queue. It may keep state of its own, changed only in `on_arrival` and
`on_done`; `choose` decides and changes nothing, so it may be asked as often as one likes.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, Protocol

from serving.values.vocabulary import NEVER_US


class PieceView(Protocol):
    """A request's rows that travel in one batch."""

    @property
    def rows(self) -> int: ...
    @property
    def deadline_us(self) -> int: ...
    @property
    def arrived_us(self) -> int: ...
    @property
    def size(self) -> int:
        """The size of its largest row, 0 without a size hint."""
        ...

    @property
    def protected(self) -> bool:
        """Whether it must not be given up only to carry more load: its tenant does not cause the overload."""
        ...


class ArrivalView(Protocol):
    """A request that joins a queue."""

    @property
    def rows(self) -> int: ...
    @property
    def bucket(self) -> int: ...
    @property
    def lane_key(self) -> Hashable: ...


class LaneView(Protocol):
    """Waiting pieces that may share a batch: same shapes, size bucket, parameters, allowed variants."""

    @property
    def rows(self) -> int:
        """All waiting rows."""
        ...

    @property
    def bucket(self) -> int:
        """The size bucket, 0 without a size hint: what may come belongs to it, too."""
        ...

    @property
    def size(self) -> int:
        """The size of the largest row that waits, at most the bucket."""
        ...

    @property
    def declared_us(self) -> int:
        """By so much each batch of it takes longer than its rows do, as its requests say. Its pieces are due
        so much earlier: the time counts only for what needs the slice after it."""
        ...

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that may answer, the preferred one first."""
        ...

    @property
    def oldest_us(self) -> int:
        """When the piece that waits longest arrived."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nothing can join it: waiting for more rows is in vain."""
        ...

    @property
    def pieces(self) -> Sequence[PieceView]:
        """Ordered by deadline, ties by arrival; never empty."""
        ...

    @property
    def protected(self) -> Sequence[PieceView]:
        """The protected ones of them, in the same order."""
        ...


class ReplicaView(Protocol):
    """A variant on the slice that asks for work. `size`: the size of the largest row of a batch, or a bucket
    for what may come of it."""

    def rows_max(self, size: int) -> int:
        """Return the largest batch that the model, the SLO and the profile allow at this size."""
        ...

    def rows_worth(self, size: int) -> int:
        """Return the largest of those batches in which a row takes hardly longer than in any smaller
        batch."""
        ...

    def predict_us(self, rows: int, size: int) -> float:
        """Return what to plan with for a batch, so that its promises are kept."""
        ...

    def typical_us(self, rows: int, size: int) -> float:
        """Return how long a batch usually takes: how much load a slice can carry follows from this."""
        ...

    @property
    def lost_us(self) -> float:
        """What a batch takes beyond that in the mean: stops of the machine are in it."""
        ...

    def is_proven(self, rows: int, size: int) -> bool:
        """Return whether batches of about `rows` rows, or of more, have lately shown what they take."""
        ...

    def is_tried(self, rows: int, size: int) -> bool:
        """Return whether that is so of the last half a minute, or cannot be missed yet."""
        ...

    def planning(self, share: float) -> "ReplicaView":
        """Return the same, where `predict_us` and `rows_in` hold for `share` (0.5..1) of the batches; never
        more cautious than this."""
        ...

    @property
    def size_max(self) -> int:
        """The size of the largest rows, 0 without a size hint."""
        ...

    def untried(self, now_us: int) -> bool:
        """Return whether no batch has borne the prediction out for long."""
        ...

    def rows_in(self, budget_us: float, size: int) -> int:
        """Return the largest measured batch that takes at most `budget_us`; 0 for none. It may pass
        `rows_max`."""
        ...


class QueueView(Protocol):
    """One model's queue as seen from one idle slice."""

    @property
    def slice(self) -> str:
        """The slice's name."""
        ...

    @property
    def lanes(self) -> Iterable[LaneView]: ...

    def answering(self, lane: LaneView, now_us: int) -> tuple[str, ReplicaView] | None:
        """Return the variant that would run a batch of the lane now (`policy/selection.py`), with its replica
        on this slice; None where none that may is resident."""
        ...

    @property
    def rows_most(self) -> int:
        """The most rows in a batch of the variant that `answering` has just returned. That there is time for
        it follows from this number."""
        ...

    def quickest(self, lane: LaneView, rows: int = 1) -> tuple[str, ReplicaView] | None:
        """Return the variant that may answer the lane and computes `rows` rows in the least time here; None
        if none that may is resident."""
        ...

    @property
    def default_replica(self) -> ReplicaView | None:
        """The replica on which the model's batches usually run here; None if it is not resident."""
        ...

    @property
    def quickest_replica(self) -> ReplicaView | None:
        """The replica that computes a row in the least time, among those that usually may answer; None if
        none is resident."""
        ...

    @property
    def slices(self) -> int:
        """Slices that hold this model and can be counted on, each as often as batches run on it at once; at
        least 1."""
        ...

    @property
    def idle(self) -> int:
        """Slices of the model that could start a batch at once; at least 1, as one of them asks."""
        ...

    def elsewhere_us(self, now_us: int, slices: int = 1) -> int:
        """Return when `slices` other slices of the model are free, as far as known; NEVER_US if it has
        fewer."""
        ...

    @property
    def lateness_us(self) -> float | None:
        """How late wake-ups usually are; None while that is not known."""
        ...

    @property
    def neighbours(self) -> Sequence[tuple["BatchingPolicy", "QueueView"]]:
        """The policies and queues of all models on this slice, this one among them."""
        ...


class BatchReport:
    """A finished batch, reported to the policy of its model. `full`: it had no room for some requests and
    left them behind. `size`: the size of its largest row. `typical_us`: how long it was expected to take
    usually."""

    __slots__ = ("bucket", "compute_us", "full", "rows", "size", "slice", "typical_us", "variant")

    def __init__(
        self,
        variant: str,
        rows: int,
        bucket: int,
        compute_us: int,
        full: bool = False,
        slice: str = "",  # noqa: A002
        typical_us: float = 0.0,
        size: int = 0,
    ) -> None:
        self.variant: Final = variant
        self.rows: Final = rows
        self.bucket: Final = bucket
        self.compute_us: Final = compute_us
        self.full: Final = full
        self.slice: Final = slice
        self.typical_us: Final = typical_us
        self.size: Final = size


class Choice:
    """Run `pieces` of `lane` now as `variant`; the batch must start by `latest_start_us`.

    The pieces in `drop`, of the same lane, are given up for it. `lane` None: wait, and ask again at `wake_us`
    or when the queue changes. `patient`: the batch may also wait for more rows, until `wake_us` at most. How
    long is decided between all models of the slice, from `latency_us` and `grown_us`, the latency with one
    row more.

    `protected`: some pieces are protected (`PieceView.protected`). `rule`, `rank`: if all that want the slice
    follow one rule (a paper's way to pick a model), the least rank goes first. Else the least latest start
    goes first. `room`: rows of other lanes that the batch may take in beside these.

    `stays_us`: until then the choice stays the same while no request comes or goes and no batch of this
    replica returns. So it need not be asked for again.
    """

    __slots__ = (
        "drop",
        "grown_us",
        "lane",
        "latency_us",
        "latest_start_us",
        "patient",
        "pieces",
        "protected",
        "rank",
        "room",
        "rows",
        "rule",
        "stays_us",
        "variant",
        "wake_us",
    )  # fmt: skip

    def __init__(
        self,
        lane: LaneView | None = None,
        pieces: Sequence[PieceView] = (),
        rows: int = 0,
        variant: str = "",
        latest_start_us: int = NEVER_US,
        wake_us: int = NEVER_US,
        drop: Sequence[PieceView] = (),
        patient: bool = False,
        latency_us: float = 0.0,
        grown_us: float = 0.0,
        protected: bool = False,
        stays_us: int = 0,
        rule: str = "",
        rank: float = 0.0,
        room: int = 0,
    ) -> None:
        self.lane: Final = lane
        self.pieces: Final = pieces
        self.rows: Final = rows
        self.variant: Final = variant
        self.latest_start_us: Final = latest_start_us
        self.wake_us: Final = wake_us
        self.drop: Final = drop
        self.patient: Final = patient
        self.latency_us: Final = latency_us
        self.grown_us: Final = grown_us
        self.protected: Final = protected
        self.stays_us: Final = stays_us
        self.rule: Final = rule
        self.rank: Final = rank
        self.room: Final = room

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return id(self.lane)

    def until(self, wake_us: int, stays_us: int) -> "Choice":
        """Return the same with these instants."""
        return Choice(
            self.lane, self.pieces, self.rows, self.variant, self.latest_start_us, wake_us, self.drop,
            self.patient, self.latency_us, self.grown_us, self.protected, stays_us, self.rule, self.rank,
            self.room,
        )  # fmt: skip

    def lasting(self, further_us: int) -> "Choice":
        """Return the same, where the slice is taken for so much longer."""
        return Choice(
            self.lane, self.pieces, self.rows, self.variant, self.latest_start_us, self.wake_us, self.drop,
            self.patient, self.latency_us + further_us, self.grown_us + further_us, self.protected,
            self.stays_us, self.rule, self.rank, self.room,
        )  # fmt: skip

    def ranked(self, rule: str, rank: float) -> "Choice":
        """Return the same with this rule and rank."""
        return Choice(
            self.lane, self.pieces, self.rows, self.variant, self.latest_start_us, self.wake_us, self.drop,
            self.patient, self.latency_us, self.grown_us, self.protected, self.stays_us, rule, rank,
            self.room,
        )  # fmt: skip

    def _facts(self) -> tuple[object, ...]:
        return (
            self.lane, self.pieces, self.rows, self.variant, self.latest_start_us, self.wake_us, self.drop,
            self.patient, self.latency_us, self.grown_us, self.protected, self.stays_us, self.rule, self.rank,
            self.room,
        )  # fmt: skip


WAIT: Final = Choice()


class Outlook:
    """For admission: `row_us` is a slice's time for a row in the batches that are aimed at. `doubtful`: no
    batch has come back for so long that predictions may be stale, and one should be tried. `filling`: rows a
    microsecond that must be admitted so that each batch finds enough rows with time left to fill it."""

    __slots__ = ("doubtful", "filling", "row_us")

    def __init__(self, row_us: float, doubtful: bool = False, filling: float = 0.0) -> None:
        self.row_us: Final = row_us
        self.doubtful: Final = doubtful
        self.filling: Final = filling


class BatchingPolicy:
    """Decides for one model when a batch is worth running and which pieces go into it.

    What a policy does not say otherwise: it learns nothing, gives nothing up and promises nothing.
    """

    __slots__ = ()

    def on_arrival(self, request: ArrivalView, now_us: int) -> None:
        """Note that a request came, whether or not it may join the queue. Admission follows from the batches,
        so a size that followed from admitted requests would hold small batches small."""

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Note that a batch of this model finished."""

    def hopeless(self, view: QueueView, now_us: int) -> Sequence[tuple[LaneView, int]]:  # noqa: ARG002
        """Return each lane with the number of its leading pieces to give up at once."""
        return ()

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return what an idle slice should do for this model now. Every policy has its own."""
        raise NotImplementedError

    def outlook(
        self,
        view: QueueView,  # noqa: ARG002
        replica: ReplicaView,  # noqa: ARG002
        rate: float,  # noqa: ARG002
        now_us: int,  # noqa: ARG002
    ) -> Outlook | None:
        """Return what to expect of a replica there while `rate` rows a microsecond are offered. None: the
        policy promises nothing, and no request is turned away for what it could expect."""
        return None


def take_prefix(pieces: Sequence[PieceView], rows_max: int, first: int = 0) -> tuple[int, int]:
    """Return how many pieces from `first` on fit into `rows_max` rows, and their rows; at least one piece.

    Never skips a piece, so a large one at the head cannot be overtaken for ever.
    """
    count, rows = 1, pieces[first].rows
    for piece in pieces[first + 1 : first + rows_max] if len(pieces) > first + 1 else ():
        if rows + piece.rows > rows_max:
            break
        count += 1
        rows += piece.rows
    return count, rows
