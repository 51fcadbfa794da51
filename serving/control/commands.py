"""The controller's commands to its driver, which carries them out after the event's call has returned."""

from dataclasses import dataclass

from serving.policy.scaling.slow.task import ScalingTask
from serving.profile.curve import Profile
from serving.profile.sweeping.sweep import Measurement
from serving.values.specs import ModelSpec, ServedModel


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
    """Let the slice's worker finish its work and exit; its loss comes back as an event."""

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
    """Free a replica's memory once the batches sent before have run; that comes back as an event."""

    slice: str
    replica: int


@dataclass(frozen=True, slots=True)
class Measure:
    """Time batches of a loaded replica; the slice does no other work in that time."""

    slice: str
    replica: int
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Route:
    """Let the scheduler use a replica, with its profile.

    If the slice has another replica of the variant, the new one replaces it at that instant. The old one's
    batches still come back.
    """

    slice: str
    replica: int
    model: str
    variant: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class Unroute:
    """Tell the scheduler that a slice no longer has one replica."""

    slice: str
    model: str
    variant: str
    reason: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Tell the scheduler that the slice is gone. `blamed`: the work on the slice probably ended it."""

    slice: str
    reason: str
    blamed: bool = False


@dataclass(frozen=True, slots=True)
class KeepProfile:
    """Store a measured profile, for the next start."""

    profile: Profile


@dataclass(frozen=True, slots=True)
class ServeModel:
    """Accept requests for a new model, or serve a known one with its new settings."""

    model: ServedModel


@dataclass(frozen=True, slots=True)
class RetireModel:
    """Accept no more requests for a model; `model_retired` follows once all accepted ones are answered."""

    model: str


@dataclass(frozen=True, slots=True)
class ForgetModel:
    """Forget a retired model: no replica of it is loaded any more."""

    model: str


@dataclass(frozen=True, slots=True)
class Cold:
    """Tell the scheduler that a variant is on no slice, and loads within `load_us` of a request.

    NEVER_US: it cannot be loaded. `reason`: why not before something changes; "" if that may end at any
    moment.
    """

    model: str
    variant: str
    load_us: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Expect:
    """Tell the scheduler that a loading variant will be ready at about `ready_us`."""

    model: str
    variant: str
    ready_us: int


@dataclass(frozen=True, slots=True)
class Replan:
    """Ask for another plan, because the desired state cannot be reached.

    The plan comes back as `want`. A live gateway shows it first, unless `placement: {replan: apply}` is set.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Isolate:
    """Report that a model gets own processes from now on, and why. Other commands start them."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class Look:
    """Call `Control.seen` with the current counters: the models' requests, and how they ended."""


@dataclass(frozen=True, slots=True)
class FindCapacity:
    """Simulate the load that up to `most` replicas of a variant carry, for `Control.capacity_found`.

    The simulated slices are of `kind`, and batches take what `profile` says.
    """

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
