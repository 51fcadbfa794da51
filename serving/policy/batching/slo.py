"""The composite SLO policy: the batch that keeps the most promises, started as late as pays.

Ordering is by deadline and the variant is bound late. From the head of a lane, pieces are given up only as
far as the batch behind them could not otherwise carry the load (window drop: Nexus, SOSP 2019, and Symphony,
arXiv 2308.07470, "drop target"). A batch goes at once when waiting for more rows would save no device time
(b >= beta * lambda, Symphony) or when it already carries the load (`b_sus`); otherwise it waits until the
latest start that is left when all models of the slice are planned backwards (`policy/arbitration.py`).

A plan nearly always holds, unless that costs too much: where others stop the machine now and then, batches
that are in time with every stop are small, and carry less than they lose (`SlicePlan`).
"""

from collections.abc import Sequence
from math import ceil, inf
from typing import Final

from serving.policy.batching.interface import (
    WAIT,
    ArrivalView,
    BatchingPolicy,
    BatchReport,
    Choice,
    LaneView,
    Outlook,
    PieceView,
    QueueView,
    ReplicaView,
    take_prefix,
)
from serving.policy.batching.rules.hopeless import find_hopeless
from serving.policy.batching.rules.targets import (
    MEMOS,
    REVIEW_US,
    TRY_ROWS_MAX,
    filling_rate,
    mean_target,
    row_us,
    saving_us,
    tried_rows,
    worth_target,
)
from serving.policy.batching.rules.window import window
from serving.policy.batching.slo_plan import (
    RHO,
    PlannedLoad,
    SlicePlan,
    SloTier,
    dare,
    search_least,
    search_scale,
)
from serving.policy.estimates.latency import Doubt
from serving.policy.estimates.rates import QUIET, SizeRates
from serving.values.vocabulary import NEVER_US

MIXED_SHARE = 0.85  # of a neighbour's slack that one batch may take: 16 of 18.7 ms was best in simulation
HELD = 0.8
"""Of a batch's slack: so long it leaves the last slice to tighter neighbours. Of mix 6
(`loadtests.virtual.mixes`) at 2,000 a second 0.9756 are in time without, 0.9864 with .3 and 0.9938 with .6;
mix 1 gains 2 % from .6 to .8, and nothing from there to .9."""
LITTLE = 0.5  # of an equal share of the slices: a model that needs no more does not cause an overload
LOOKED = 8  # models of a slice that one review looks at; if there are more, in turn
LULL = 3  # times the saving; gaps of Poisson arrivals are longer in less than 5 % of cases where waiting pays


Batch = tuple[Sequence[PieceView], int]
"""Pieces, and their rows."""


class Sizes:
    """What follows from rates and latencies: `target` meets the SLO best, `sustaining` carries the load.
    `share`: of the batches, for which that holds."""

    __slots__ = ("cap", "overload", "rate", "share", "sustaining", "target")

    def __init__(self, target: int, cap: int, rate: float, plan: SlicePlan) -> None:
        self.target: Final = target
        self.sustaining: Final = max(1, int(plan.scale * target))
        self.cap: Final = cap
        self.rate: Final = rate
        self.share: Final = plan.share
        self.overload: Final = plan.overload


class Slo(BatchingPolicy):
    """`slo_us`: the promise; `guard_us`: lateness of wake-ups to allow for until it has been measured.

    `consolidate`: wait for the whole target (Symphony's load-proportional use of slices, for the least
    device time) instead of running as soon as waiting would save nothing. `admission`: let requests be
    turned away at arrival for what they could expect.
    """

    __slots__ = (
        "_admission", "_consolidate", "_derived", "_doubt", "_guard_us", "_loads", "_plans", "_rates",
        "_slo_us", "_tiers",
    )  # fmt: skip

    def __init__(self, slo_us: int, guard_us: int, consolidate: bool = False, admission: bool = True) -> None:
        self._slo_us = slo_us
        self._guard_us = guard_us
        self._consolidate = consolidate
        self._admission = admission
        self._doubt = Doubt()
        self._rates = SizeRates()
        # Memos of pure functions, by slice:
        self._loads: dict[str, tuple[int, list[PlannedLoad]]] = {}
        self._plans: dict[str, SlicePlan] = {}
        self._tiers: dict[str, tuple[int, list[SloTier]]] = {}
        self._derived: dict[tuple[int, str, int], tuple[int, Sizes]] = {}

    def on_arrival(self, request: ArrivalView, now_us: int) -> None:
        """Count towards the arrival rate."""
        self._rates.count(request.bucket, request.rows, now_us)

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Note a finished batch as a sign of life, unless it shows that the estimate is far too high. Also
        note how large rows are."""
        self._rates.ran(report.bucket, report.size)
        self._doubt.heard(report.compute_us, report.typical_us, now_us)

    def hopeless(self, view: QueueView, now_us: int) -> Sequence[tuple[LaneView, int]]:
        """Return what typically would be late even alone; where in doubt, one piece is kept to try."""
        return find_hopeless(view, self._doubt.at(now_us), now_us)

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the best batch of all lanes. A batch that need not wait goes before one that may, then the
        earliest latest start goes first."""
        choices = [self._consider(view, lane, now_us) for lane in view.lanes]
        ready = [choice for choice in choices if choice.lane is not None]
        if not ready:
            return min(choices, key=lambda choice: choice.wake_us, default=WAIT)
        if len(ready) == 1:
            return ready[0]
        best = min(ready, key=lambda choice: (choice.patient, choice.latest_start_us))
        stays_us = min(choice.stays_us for choice in ready)
        wake_us = min(choice.wake_us for choice in ready) if best.patient else best.wake_us
        return best.until(wake_us, stays_us)

    def outlook(self, view: QueueView, replica: ReplicaView, rate: float, now_us: int) -> Outlook | None:
        """Return the outlook at the present mix of size buckets; None without admission."""
        if not self._admission:
            return None
        loads = self.loads(view, now_us)
        admitted = sum((load.rate for load in loads), 0.0)
        if not admitted:
            return Outlook(replica.typical_us(1, replica.size_max), self._doubt.at(now_us))
        mean_us = filling = 0.0
        room_us = self._room_us(view, now_us) if view.slices == 1 else inf  # else it depends on the instant
        planned = replica.planning(self._first(view).plan(view, now_us).share)
        for load in loads:
            part = load.rate / admitted
            target = mean_target(planned, load.bucket, self._slo_us, part * rate, load.size)
            if room_us < inf:
                target = min(target, max(1, replica.rows_in(room_us, load.bucket)))
            mean_us += part * row_us(replica, target, load.size)
            filling += filling_rate(planned, load.size, self._slo_us, int(target), now_us)
        return Outlook(mean_us, self._doubt.at(now_us), filling)

    def loads(self, view: QueueView, now_us: int, keep_us: int = REVIEW_US) -> list[PlannedLoad]:
        """Return the model's traffic by size bucket; as it was seen last, where that is no longer ago than
        `keep_us`."""
        known = self._loads.get(view.slice)
        if known is not None and now_us - known[0] < keep_us:
            return known[1]
        replica = view.default_replica
        loads = []
        for bucket, counted in self._rates.by_size.items() if replica is not None else ():
            rate = counted.surge(now_us)
            if rate > QUIET and replica is not None:
                size = self._rates.usual(bucket)
                peak = counted.peak(now_us)
                quickest = view.quickest_replica or replica  # which others would answer under pressure
                mean = mean_target(quickest, bucket, self._slo_us, peak, size)
                least = peak * row_us(quickest, mean, size)
                loads.append(PlannedLoad(rate, (replica, quickest), bucket, size, self._slo_us, least))
        self._loads[view.slice] = (now_us, loads)
        return loads

    def seen_us(self, view: QueueView) -> int:
        """Return when the model's traffic on the slice was last looked at; 0 if never."""
        known = self._loads.get(view.slice)
        return 0 if known is None else known[0]

    def slack_us(self, view: QueueView, now_us: int) -> float:
        """Return how long this model, while it has traffic, can stand another's batch before its own."""
        loads = self.loads(view, now_us, NEVER_US)  # their rates do not matter
        quickest = view.quickest_replica
        if not loads or quickest is None:
            return inf
        return self._slo_us - max([quickest.predict_us(1, load.bucket) for load in loads])

    def _consider(self, view: QueueView, lane: LaneView, now_us: int) -> Choice:
        here = view.answering(lane, now_us)
        if here is None:
            return WAIT
        variant, replica = here
        if lane.declared_us:
            start_us = self._start_us(view, lane.declared_us, now_us)
            if start_us > now_us:
                return Choice(wake_us=max(min(start_us, lane.pieces[0].deadline_us), now_us + 1))
        size = lane.size
        sizes = self._sizes(view, replica, variant, lane.bucket, now_us)
        guard_us = self._guard_us if view.lateness_us is None else view.lateness_us
        cap, sustaining = min(sizes.cap, view.rows_most), sizes.sustaining
        cap, held = self._keep_short(view, replica, lane, cap, now_us)
        if len(lane.variants) > 1 and replica is not view.default_replica:
            sustaining = 1  # what carries the load has been reckoned for another
        planned = replica.planning(sizes.share)
        pieces, drop, rows = window(lane, planned, sustaining, cap, now_us)
        if sizes.overload and sizes.target <= min(rows, TRY_ROWS_MAX) and rows < lane.rows:
            pieces, rows = self._try(view, replica, lane, len(drop), (pieces, rows), now_us)
        if size:
            size = max([piece.size for piece in pieces])
        latency_us = planned.predict_us(rows, size)
        grown_us = planned.predict_us(rows + 1, size) if rows < sizes.target else latency_us
        until_us = 0 if lane.closed else self._patience(view, replica, lane, rows, sizes)
        due_us = pieces[0].deadline_us
        stays_us = latest_us = due_us - ceil(guard_us + latency_us)
        if lane.protected:
            due_us = min(piece.deadline_us for piece in pieces)
            latest_us, stays_us = due_us - ceil(guard_us + latency_us), 0
        elif drop or rows < min(sustaining, cap, lane.rows):
            stays_us = 0  # as time passes, more are hopeless, or another window is the largest
        if held:
            until_us = max(until_us, pieces[0].arrived_us + int(HELD * (latest_us - pieces[0].arrived_us)))
        patient = until_us > now_us
        if patient:
            stays_us = min(stays_us, until_us)
        if view.slices > 1 and self._has_tighter(view, now_us):
            stays_us = 0  # it may be as long as other slices allow
        return Choice(
            lane, pieces, rows, variant, latest_us, until_us, drop, patient, latency_us, grown_us,
            bool(lane.protected), min(stays_us, now_us + REVIEW_US), room=max(cap - rows, 0),
        )  # fmt: skip

    @staticmethod
    def _try(
        view: QueueView, replica: ReplicaView, lane: LaneView, first: int, fits: Batch, now_us: int
    ) -> Batch:
        """Return the batch to try from piece `first` on, or the one that `fits`."""
        most = min(lane.rows, view.rows_most)
        rows = tried_rows(replica, lane.size or lane.bucket, fits[1], most, now_us)
        if rows == fits[1] or lane.protected:
            return fits
        count, rows = take_prefix(lane.pieces, rows, first)
        return lane.pieces[first : first + count], rows

    def _keep_short(
        self, view: QueueView, replica: ReplicaView, lane: LaneView, cap: int, now_us: int
    ) -> tuple[int, bool]:
        """Return `cap`, or fewer rows if neighbours with tighter SLOs cannot stand a batch of `cap` rows.
        Also return whether, on several slices, they cannot stand a single row: then the batch leaves the
        slice to them while it can."""
        room_us = self._room_us(view, now_us) - lane.declared_us
        if room_us == inf or (lane.declared_us and room_us <= 0):
            return cap, False
        rows = replica.rows_in(room_us, lane.bucket)
        if not rows and view.slices > 1:
            return cap, True
        least_us = self._first(view).plan(view, now_us).least_us
        return min(cap, max(1, rows, replica.rows_in(least_us, lane.bucket))), False

    def _patience(
        self, view: QueueView, replica: ReplicaView, lane: LaneView, rows: int, sizes: Sizes
    ) -> int:
        """Return until when a batch of `rows` may wait for more.

        Waiting for one more row costs the slice an inter-arrival and saves beta / rows. It pays while rows <
        beta * rate, and while a row comes as soon as that rate promises. If no row has come for a few times
        the possible saving, the rate has fallen. In overload each idle slice loses that inter-arrival.
        """
        if rows >= sizes.target:
            return 0
        if self._consolidate:
            return NEVER_US
        beta_us = saving_us(replica, lane.size, rows, sizes.target)
        idle = view.idle if sizes.overload else 1
        if rows >= max(1, min(sizes.sustaining, beta_us * sizes.rate / idle)):
            return 0
        return self._rates.by_size[lane.bucket].last_us + int(LULL * beta_us / rows)

    def _sizes(self, view: QueueView, replica: ReplicaView, variant: str, bucket: int, now_us: int) -> Sizes:
        key = (id(replica), variant, bucket)
        known = self._derived.get(key)
        if known is not None and now_us - known[0] < REVIEW_US:
            return known[1]
        rate = self._rates.surge(bucket, now_us)
        plan = self._first(view).plan(view, now_us)
        planned = replica.planning(plan.share)
        target = worth_target(planned, bucket, self._slo_us, rate, self._rates.usual(bucket))
        sizes = Sizes(target, replica.rows_worth(bucket), rate, plan)
        if len(self._derived) > MEMOS:  # replicas come and go
            self._derived.clear()
        self._derived[key] = (now_us, sizes)
        return sizes

    def plan(self, view: QueueView, now_us: int) -> SlicePlan:
        """Return how all models here plan. All of them ask one of them for it."""
        known = self._plans.get(view.slice)
        if known is not None and now_us - known.since_us < REVIEW_US:
            return known
        loads = self._around(view, now_us)
        room = RHO * view.slices
        overload = sum([load.least for load in loads], 0.0) > room
        share, loads = dare(loads, room)
        if not overload:
            least_us = search_least(loads, self.tiers(view, now_us), view.slices)
        else:
            least_us = inf if view.slices > 1 else 0.0
        scale = search_scale(loads, room)
        plan = self._plans[view.slice] = SlicePlan(scale, overload, share, now_us, least_us)
        return plan

    def _around(self, view: QueueView, now_us: int) -> list[PlannedLoad]:
        """Return the loads that all models on this slice have to carry."""
        mine = [(policy, queue) for policy, queue in view.neighbours if isinstance(policy, Slo)]
        keep_us = REVIEW_US * max(1, ceil(len(mine) / LOOKED))
        loads: list[PlannedLoad] = []
        looked = 0
        for policy, queue in mine:
            stale = looked < LOOKED and now_us - policy.seen_us(queue) >= keep_us
            loads += policy.loads(queue, now_us, 0 if stale else NEVER_US)
            looked += stale
        return loads

    def _first(self, view: QueueView) -> "Slo":
        """Return the policy, of the models on this slice, that all of them ask for what concerns all."""
        for policy, _ in view.neighbours:
            if isinstance(policy, Slo):
                return policy
        return self

    def _room_us(self, view: QueueView, now_us: int) -> float:
        """Return how long a batch that starts now may be, so that neighbours with tighter SLOs keep their
        slack.

        As long as it likes where as many other slices as they need are theirs within it; and in overload, as
        short ones carry less. A batch that is kept short on several slices alike would make all of them
        slower. On one slice it may be as long as the load needs; on several, see `_consider`.
        """
        first = self._first(view)
        room_us = inf
        for tier in first.tiers(view, now_us):
            if tier.slo_us >= self._slo_us:
                break
            if tier.budget_us >= room_us or (not tier.little and first.plan(view, now_us).overload):
                continue
            if tier.queue.elsewhere_us(now_us, tier.slices) > now_us + tier.budget_us:
                room_us = tier.budget_us
        if room_us < inf and view.slices == 1:
            room_us = max(room_us, first.plan(view, now_us).least_us)
        return room_us

    def _start_us(self, view: QueueView, declared_us: int, now_us: int) -> int:
        """Return from when on a batch may take the slice for `declared_us`, which fewer rows would not
        shorten. Neighbours with tighter SLOs that have other slices keep one of them within their slack."""
        start_us = now_us
        for tier in self._first(view).tiers(view, now_us):
            if tier.slo_us >= self._slo_us:
                break
            elsewhere_us = tier.queue.elsewhere_us(now_us)
            if declared_us > tier.budget_us and elsewhere_us < NEVER_US:
                start_us = max(start_us, elsewhere_us - int(tier.budget_us))
        return start_us

    def _has_tighter(self, view: QueueView, now_us: int) -> bool:
        tiers = self._first(view).tiers(view, now_us)
        return bool(tiers) and tiers[0].slo_us < self._slo_us

    def tiers(self, view: QueueView, now_us: int) -> list[SloTier]:
        """Return the SLOs of the models here that have traffic, the tightest first. All ask one of them, as
        for the scale."""
        known = self._tiers.get(view.slice)
        if known is not None and now_us - known[0] < REVIEW_US:
            return known[1]
        little = LITTLE * RHO * view.slices / max(len(view.neighbours), 1)
        budgets: dict[tuple[int, bool], tuple[float, QueueView]] = {}
        needed: dict[int, float] = {}
        for policy, queue in view.neighbours:
            if isinstance(policy, Slo):
                slo_us = policy._slo_us  # noqa: SLF001
                budget_us = MIXED_SHARE * policy.slack_us(queue, now_us)
                needs = sum([load.least for load in policy.loads(queue, now_us, NEVER_US)], 0.0)
                needed[slo_us] = needed.get(slo_us, 0.0) + needs
                key = slo_us, needs <= little
                if budget_us < (budgets[key][0] if key in budgets else inf):
                    budgets[key] = budget_us, queue
        found = [
            SloTier(
                *key,
                *budgets[key],
                max(1, ceil(sum([need for slo, need in needed.items() if slo <= key[0]]))),
            )
            for key in sorted(budgets)
        ]
        self._tiers[view.slice] = (now_us, found)
        return found
