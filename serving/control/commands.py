"""What control asks of its driver, carried out after the event's call has returned."""

from dataclasses import dataclass

from serving.profile.curve import Profile
from serving.profile.sweep import Measurement


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start the slice's worker process."""

    slice: str


@dataclass(frozen=True, slots=True)
class EndWorker:
    """End the slice's worker process at once; its loss comes back as an event."""

    slice: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadReplica:
    """Load and warm a variant on the slice."""

    slice: str
    replica: int
    model: str
    variant: str


@dataclass(frozen=True, slots=True)
class Measure:
    """Time batches of a loaded replica; the slice takes no other work meanwhile."""

    slice: str
    replica: int
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Route:
    """Let the scheduler use a replica, with what is known of its latency."""

    slice: str
    replica: int
    model: str
    variant: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class Unroute:
    """Tell the scheduler that one replica is gone from a slice."""

    slice: str
    model: str
    variant: str
    reason: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Tell the scheduler that the slice is gone."""

    slice: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeepProfile:
    """Store what was measured, for the next start."""

    profile: Profile


Command = StartWorker | EndWorker | LoadReplica | Measure | Route | Unroute | Withdraw | KeepProfile
