"""The seam's views as plain frozen values: a policy that changed what it is shown would raise."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from hypothesis import strategies as st

from serving.policy.batching.interface import BatchingPolicy, LaneView, QueueView
from serving.values.vocabulary import NEVER_US

VARIANTS = ("a", "b")
NOW_US = 20


@dataclass(frozen=True)
class PieceSeen:
    rows: int
    deadline_us: int = 0
    arrived_us: int = 0
    protected: bool = False
    size: int = 0


@dataclass(frozen=True)
class ArrivalSeen:
    rows: int = 1
    bucket: int = 0
    lane_key: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaneSeen:
    pieces: tuple[PieceSeen, ...]
    variants: tuple[str, ...] = ("a",)
    bucket: int = 0
    closed: bool = False
    protected: tuple[PieceSeen, ...] = ()
    declared_us: int = 0

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @cached_property
    def size(self) -> int:
        return max(piece.size for piece in self.pieces)

    @property
    def oldest_us(self) -> int:
        return min(piece.arrived_us for piece in self.pieces)


@dataclass(frozen=True)
class ReplicaSeen:
    """Batches of up to `limits[size]` rows; b rows take `row_us` * b + `base_us`, and `size_us` more each for
    every unit of their size."""

    limits: Mapping[int, int]
    row_us: float = 1.0
    base_us: float = 0.0
    size_us: float = 0.0

    def rows_max(self, size: int) -> int:
        return self.limits[size]

    def rows_worth(self, size: int) -> int:
        return self.rows_max(size)

    def predict_us(self, rows: int, size: int) -> float:
        return (self.row_us + self.size_us * size) * rows + self.base_us

    def typical_us(self, rows: int, size: int) -> float:
        return self.predict_us(rows, size)

    @property
    def lost_us(self) -> float:
        return 0.0

    def is_proven(self, rows: int, size: int) -> bool:
        return True

    def is_tried(self, rows: int, size: int) -> bool:
        return True

    def planning(self, share: float) -> "ReplicaSeen":
        return self

    @property
    def size_max(self) -> int:
        return max(self.limits)

    def untried(self, now_us: int) -> bool:
        return False

    def rows_in(self, budget_us: float, size: int) -> int:
        measured = range(1, self.limits[size] + 1)
        return max((rows for rows in measured if self.predict_us(rows, size) <= budget_us), default=0)


@dataclass(frozen=True)
class QueueSeen:
    lanes: tuple[LaneView, ...]
    replicas: Mapping[str, ReplicaSeen] = field(default_factory=lambda: {"a": ReplicaSeen({0: 8})})

    slices: int = 1
    slice: str = ""
    lateness_us: float | None = None
    rows_most: int = 1 << 30
    elsewhere: int = NEVER_US
    idle: int = 1
    neighbours: tuple[tuple[BatchingPolicy, QueueView], ...] = ()

    @property
    def default_replica(self) -> ReplicaSeen | None:
        for lane in self.lanes:
            if (here := self.quickest(lane)) is not None:
                return here[1]
        return next(iter(self.replicas.values()), None)

    @property
    def quickest_replica(self) -> ReplicaSeen | None:
        return self.default_replica

    def elsewhere_us(self, now_us: int, slices: int = 1) -> int:
        return self.elsewhere

    def answering(self, lane: LaneView, now_us: int) -> tuple[str, ReplicaSeen] | None:
        return self.quickest(lane)

    def quickest(self, lane: LaneView, rows: int = 1) -> tuple[str, ReplicaSeen] | None:
        """The first that is there, as if all took as long."""
        here = (variant for variant in lane.variants if variant in self.replicas)
        return next(((variant, self.replicas[variant]) for variant in here), None)


pieces = st.builds(
    PieceSeen,
    rows=st.integers(1, 5),
    deadline_us=st.integers(NOW_US - 5, NOW_US + 20),
    arrived_us=st.integers(NOW_US - 8, NOW_US),
    size=st.sampled_from([0, 1]),
)


def _within(piece: PieceSeen, bucket: int) -> PieceSeen:
    return replace(piece, size=min(piece.size, bucket))


waiting = st.lists(pieces, min_size=1, max_size=7).map(
    lambda several: tuple(sorted(several, key=lambda piece: (piece.deadline_us, piece.arrived_us)))
)
lanes = st.builds(
    LaneSeen,
    pieces=waiting,
    variants=st.sampled_from([("a",), ("b",), ("a", "b"), ("b", "a")]),
    bucket=st.sampled_from([0, 1]),
    closed=st.sampled_from([False, False, True]),
).map(lambda lane: replace(lane, pieces=tuple(_within(piece, lane.bucket) for piece in lane.pieces)))
replicas = st.builds(
    ReplicaSeen,
    limits=st.tuples(st.integers(1, 8), st.integers(1, 8)).map(lambda most: {0: max(most), 1: min(most)}),
    row_us=st.sampled_from([0.3, 1.0, 2.5]),
    size_us=st.sampled_from([0.0, 1.2]),
)
queues = st.builds(
    QueueSeen,
    lanes=st.lists(lanes, max_size=4).map(tuple),
    replicas=st.dictionaries(st.sampled_from(VARIANTS), replicas, max_size=2),
)
