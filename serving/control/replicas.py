"""Control's record of a slice and of the replicas wanted on it."""

from dataclasses import dataclass, field
from enum import StrEnum

from serving.policy.freshness import Freshness
from serving.profile.curve import Profile
from serving.profile.sweep import Sweep
from serving.specs import SliceSpec
from serving.vocabulary import NEVER_US


class WorkerStatus(StrEnum):
    """Where a slice's worker process stands."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to restart"


class ReplicaStatus(StrEnum):
    """Where a replica stands; only READY ones are routed."""

    ABSENT = "absent"
    LOADING = "loading"
    MEASURING = "measuring"
    READY = "ready"
    FAILED = "failed"


@dataclass(slots=True)
class ReplicaRecord:
    """One variant on one slice. `profile`: stored or measured; None before the first sweep is done."""

    id: int
    model: str
    variant: str
    sweep: Sweep
    profile: Profile | None
    device_kind: str
    status: ReplicaStatus = ReplicaStatus.ABSENT
    reason: str = ""
    load_us: int = 0
    memory_bytes: int = 0
    failures: int = 0
    retry_us: int = NEVER_US
    unsaved: int = 0  # measurements since the profile was last stored
    freshness: Freshness = Freshness.FRESH
    renew_us: int = 0  # before then the profile is not measured anew


@dataclass(slots=True)
class SliceRecord:
    """One slice and its worker. `retry_us`: when a lost worker is started again."""

    spec: SliceSpec
    replicas: dict[int, ReplicaRecord] = field(default_factory=dict)
    status: WorkerStatus = WorkerStatus.STOPPED
    reason: str = ""
    since_us: int = 0  # of the status
    heard_us: int = 0  # when the worker last answered, or was told to start, load or measure
    retry_us: int = NEVER_US
    failures: int = 0
    restarts: int = 0
    measuring: int = 0  # the replica being measured, 0: none
    idle_ticks: int = 0
