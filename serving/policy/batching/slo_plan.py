"""How all models of a slice plan together under the `slo` policy.

What they have to carry, with which share of their targets they carry it, and how long a batch may keep a
slice from a tighter neighbour."""

from collections.abc import Iterable, Sequence
from math import inf, sqrt
from typing import Final

from serving.policy.batching.interface import QueueView, ReplicaView
from serving.policy.batching.rules.targets import mean_target, row_us, worth_target
from serving.policy.estimates.latency import QUANTILE
from serving.policy.estimates.rates import QUIET

SHARES = (QUANTILE, 0.9, 0.8, 0.7)
"""Of the batches, that a plan may hold for. A smaller one pays where batches vary much and an SLO has room
for few rows: with stops of 1 to 50 ms for 30 % of the time .7 carries twice as much (docs/scheduling.md)."""
RESERVE = 1.5
"""Of what comes: so much is to be carried before a plan holds nearly always. A stop leaves a queue behind, to
be worked off. In simulation (`loadtests.scheduling.disturbed_policies`, half load, stops of 30 %) 1 answers 2
% less."""
RHO = 1.0  # share of the slices' time that the plan may use; .95 cost 2-4 % of capacity in simulation
CROWDED = 1.1
"""Of the slices' time, that short batches may take as planned: rates are of surges. With 1 mix 15 keeps 99 %
in time at 0.93 of the best's rate, with 1.1 at 0.96; with 1.25 mix 11 falls from 1 to 0.81."""
SCALE_STEPS = 7  # halvings in the search for the common scale: 1 % of it


class PlannedLoad:
    """`rate` rows a microsecond of one size bucket, due after `slo_us`. `target`: the batch aimed at for them
    on `replica`, the first of `replicas`. `size`: their usual size. `quickest`: the second of `replicas`, of
    the variant that answers under pressure. `least`: slices' time that `quickest` needs for these rows in the
    mean, without what comes only for a moment."""

    __slots__ = (
        "_needs", "_shares", "bucket", "least", "quickest", "rate", "replica", "size", "slo_us", "target",
    )  # fmt: skip

    def __init__(
        self,
        rate: float,
        replicas: tuple[ReplicaView, ReplicaView],
        bucket: int,
        size: int,
        slo_us: int,
        least: float,
    ) -> None:
        replica, self.quickest = replicas
        self.rate: Final = rate
        self.slo_us: Final = slo_us
        self.target: Final = worth_target(replica, bucket, slo_us, rate, size)
        self.replica: Final = replica
        self.bucket: Final = bucket
        self.size: Final = size
        self.least: Final = least
        self._shares: dict[float, PlannedLoad] = {}
        self._needs: dict[int, float] = {}  # a memo of `need` by rows, for one plan

    def need(self, scale: float) -> float:
        """Return how many slices' time the load needs, with batches of `scale` times the target."""
        rows = max(1, int(scale * self.target))
        known = self._needs.get(rows)
        if known is None:
            known = self.rate * (self.replica.typical_us(rows, self.size) + self.replica.lost_us) / rows
            self._needs[rows] = known
        return known

    def renew(self) -> None:
        """Forget what batches took at the last plan."""
        self._needs.clear()

    def planning(self, share: float) -> "PlannedLoad":
        """Return the same, with the batch aimed at where the plan is to hold for that share of the batches.

        It is kept as long as this load is, as the batch aimed at for all of them is.
        """
        known = self._shares.get(share)
        if known is None:
            replicas = self.replica.planning(share), self.quickest.planning(share)
            known = PlannedLoad(self.rate, replicas, self.bucket, self.size, self.slo_us, self.least)
            self._shares[share] = known
        else:
            known.renew()
        return known


class SlicePlan:
    """How all models of a slice plan, as of `since_us`. `scale`: the least share of their targets with which
    they carry their load, 1 where none does. `overload`: there is more than that for longer than a moment.
    `share`: of the batches, for which the plan is to hold, so that most is answered in time. `least_us`:
    batches that are kept short for a neighbour may take so long; shorter ones would not carry the load."""

    __slots__ = ("least_us", "overload", "scale", "share", "since_us")

    def __init__(self, scale: float, overload: bool, share: float, since_us: int, least_us: float) -> None:
        self.least_us: Final = least_us
        self.scale: Final = scale
        self.overload: Final = overload
        self.share: Final = share
        self.since_us: Final = since_us


class SloTier:
    """Models of one SLO, `slo_us`, beside a looser one's: of their slack, the `budget_us` that a batch may
    take. `queue`: of one of them, that with the least slack. `little`: they need so little of the slices that
    they keep their slack in overload, too. `slices`: that they and all tighter ones need together."""

    __slots__ = ("budget_us", "little", "queue", "slices", "slo_us")

    def __init__(self, slo_us: int, little: bool, budget_us: float, queue: QueueView, slices: int) -> None:
        self.slices: Final = slices
        self.slo_us: Final = slo_us
        self.little: Final = little
        self.budget_us: Final = budget_us
        self.queue: Final = queue


def dare(loads: list[PlannedLoad], room: float) -> tuple[float, list[PlannedLoad]]:
    """Return the share of SHARES with which most is answered in time, the largest of equals, and its loads. A
    plan that holds for fewer batches allows larger ones."""
    for load in loads:
        load.renew()
    best, best_loads, most = SHARES[0], loads, _answered(SHARES[0], loads, room)
    for share in SHARES[1:]:
        if share <= most:  # not even if it carried everything
            break
        larger = [load.planning(share) for load in loads]
        answered = _answered(share, larger, room)
        if answered > most:
            best, best_loads, most = share, larger, answered
    return best, best_loads


def _answered(share: float, loads: Sequence[PlannedLoad], room: float) -> float:
    """Return about the share of RESERVE times the loads that `room` slices answer in time."""
    return share * min(1.0, room / max(RESERVE * _needs(loads, 1.0), QUIET))


def search_scale(loads: Sequence[PlannedLoad], room: float) -> float:
    """Return the least share of the targets with which `room` slices carry the loads; 1 where none does."""
    if _needs(loads, 1.0) > room:
        return 1.0
    if _needs(loads, 0.0) <= room:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(SCALE_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _needs(loads, middle) <= room else (middle, high)
    return high


def search_least(loads: Sequence[PlannedLoad], tiers: Sequence[SloTier], slices: int) -> float:
    """Return the least length of batches with which `slices` carry the loads, where each batch is kept as
    short as its tightest neighbour would like, but no shorter; 0 where that alone carries them. On several
    slices rows that are longer by themselves are not kept short, but wait for their turn."""
    caps = [
        min([tier.budget_us for tier in tiers if tier.slo_us < load.slo_us], default=inf) for load in loads
    ]
    low, high = max(min(caps, default=inf), 1.0), float(max([load.slo_us for load in loads], default=0))
    if low == inf:
        return 0.0
    means = [mean_target(load.quickest, load.bucket, load.slo_us, load.rate, load.size) for load in loads]

    def is_carried(least_us: float) -> bool:
        total = 0.0
        for load, cap_us, rows in zip(loads, caps, means, strict=True):
            fits = load.quickest.rows_in(max(cap_us, least_us), load.bucket) if cap_us < inf else 0
            if cap_us < inf and (fits or slices == 1):
                rows = max(1.0, min(rows, float(fits)))
            total += load.rate * (row_us(load.quickest, rows, load.size) + load.quickest.lost_us / rows)
        return total <= CROWDED * RHO * slices

    if is_carried(0.0):
        return 0.0
    for _ in range(SCALE_STEPS):
        middle = sqrt(low * high)
        low, high = (low, middle) if is_carried(middle) else (middle, high)
    return high


def _needs(loads: Iterable[PlannedLoad], scale: float) -> float:
    return sum((load.need(scale) for load in loads), 0.0)
