"""A slice as the scheduler sees it: what is resident on it and what it is doing."""

from collections.abc import Iterable

from serving.policy.batching.seam import BatchingPolicy
from serving.policy.latency import Residuals
from serving.profile.curve import Latency
from serving.scheduler.commands import RunBatch
from serving.scheduler.lanes import Lane, Queue
from serving.specs import ServedModel


class Replica:
    """A variant on a slice. A `serving.policy.batching.seam.ReplicaView`."""

    __slots__ = ("_batch_max", "_budget_us", "id", "latency", "residuals", "variant")

    def __init__(self, replica_id: int, variant: str, latency: Latency, model: ServedModel) -> None:
        self.id = replica_id
        self.variant = variant
        self.latency = latency
        self._batch_max = model.spec.batch_max
        self._budget_us = model.slo_us
        self.residuals = Residuals()

    def rows_max(self, size: int) -> int:
        """The largest batch allowed at this size bucket, at least 1."""
        return min(self._batch_max, self.latency.rows_within(self._budget_us, size))

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
        return min(
            self._batch_max, self.latency.rows_in((budget_us - residuals.overhead_us) / residuals.kappa, size)
        )

    def learn(self, batch: RunBatch, compute_us: int, elapsed_us: int) -> None:
        """A batch came back `elapsed_us` after its dispatch."""
        prior_us = self.latency.predict_us(batch.rows, batch.size)
        self.residuals.add(prior_us, compute_us, elapsed_us)


class SliceQueue:
    """One model's queue as one slice sees it. A `serving.policy.batching.seam.QueueView`."""

    __slots__ = ("_live", "_slices", "model", "policy", "queue", "replicas")

    def __init__(
        self, model: str, queue: Queue, policy: BatchingPolicy, live: "Slice", slices: "list[Slice]"
    ) -> None:
        self.model = model
        self.queue = queue
        self.policy = policy
        self._live = live
        self._slices = slices
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
        """Live slices that hold the model."""
        return len(self._slices)

    @property
    def neighbours(self) -> "Iterable[tuple[BatchingPolicy, SliceQueue]]":
        """The policies and queues of all models on this slice."""
        return ((queue.policy, queue) for queue in self._live.queues.values())

    def replica(self, variant: str) -> Replica | None:
        """The variant's replica here, or None."""
        return self.replicas.get(variant)


class Slice:
    """A live slice. `width`: batches in flight at once (of the profile; 1: no elastic streams)."""

    __slots__ = ("holds", "name", "queues", "running", "width")

    def __init__(self, name: str, width: int = 1) -> None:
        self.name = name
        self.width = width
        self.holds = 0  # measurements that have the slice to themselves
        self.queues: dict[str, SliceQueue] = {}
        self.running: dict[int, RunBatch] = {}

    def stalled(self, now_us: int, stall_us: int) -> str:
        """What has run here for longer than any batch may; said once, again only after as long a time."""
        for batch in self.running.values():
            if now_us - batch.started_us >= stall_us:
                batch.started_us = now_us
                return f"a {batch.model} batch of {batch.rows} rows ran for over {stall_us / 1e6:g} s"
        return ""

    @property
    def free(self) -> bool:
        """Whether a batch may start now."""
        return self.holds == 0 and len(self.running) < self.width
