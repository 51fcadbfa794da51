"""The controller's record of a slice and of the replicas on it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from serving.policy.estimates.freshness import Freshness
from serving.profile.curve import Profile
from serving.profile.sweeping.sweep import Sweep
from serving.values.slice_specs import SliceSpec, own_process
from serving.values.specs import ServedModel
from serving.values.vocabulary import NEVER_US


class WorkerStatus(StrEnum):
    """The status of a slice's worker process."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to restart"
    STOPPING = "stopping"
    LOST = "lost with its device"


class ReplicaStatus(StrEnum):
    """The status of a replica; only READY ones get batches."""

    ABSENT = "absent"
    LOADING = "loading"
    MEASURING = "measuring"
    STANDING = "standing by"
    READY = "ready"
    FAILED = "failed"
    UNLOADING = "unloading"


LOADED = (ReplicaStatus.READY, ReplicaStatus.STANDING, ReplicaStatus.MEASURING)
"""The statuses of a replica that holds memory and could take batches."""

Key = tuple[str, str, str]
"""Model, variant, and the revision of the model's files."""


@dataclass(slots=True)
class ReplicaRecord:
    """One variant of a model on one slice.

    `served`: the model as it was desired. `profile`: stored or measured; None until the first sweep is done.
    """

    id: int
    served: ServedModel
    variant: str
    sweep: Sweep
    profile: Profile | None
    device_kind: str
    status: ReplicaStatus = ReplicaStatus.ABSENT
    reason: str = ""
    load_us: int = 0
    load_order: int = 0  # among its worker's loads; 0: the worker has answered all loads of it
    loaded_us: int = 0  # when its last load ended
    memory_bytes: int = 0
    failures: int = 0
    retry_us: int = NEVER_US
    unsaved: int = 0  # measurements since the profile was last stored
    freshness: Freshness = Freshness.FRESH
    renew_us: int = 0  # until then the profile is not measured again
    waits_for: str = ""  # the process that loads it first

    @property
    def model(self) -> str:
        """The model's name."""
        return self.served.name

    @property
    def key(self) -> Key:
        """The key of the replica."""
        return self.served.name, self.variant, self.served.revision


START_US = 1_000_000
"""The assumed time of a worker's first start; for a later one, the time of the last start."""


@dataclass(slots=True)
class SliceRecord:
    """One slice and its worker. `retry_us`: when a lost worker is started again. `number`: its place in the
    order in which slices came."""

    spec: SliceSpec
    replicas: dict[int, ReplicaRecord] = field(default_factory=dict)
    status: WorkerStatus = WorkerStatus.STOPPED
    reason: str = ""
    since_us: int = 0  # of the status
    start_us: int = START_US  # the time of its last start
    heard_us: int = 0  # when the worker last answered, or got an order to start, load or measure
    retry_us: int = NEVER_US
    failures: int = 0  # of the worker, since it last lived for HEALTHY_US
    stumbles: int = 0  # failures since it last lived for ANSWERED_US; they set the wait before a start
    stuck: bool = False  # the controller ends it because it holds a batch for too long
    restarts: int = 0
    measuring: int = 0  # the replica being measured, 0: none
    load_count: int = 0  # orders for loads so far
    loading_us: int = 0  # since when `oldest_load` is the oldest
    idle_ticks: int = 0
    number: int = 0

    @property
    def loading(self) -> int:
        """The replica that is loading, 0 for none. Replicas load one after the other, in this order."""
        return next((each.id for each in self.replicas.values() if each.status is ReplicaStatus.LOADING), 0)

    @property
    def oldest_load(self) -> ReplicaRecord | None:
        """The first of the loads that the worker has not answered, also of a replica that goes again.

        The worker begins its loads in this order; a slow one lets the next begin beside it.
        """
        there = (each for each in self.replicas.values() if each.load_order)
        return min(there, key=lambda each: each.load_order, default=None)

    def begin_load(self, replica: ReplicaRecord, now_us: int) -> None:
        """Note that the worker got the order for a load."""
        if self.oldest_load is None:
            self.loading_us = now_us
        self.load_count += 1
        replica.load_order = self.load_count

    def end_load(self, replica: ReplicaRecord, now_us: int) -> None:
        """Note that the worker has answered a load, if one was under way."""
        if replica is self.oldest_load:
            self.loading_us = now_us
        replica.load_order = 0

    def by_key(self) -> dict[Key, ReplicaRecord]:
        """Return the replicas by key, of any status."""
        return {each.key: each for each in self.replicas.values()}


def on_slice(
    slices: Mapping[str, SliceRecord], slice_name: str, model: str
) -> Iterator[tuple[SliceRecord, ReplicaRecord]]:
    """Yield a model's replicas on a slice, in the slice's shared worker and in the model's own process."""
    for name in (slice_name, own_process(slice_name, model)):
        if (record := slices.get(name)) is not None:
            yield from ((record, each) for each in record.replicas.values() if each.model == model)


def why_absent(record: SliceRecord, replica: ReplicaRecord) -> str:
    """Return why a replica is not loaded on its slice; "" if it is loaded, or the reason is unknown."""
    if replica.status in LOADED:
        return ""
    if replica.reason:
        return replica.reason
    if record.reason and record.status is WorkerStatus.LOST:
        return f"{record.spec.domain} is lost: {record.reason}"
    if record.reason and record.status is WorkerStatus.WAITING:
        return f"the worker of slice {record.spec.name} {record.reason}"
    return f"it waits for its first load on {replica.waits_for}" if replica.waits_for else ""
