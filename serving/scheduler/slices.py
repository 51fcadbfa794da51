"""A slice as the scheduler sees it: what is resident on it and what it is doing."""

from collections.abc import Iterable

from serving.policy.batching.seam import BatchingPolicy, resident
from serving.policy.latency import FAR_QUICKER, TRY_US, Lateness, Residuals
from serving.policy.suspicion import free_us, suspect_us
from serving.profile.curve import Latency
from serving.scheduler.commands import RunBatch
from serving.scheduler.lanes import Lane, Queue
from serving.specs import ServedModel
from serving.vocabulary import NEVER_US

LEAD_US_MIN, LEAD_US_MAX = 200.0, 3000.0
"""A batch is sent ahead by what transport and late wake-ups cost, so that the slice need not wait for it, and
by no more than the maximum: what is committed cannot grow, or be given up, any more."""


class Replica:
    """A variant on a slice. A `serving.policy.batching.seam.ReplicaView`."""

    __slots__ = (
        "_batch_max", "_budget_us", "_heard_us", "failures", "id", "latency", "residuals", "variant",
    )  # fmt: skip

    def __init__(self, replica_id: int, variant: str, latency: Latency, model: ServedModel) -> None:
        self.id = replica_id
        self.variant = variant
        self.latency = latency
        self._batch_max = model.spec.batch_max
        self._budget_us = model.slo_us
        self.residuals = Residuals()
        self.failures = 0  # batches in a row in which the model raised
        self._heard_us = 0

    def rows_max(self, size: int) -> int:
        """The largest batch allowed at this size bucket, at least 1."""
        return min(self._batch_max, self.latency.rows_within(self._budget_us, size))

    def piece_max(self, size: int) -> int:
        """The rows of a request that travel together: what could wait for one such batch and be the next."""
        return min(self._batch_max, self.latency.rows_within(self._budget_us // 2, size))

    def predict_us(self, rows: int, size: int) -> float:
        """What to plan with for a batch: from dispatch to its result, late batches included."""
        residuals = self.residuals
        return self.latency.predict_us(rows, size) * residuals.kappa + residuals.overhead_us

    def typical_us(self, rows: int, size: int) -> float:
        """What a batch takes as a rule."""
        return self.latency.predict_us(rows, size) * self.residuals.typical

    def rows_in(self, budget_us: float, size: int) -> int:
        """The largest allowed batch expected to take at most `budget_us`; may be 0."""
        residuals = self.residuals
        rows = self.latency.rows_in((budget_us - residuals.overhead_us) / residuals.kappa, size)
        return rows if rows < self._batch_max else self._batch_max

    def learn(self, batch: RunBatch, compute_us: int, elapsed_us: int) -> None:
        """A batch came back `elapsed_us` after its dispatch."""
        self.failures = 0
        if FAR_QUICKER * compute_us > batch.typical_us:
            self._heard_us = batch.started_us + elapsed_us
        prior_us = self.latency.predict_us(batch.rows, batch.size)
        self.residuals.add(prior_us, compute_us, None if batch.staged else elapsed_us)

    def untried(self, now_us: int) -> bool:
        """Whether the latest batch that bore the estimate out is so long ago that one is worth a try."""
        return now_us - self._heard_us >= TRY_US

    def lead_us(self, lateness_us: float | None) -> float:
        """How long before the end of a batch here the next may be sent; 0: not before."""
        overhead_us = self.residuals.overhead_us
        return min(overhead_us + (lateness_us or 0), LEAD_US_MAX) if overhead_us >= LEAD_US_MIN else 0.0


class SliceQueue:
    """One model's queue as one slice sees it. A `serving.policy.batching.seam.QueueView`."""

    __slots__ = ("_lateness", "_live", "_slices", "model", "policy", "queue", "replicas")

    def __init__(
        self,
        model: str,
        queue: Queue,
        policy: BatchingPolicy,
        live: "Slice",
        shared: "tuple[list[Slice], Lateness]",
    ) -> None:
        self.model = model
        self.queue = queue
        self.policy = policy
        self._live = live
        self._slices, self._lateness = shared  # the model's slices; the scheduler's clock
        self.replicas: dict[str, Replica] = {}

    @property
    def lanes(self) -> Iterable[Lane]:
        return self.queue.lanes

    @property
    def slice(self) -> str:
        """The slice's name."""
        return self._live.name

    @property
    def default_replica(self) -> Replica | None:
        """Some replica of the model here."""
        return next(iter(self.replicas.values()), None)

    @property
    def slices(self) -> int:
        """Slices that hold the model and can be counted on, at least 1."""
        return max(sum(not live.suspect for live in self._slices), 1)

    @property
    def waits_elsewhere(self) -> bool:
        """Whether a slice that could start at once lets this queue wait."""
        return any(live.free for live in self._slices)

    @property
    def lateness_us(self) -> float | None:
        """How late wake-ups are as a rule; None while that is not known."""
        return self._lateness.value_us

    @property
    def neighbours(self) -> "Iterable[tuple[BatchingPolicy, SliceQueue]]":
        """The policies and queues of all models on this slice."""
        return ((queue.policy, queue) for queue in self._live.queues.values())

    def replica(self, variant: str) -> Replica | None:
        """The variant's replica here, or None."""
        return self.replicas.get(variant)

    def least_us(self, lane: Lane, rows: int) -> float:
        """What rows of a lane take as a rule on the quickest slice: this one, or one to be counted on."""
        views = (live.queues[self.model] for live in self._slices if live is self._live or not live.suspect)
        found = (resident(view, lane) for view in views)
        return min(here[1].typical_us(rows, lane.size) for here in found if here is not None)


class Slice:
    """A live slice. `width`: batches in flight at once (of the profile; 1: no elastic streams)."""

    __slots__ = ("free_since_us", "holds", "name", "queues", "running", "suspect", "width")

    def __init__(self, name: str, width: int = 1) -> None:
        self.name = name
        self.width = width
        self.holds = 0  # measurements that have the slice to themselves
        self.suspect = False  # a batch is out for longer than it should be: not planned on
        self.free_since_us = 0
        self.queues: dict[str, SliceQueue] = {}
        self.running: dict[int, RunBatch] = {}

    @property
    def free(self) -> bool:
        """Whether a batch may start now."""
        return self.holds == 0 and len(self.running) < self.width

    @property
    def started(self) -> list[RunBatch]:
        """The batches that run: all but one that was sent ahead."""
        return list(self.running.values())[: self.width]

    @property
    def opens_us(self) -> int:
        """From when on a batch may be sent here: 0 where it would start at once."""
        if self.holds:
            return NEVER_US
        if len(self.running) < self.width:
            return 0
        if len(self.running) > 1 or self.suspect:
            return NEVER_US
        (batch,) = self.running.values()
        if not batch.lead_us:
            return NEVER_US
        return batch.started_us + int(batch.typical_us - batch.lead_us)

    def starts_us(self, now_us: int) -> int:
        """When a batch that is sent now is expected to start."""
        if len(self.running) < self.width:
            return now_us
        batch = next(iter(self.running.values()))
        return max(now_us, batch.started_us + int(batch.typical_us))

    def free_us(self, now_us: int) -> int:
        """When one more batch may start here, as far as can be told."""
        if len(self.running) < self.width:
            return now_us
        first, *staged = self.running.values()
        end_us = free_us(first.started_us, first.typical_us, now_us)
        return end_us + sum(int(batch.typical_us) for batch in staged)

    def settle(self, batch_id: int, now_us: int) -> RunBatch:
        """A batch is back: it frees the slice, or starts the one sent ahead, and clears it of suspicion."""
        batch = self.running.pop(batch_id)
        self.free_since_us = now_us
        for ahead in self.running.values():
            ahead.started_us = now_us
        self.suspect = False
        return batch

    def next_doubt_us(self, stall_us: int) -> Iterable[int]:
        """When batches that are out will be suspected (until they are), and given up."""
        for batch in self.started:
            if not self.suspect:
                yield _suspect_us(batch)
            yield _stall_us(batch, stall_us)

    def suspected(self, now_us: int) -> str:
        """What has just become suspicious here: said once a suspicion."""
        for batch in self.started:
            if not self.suspect and now_us >= _suspect_us(batch):
                self.suspect = True
                late_us = now_us - batch.started_us
                return (
                    f"a {batch.model} batch of {batch.rows} rows is out for {late_us / 1000:.0f} ms, "
                    f"predicted {batch.predicted_us / 1000:.1f}"
                )
        return ""

    def stalled(self, now_us: int, stall_us: int) -> str:
        """What is later here than any batch may be; said once, again only after as long a time."""
        for batch in self.started:
            if now_us >= _stall_us(batch, stall_us):
                batch.warned_us = now_us
                return f"a {batch.model} batch of {batch.rows} rows was late by over {stall_us / 1e6:g} s"
        return ""


def _suspect_us(batch: RunBatch) -> int:
    return suspect_us(batch.started_us, batch.predicted_us)


def _stall_us(batch: RunBatch, stall_us: int) -> int:
    return max(batch.started_us + int(batch.predicted_us), batch.warned_us) + stall_us
