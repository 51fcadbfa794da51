"""What `GET /v2/status` says of a running gateway: `penstock status --json` prints it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict

from router.observing.cache_status import CacheStatus
from router.observing.cells.body import CellsBody
from router.observing.isolation import IsolationStatus
from router.observing.rates_status import RateStatus
from router.observing.rollout_status import RolloutStatus
from router.observing.scaled_status import ScaledStatus
from router.observing.sequence_status import SequenceStatus
from router.observing.status.instances import MigStatus
from serving.policy.device_health import GpuReading
from serving.ports import Serving

if TYPE_CHECKING:  # a reader of JSON needs no prometheus_client
    from router.observing.telemetry import Counters, TenantCounters


class ReplicaBody(TypedDict):
    """A variant on a slice; `state` is the control plane's word ("ready", "loading", ...). `profile`: what
    its batches say of its profile ("fresh", "stale", "interfered"), `profile_ratio` what they took over it (1
    where it is fresh); `renewing`: it is being measured anew."""

    model: str
    variant: str
    slice: str
    state: str
    profile: str
    profile_ratio: float
    renewing: bool
    reason: NotRequired[str]  # why it is not there, where that is known


class SliceStatus(TypedDict):
    """A slice and its worker process; `pid` is None while there is none. `notice`: that it was taken away,
    or will be, in words, where anybody has said so. `rehearsed`: there, and true, where its answers are made
    up. `busy_us`: the time that it has computed since the start."""

    name: str
    state: str
    pid: int | None
    restarts: int
    notice: NotRequired[str]
    rehearsed: NotRequired[bool]
    busy_us: NotRequired[int]


class ModelStatus(TypedDict):
    """A served model: what answers, where, and what happened to its requests since the start."""

    name: str
    ready: bool
    slo_us: int
    variants: list[str]
    answering_variant: str
    replicas: list[ReplicaBody]
    queue_rows: int
    counters: "Counters"
    objective: NotRequired[float]  # the share of requests (0..1) that is promised to be in time
    scaling: NotRequired[ScaledStatus]  # where its replicas follow its load
    cache: NotRequired[CacheStatus]  # where its answers are kept, or cannot be
    isolation: NotRequired[IsolationStatus]
    sequences: NotRequired[SequenceStatus]
    version: NotRequired[int]  # of a model with versions


class MoveStatus(TypedDict):
    """The desired state, and how far it is reached (`serving.control.rollouts.rollout.Progress`). `refused`:
    why the latest edit of penstock.yaml is not in force."""

    state: str
    step: int
    steps: int
    reasons: list[str]
    waiting: list[str]
    refused: list[str]


class ProposalStatus(TypedDict):
    """Another placement, as control has asked for one.

    - `reason`: why control asked.
    - `state`: "planning", "proposed", "applied", "given up" or "none".
    - `sentence`: why the plan is better, or why there is none.
    - `slices`: the models on each planned slice.
    - `attainment`: by model, the predicted share of requests in time.
    - `refused`: the promises that the plan breaks.
    - `command`: applies the plan; "" if nothing does.
    """

    reason: str
    state: str
    sentence: str
    slices: dict[str, list[str]]
    attainment: dict[str, float]
    refused: list[str]
    command: str


class EdgeStatus(TypedDict):
    """A port of the gateway: whether it listens, and how often it ended by itself and was started again."""

    name: str
    listening: bool
    restarts: int


class TlsStatus(TypedDict):
    """The encryption of all ports. `until`: when the certificate ends; `fault`: why the latest edition of its
    files is not in force, "" where it is; `handshakes`: how many were done; `failed`: how many ended before,
    by why. With the grpcio server, handshakes on the gRPC port are not counted."""

    until: str
    renewals: int
    fault: str
    handshakes: int
    failed: dict[str, int]


class GpuStatus(TypedDict):
    """A GPU that slices use. `slices`: the share of each. `state`: "ok", "throttled" or "lost"; `reason`: why
    its clocks are lowered or it is lost. What its driver does not tell is None. A rehearsed GPU has the name
    of its kind, and as `uuid` the name of its device."""

    uuid: str
    name: str
    slices: dict[str, str]
    memory_bytes: int | None
    memory_used_bytes: int | None
    used_percent: int | None
    temperature_c: int | None
    power_w: float | None
    state: str
    reason: str
    mig: NotRequired[MigStatus]  # where it has MIG instances for slices
    rehearsed: NotRequired[bool]  # there, and true, where nothing of it is real


class NodeBody(TypedDict):
    """A node: another machine with slices. `state`: "joined", "lost", or "absent" if it is not there, and not
    `needed`: the present load takes no slice of it. `reason`: why it is not there.
    `joined_s`: for how long it has been there. `trip_us`: the shortest way there and back of late. `slices`:
    those on it that were ever wanted."""

    name: str
    state: str
    needed: bool
    reason: str
    address: str
    kind: str
    cores: int
    gpus: list[str]
    joined_s: float
    trip_us: int
    slices: list[str]


class Status(TypedDict):
    """The body of `GET /v2/status`."""

    ready: bool
    uptime_s: float
    open_requests: int  # accepted, not yet answered
    models: list[ModelStatus]
    slices: list[SliceStatus]
    tenants: NotRequired[dict[str, "TenantCounters"]]
    move: NotRequired[MoveStatus]
    edges: NotRequired[list[EdgeStatus]]
    rates: NotRequired[list[RateStatus]]  # of tenants with limits
    tls: NotRequired[TlsStatus]  # where ports are encrypted
    gpus: NotRequired[list[GpuStatus]]  # where slices use any
    nodes: NotRequired[list[NodeBody]]  # where any may join
    cells: NotRequired[CellsBody]  # where this gateway is one of several
    rollouts: NotRequired[list[RolloutStatus]]  # where a model has a candidate
    shifts: NotRequired[dict[str, dict[str, float]]]  # by model and kind, where requests can be compared
    proposal: NotRequired[ProposalStatus]  # where control has asked for another plan


def gpu_status(gpu: GpuReading, slices: Mapping[str, str], cordoned: Mapping[str, str]) -> GpuStatus:
    """Return the status entry of a GPU. `cordoned`: why slices may not use a GPU, by UUID."""
    lost, hot = cordoned.get(gpu.uuid, ""), ", ".join(gpu.throttled)
    return {
        "uuid": gpu.uuid,
        "name": gpu.name,
        "slices": dict(slices),
        "memory_bytes": gpu.memory_bytes,
        "memory_used_bytes": gpu.memory_used_bytes,
        "used_percent": gpu.used_percent,
        "temperature_c": gpu.temperature_c,
        "power_w": gpu.power_w,
        "state": "lost" if lost else "throttled" if hot else "ok",
        "reason": lost or hot,
    }


def describe(
    serving: Serving,
    counters: "Mapping[str, Counters]",
    queue_rows: Mapping[str, int],
    replicas: Sequence[ReplicaBody],
    slices: Sequence[SliceStatus],
    uptime_s: float,
) -> Status:
    """Return the status of this moment. `counters` is all of `Telemetry.snapshot`; a model without an entry
    there has come since."""
    models: list[ModelStatus] = [
        {
            "name": name,
            "ready": serving.model_ready(name),
            "slo_us": model.slo_us,
            "variants": list(model.variants),
            "answering_variant": model.answering_variant,
            "replicas": [replica for replica in replicas if replica["model"] == name],
            "queue_rows": queue_rows.get(name, 0),
            "counters": counters[name],
        }
        for name, model in serving.models.items()
        if name in counters
    ]
    return {
        "ready": serving.ready,
        "uptime_s": uptime_s,
        "open_requests": serving.open_requests,
        "models": models,
        "slices": list(slices),
    }
