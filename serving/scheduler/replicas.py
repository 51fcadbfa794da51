"""A variant on a slice, as the scheduler sees it: what its batches take, and what they say of its profile."""

from serving.policy.drift import COLD, JOINED, WARM, Drift
from serving.policy.freshness import Freshness, Watch, ratio_of
from serving.policy.latency import EITHER, Doubt, Residuals
from serving.profile.latency import Latency
from serving.scheduler.commands import RunBatch
from serving.scheduler.devices import Device
from serving.specs import ServedModel

LEAD_US_MIN, LEAD_US_MAX = 200.0, 3000.0
"""A batch is sent ahead by what transport and late wake-ups cost, so that the slice need not wait for it, and
by no more than the maximum: what is committed cannot grow, or be given up, any more."""


class Replica:
    """A variant on a slice. A `serving.policy.batching.seam.ReplicaView`."""

    __slots__ = (
        "_batch_max", "_budget_us", "device", "doubt", "drift", "failures", "id", "latency", "profiled",
        "residuals", "variant", "watch",
    )  # fmt: skip

    def __init__(self, replica_id: int, variant: str, latency: Latency, model: ServedModel) -> None:
        self.id = replica_id
        self.variant = variant
        self.latency = self.profiled = latency
        self._batch_max = model.spec.batch_max
        self._budget_us = model.slo_us
        self.device = Device()
        self.residuals = Residuals()
        self.watch = Watch()
        self.drift = Drift()
        self.failures = 0  # batches in a row in which the model raised
        self.doubt = Doubt()

    def rows_max(self, size: int) -> int:
        """The largest batch allowed at this size, at least 1."""
        return min(self._batch_max, self.latency.rows_within(self._budget_us, size))

    def piece_max(self, size: int) -> int:
        """The rows of a request that travel together: what could wait for one such batch and be the next."""
        return min(self._batch_max, self.latency.rows_within(self._budget_us // 2, size))

    def predict_us(self, rows: int, size: int) -> float:
        """What to plan with for a batch: from dispatch to its result, late batches included."""
        residuals, expected = self.residuals, self.device.expected
        return self.latency.predict_us(rows, size) * residuals.kappa_of(expected) + residuals.overhead_us

    def typical_us(self, rows: int, size: int) -> float:
        """What a batch takes as a rule."""
        return self.latency.predict_us(rows, size) * self.residuals.typical_of(self.device.expected)

    def longest_us(self, predicted_us: float) -> float:
        """What a batch may take of which that is predicted now, should others join it."""
        residuals, expected = self.residuals, self.device.expected
        slower = max(residuals.kappa_of(EITHER) / residuals.kappa_of(expected), 1.0)
        return (predicted_us - residuals.overhead_us) * slower + residuals.overhead_us

    def rows_in(self, budget_us: float, size: int) -> int:
        """The largest measured batch, up to `batch_max`, that takes at most `budget_us`; may be 0."""
        residuals = self.residuals
        kappa = residuals.kappa_of(self.device.expected)
        rows = self.latency.rows_in((budget_us - residuals.overhead_us) / kappa, size)
        return rows if rows < self._batch_max else self._batch_max

    def learn(self, batch: RunBatch, compute_us: int, elapsed_us: int) -> bool:
        """A batch came back `elapsed_us` after its dispatch. Whether the profile is judged otherwise now."""
        self.failures = 0
        self.doubt.heard(compute_us, batch.typical_us, batch.started_us + elapsed_us)
        prior_us = self.latency.predict_us(batch.rows, batch.size)
        self.residuals.add(prior_us, compute_us, None if batch.staged else elapsed_us, batch.beside)
        ran = JOINED if batch.joined and not batch.beside else COLD if batch.cold else WARM
        if self.drift.add(batch.rows, batch.size, compute_us, batch.beside, ran):
            self._refit()
        return self._watch(batch.rows, batch.size, compute_us, batch.beside, ran)

    def inherit(self, before: "Replica") -> bool:
        """It takes the place of `before`, with a profile that has been refined or measured anew: what its
        latest batches took still holds, and is held against it. Whether that is to be said (again)."""
        self.residuals = before.residuals
        self.failures = before.failures
        self.doubt = before.doubt
        self.drift = before.drift
        self._restart()
        if before.latency is not before.profiled:
            self._refit()
        for sample in self.drift.samples:
            self._watch(*sample)
        return not (self.watch.freshness is before.watch.freshness is Freshness.FRESH)

    def _watch(self, rows: int, size: int, compute_us: int, beside: bool, ran: int) -> bool:
        """Hold a batch against the profile; but one that was joined ran neither alone nor beside others."""
        if ran == JOINED:
            return False
        ratio = ratio_of(compute_us, self.profiled.predict_us(rows, size), ran == COLD)
        return self.watch.add(rows, self.profiled.measured_size(size), ratio, beside)

    def _refit(self) -> None:
        fitted = self.drift.look(self.profiled, self.latency)
        if fitted is not None:
            self.latency = fitted
            self._restart()

    def _restart(self) -> None:
        ratios = self.drift.ratios(self.latency)
        besides = [beside for _, _, _, beside, _ in self.drift.samples]
        self.residuals.restart(zip(ratios, besides, strict=True))

    @property
    def streams(self) -> int:
        """Batches that its slice may compute at once."""
        return self.latency.streams

    def untried(self, now_us: int) -> bool:
        """Whether the latest batch that bore the estimate out is so long ago that one is worth a try."""
        return self.doubt.at(now_us)

    def lead_us(self, lateness_us: float | None) -> float:
        """How long before the end of a batch here the next may be sent; 0: not before."""
        overhead_us = self.residuals.overhead_us
        return min(overhead_us + (lateness_us or 0), LEAD_US_MAX) if overhead_us >= LEAD_US_MIN else 0.0
