"""What control asks of its driver, carried out after the event's call has returned."""

from dataclasses import dataclass

from serving.policy.scaling.task import ScalingTask
from serving.profile.curve import Profile
from serving.profile.sweep import Measurement
from serving.specs import ModelSpec, ServedModel


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
class StopWorker:
    """Let the slice's worker finish what it has and exit; its loss comes back as an event."""

    slice: str


@dataclass(frozen=True, slots=True)
class LoadReplica:
    """Load and warm a variant on the slice, from the files of that `revision`."""

    slice: str
    replica: int
    model: str
    variant: str
    spec: ModelSpec
    revision: str = ""


@dataclass(frozen=True, slots=True)
class UnloadReplica:
    """Give back what a replica holds, once the batches sent before have run; that comes back as an event."""

    slice: str
    replica: int


@dataclass(frozen=True, slots=True)
class Measure:
    """Time batches of a loaded replica; the slice takes no other work meanwhile."""

    slice: str
    replica: int
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Route:
    """Let the scheduler use a replica, with what is known of its latency. Another of the same variant there
    is replaced in that instant; its batches still come back."""

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
    """Tell the scheduler that the slice is gone. `blamed`: what it computed has ended it, as far as can be
    told."""

    slice: str
    reason: str
    blamed: bool = False


@dataclass(frozen=True, slots=True)
class KeepProfile:
    """Store what was measured, for the next start."""

    profile: Profile


@dataclass(frozen=True, slots=True)
class ServeModel:
    """Take requests for a model that is new, or serve a known one as it is said now."""

    model: ServedModel


@dataclass(frozen=True, slots=True)
class RetireModel:
    """Take no more requests for a model; `model_retired` follows once all accepted ones are answered."""

    model: str


@dataclass(frozen=True, slots=True)
class ForgetModel:
    """Nothing of a retired model is loaded any more."""

    model: str


@dataclass(frozen=True, slots=True)
class Cold:
    """A variant is on no slice, and is loaded within `load_us` when it is asked for; NEVER_US: it is not.
    `reason`: why it cannot be before something changes, "" where that may be over at any moment."""

    model: str
    variant: str
    load_us: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Expect:
    """A variant is being loaded and will be ready about then."""

    model: str
    variant: str
    ready_us: int


@dataclass(frozen=True, slots=True)
class Replan:
    """What is wanted cannot be: another plan would help. The simulator makes one, which comes back as `want`.
    A live gateway only logs the reason: an operator asks for the plan (`penstock place --apply`)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Isolate:
    """A model gets worker processes of its own from now on: say so, and the reason. Others do it."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class Look:
    """Tell control what models were asked and how they fared: `Control.seen` with the counters of now."""


@dataclass(frozen=True, slots=True)
class FindCapacity:
    """Simulate what n replicas of a variant carry, on slices of a `kind` where it takes what its profile
    says; it comes back as `Control.capacity_found`."""

    model: ServedModel
    variant: str
    kind: str
    profile: Profile
    most: int


@dataclass(frozen=True, slots=True)
class SolveScaling:
    """Make the slow plan; it comes back as `Control.scaling_planned`."""

    task: ScalingTask


Command = (
    StartWorker | EndWorker | StopWorker
    | LoadReplica | UnloadReplica | Measure | Route | Unroute | Withdraw | KeepProfile
    | ServeModel | RetireModel | ForgetModel | Cold | Expect | Replan | Isolate
    | Look | FindCapacity | SolveScaling
)  # fmt: skip
