"""A variant on a slice, as the scheduler sees it: what its batches take, and what they say of its profile."""

from math import log

from serving.policy.batching.interface import ReplicaView
from serving.policy.estimates.drift import COLD, JOINED, WARM, Drift
from serving.policy.estimates.freshness import COLD_US, Freshness, ProfileWatch, ratio_of
from serving.policy.estimates.latency import EITHER, ENOUGH, FAR_QUICKER, QUANTILE, WINDOW, Doubt, Residuals
from serving.profile.derived.latency import Latency
from serving.scheduler.commands import RunBatch
from serving.scheduler.slices.shared_device import SharedDevice
from serving.values.specs import ServedModel

RAN_WEIGHT = 0.1  # of one batch in what they take in the mean
QUICKER = 1.25  # than the estimate, of a rung: it stays in doubt, and is tried again
ALIKE = 1.25
"""Profiles of slices that are alike are measured apart, on a shared machine, and repeat to within this."""
LEAD_US_MIN, LEAD_US_MAX = 200.0, 3000.0
"""A batch is sent ahead by what transport and late wake-ups cost, so that the slice need not wait for it, and
by no more than the maximum: what is committed cannot grow, or be given up, any more."""


class Replica:
    """A variant on a slice that has a `price` an hour. A `serving.policy.batching.interface.ReplicaView`."""

    __slots__ = (
        "_batch_max", "_budget_us", "accuracy", "device", "doubt", "drift", "failures", "id",
        "latency", "learned_us", "price", "profiled", "ran_us", "residuals", "size_max", "variant", "watch",
    )  # fmt: skip

    def __init__(self, replica_id: int, variant: str, latency: Latency, model: ServedModel) -> None:
        self.id = replica_id
        self.variant = variant
        self.latency = self.profiled = latency.reaching(model.spec.batch_max)
        self.accuracy = model.accuracy(variant)
        self.size_max = model.spec.sizes[-1]
        self._batch_max = model.spec.batch_max
        self._budget_us = model.slo_us
        self.learned_us = 0  # when the latest batch was back
        self.device = SharedDevice()
        self.price = 0.0
        self.residuals = Residuals()
        self.watch = ProfileWatch()
        self.drift = Drift()
        self.failures = 0  # batches in a row in which the model raised
        self.ran_us = 0.0  # what batches take, in the mean of late
        self.doubt = Doubt()

    @property
    def likeness(self) -> tuple[str, str, str, int, int]:
        """What replicas share that take about as long, as far as their profiles tell: variant, kind of device
        and share, and the times of the smallest and the largest batch to steps of ALIKE."""
        profile = self.profiled.profile
        ends_us = (self.profiled.predict_us(rows, self.size_max) for rows in (1, self._batch_max))
        least, most = (round(log(max(each_us, 1.0)) / log(ALIKE)) for each_us in ends_us)
        return self.variant, profile.device_kind, str(profile.share), least, most

    def rows_max(self, size: int) -> int:
        """Return the largest batch allowed at this size, at least 1."""
        return min(self._batch_max, self.latency.rows_within(self._budget(self._budget_us), size))

    def rows_worth(self, size: int) -> int:
        """Return the largest number of rows with which a row takes hardly longer than with any smaller
        number."""
        return min(self.rows_max(size), self.latency.rows_worth(size))

    def piece_max(self, size: int) -> int:
        """Return the rows of a request that travel together: what could wait for one such batch and be the
        next."""
        return min(self._batch_max, self.latency.rows_within(self._budget(self._budget_us // 2), size))

    def _budget(self, budget_us: int) -> int:
        """Return the profile's time for a batch that typically takes `budget_us`. A profile that is too slow
        must not keep batches small."""
        return int(budget_us / min(self.residuals.typical_of(EITHER), 1.0))

    def planning(self, share: float) -> ReplicaView:
        """Return the same as a policy sees it that plans with what `share` of the batches do not exceed."""
        return Daring(self, share) if share < QUANTILE else self

    def predict_us(self, rows: int, size: int, share: float = QUANTILE) -> float:
        """Return what to plan with for a batch, so that `share` of them take no longer from dispatch to
        result."""
        residuals, expected = self.residuals, self.device.expected
        prior_us = self.latency.predict_us(rows, size)
        most_us = prior_us * residuals.typical_of(expected) + residuals.excess_of(expected, share)
        return min(prior_us * residuals.kappa_of(expected, share), most_us) + residuals.overhead_us

    def typical_us(self, rows: int, size: int) -> float:
        """Return the typical time of a batch."""
        return self.latency.predict_us(rows, size) * self.residuals.typical_of(self.device.expected)

    @property
    def lost_us(self) -> float:
        """What a batch takes beyond the typical in the mean."""
        return self.residuals.lost_of(self.device.expected)

    def is_proven(self, rows: int, size: int) -> bool:
        """Return whether batches of about that many rows, or of more, have lately shown what they take."""
        return self.drift.is_proven(rows, self.profiled.measured_size(size))

    def is_tried(self, rows: int, size: int) -> bool:
        """Return whether they have in the last half a minute, or need no try yet."""
        return self.drift.is_tried(rows, self.profiled.measured_size(size))

    def longest_us(self, predicted_us: float) -> float:
        """Return the longest time of a batch with the prediction `predicted_us` now, if others join it."""
        residuals, expected = self.residuals, self.device.expected
        slower = max(residuals.kappa_of(EITHER) / residuals.kappa_of(expected), 1.0)
        return (predicted_us - residuals.overhead_us) * slower + residuals.overhead_us

    def rows_in(self, budget_us: float, size: int, share: float = QUANTILE) -> int:
        """Return the largest measured batch, up to `batch_max`, that takes at most `budget_us` in `share` of
        the cases; may be 0."""
        residuals = self.residuals
        expected = self.device.expected
        left_us = budget_us - residuals.overhead_us
        beyond_us = (left_us - residuals.excess_of(expected, share)) / residuals.typical_of(expected)
        rows = self.latency.rows_in(max(left_us / residuals.kappa_of(expected, share), beyond_us), size)
        return rows if rows < self._batch_max else self._batch_max

    def learn(self, batch: RunBatch, compute_us: int, elapsed_us: int, rung: bool = False) -> bool:
        """Learn from a batch that came back `elapsed_us` after its dispatch. Return whether the profile is
        judged differently now.

        `rung`: another variant may run in its place. What batches took before a time without runs then counts
        less: it is of other times. Only a few tries can show that they are over.
        """
        now_us = self.learned_us = batch.started_us + elapsed_us
        self.failures = 0
        if batch.declared_us:
            self.doubt.heard(batch.told_us(compute_us), batch.typical_us - batch.declared_us, now_us)
            return False
        self.ran_us += RAN_WEIGHT * (compute_us - self.ran_us) if self.ran_us else compute_us
        if rung and self.doubt.at(batch.started_us):
            self._restart(now_us, ENOUGH)
        quicker = QUICKER if rung else FAR_QUICKER
        self.doubt.heard(compute_us, batch.typical_us, now_us, quicker)
        prior_us = self.latency.predict_us(batch.rows, batch.size)
        way_us = None if batch.staged else elapsed_us
        since = self.residuals.add(prior_us, compute_us, way_us, batch.beside, now_us)
        if since and self.drift.grew(since):
            self._refit(now_us)
        elif since:
            self.drift.forget(since)
            if self.latency is not self.profiled:  # it was fitted to what is over
                self.latency = self.profiled
                self._restart(now_us, sure=True)
        ran = JOINED if batch.joined and not batch.beside else COLD if batch.cold else WARM
        if self.drift.add(batch.rows, batch.size, compute_us, batch.beside, ran):
            self._refit(now_us)
        return self._watch(batch.rows, batch.size, compute_us, batch.beside, ran)

    def inherit(self, before: "Replica") -> bool:
        """Take the place of `before`, with a profile that was refined or measured anew. What its latest
        batches took still holds, and is held against the profile. Return whether that is to be said
        (again)."""
        self.residuals = before.residuals
        self.ran_us = before.ran_us
        self.failures = before.failures
        self.doubt = before.doubt
        self.drift = before.drift
        self.learned_us = before.learned_us
        self._restart(self.learned_us)
        if before.latency is not before.profiled:
            self._refit(self.learned_us)
        for sample in self.drift.samples:
            self._watch(*sample)
        return not (self.watch.freshness is before.watch.freshness is Freshness.FRESH)

    def _watch(self, rows: int, size: int, compute_us: int, beside: bool, ran: int) -> bool:
        """Hold a batch against the profile; but one that was joined ran neither alone nor beside others."""
        if ran == JOINED:
            return False
        ratio = ratio_of(compute_us, self.profiled.predict_us(rows, size), ran == COLD)
        return self.watch.add(rows, self.profiled.measured_size(size), ratio, beside)

    def _refit(self, now_us: int) -> None:
        fitted = self.drift.look(self.profiled, self.latency, now_us)
        if fitted is not None:
            self.latency = fitted
            self._restart(now_us)

    def _restart(self, now_us: int, newest: int = WINDOW, sure: bool = False) -> None:
        known = []
        for rows, size, compute_us, beside, _ in self.drift.samples:
            prior_us = max(self.latency.predict_us(rows, size), 1.0)
            known.append((compute_us / prior_us, beside, prior_us))
        self.residuals.restart(known[-newest:], now_us, sure)

    @property
    def factor(self) -> float:
        """What its batches typically take, over its profile."""
        return self.residuals.typical_of(self.device.expected)

    @property
    def slowness(self) -> float:
        """Of that what is the machine's doing: not what batches cost that follow after a pause, which of
        short ones is the most."""
        factor = self.factor
        return max(1.0, factor * (1 - COLD_US / self.ran_us)) if factor > 1 and self.ran_us else factor

    def untried(self, now_us: int) -> bool:
        """Return whether the latest batch that bore the estimate out is so long ago that one is worth a
        try."""
        return self.doubt.at(now_us)

    def lead_us(self, lateness_us: float | None) -> float:
        """Return how long before the end of a batch here the next may be sent; 0: not before."""
        overhead_us = self.residuals.overhead_us
        return min(overhead_us + (lateness_us or 0), LEAD_US_MAX) if overhead_us >= LEAD_US_MIN else 0.0


class Daring:
    """A replica as a policy sees it that plans with what `share` of its batches do not exceed. A
    `serving.policy.batching.interface.ReplicaView`."""

    __slots__ = ("_replica", "_share")

    def __init__(self, replica: Replica, share: float) -> None:
        self._replica = replica
        self._share = share

    def planning(self, share: float) -> ReplicaView:
        """See `Replica`, as all below."""
        return self._replica.planning(share)

    def rows_max(self, size: int) -> int:
        return self._replica.rows_max(size)

    def rows_worth(self, size: int) -> int:
        return self._replica.rows_worth(size)

    def predict_us(self, rows: int, size: int) -> float:
        return self._replica.predict_us(rows, size, self._share)

    def typical_us(self, rows: int, size: int) -> float:
        return self._replica.typical_us(rows, size)

    def rows_in(self, budget_us: float, size: int) -> int:
        return self._replica.rows_in(budget_us, size, self._share)

    @property
    def lost_us(self) -> float:
        return self._replica.lost_us

    def is_proven(self, rows: int, size: int) -> bool:
        return self._replica.is_proven(rows, size)

    def is_tried(self, rows: int, size: int) -> bool:
        return self._replica.is_tried(rows, size)

    @property
    def size_max(self) -> int:
        return self._replica.size_max

    def untried(self, now_us: int) -> bool:
        return self._replica.untried(now_us)
