"""The shape of `penstock.yaml`: which keys it has.

What needs more than one key to judge (names that must exist, ports that clash) is judged where the
values are built.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, PlainValidator

from router.settings.values.client_shm import ClientShmKey
from router.settings.values.fields import (
    DAY_S,
    HOUR_MS,
    Count,
    DeviceText,
    Fraction,
    Keys,
    Kilobytes,
    Megabytes,
    Name,
    Names,
    Number,
    PatternText,
    Port,
    Price,
    Seconds,
    ShareText,
    SloMs,
    Text,
    check_cores,
    check_names,
    known,
    refuse,
)
from router.settings.values.origins import OriginsKey
from router.settings.values.problems import fault
from router.settings.values.versions import VersionPolicy, read_policy
from serving.policy.batching.catalogue import POLICIES
from serving.values.objectives import OPTIMIZE, SCALING_POLICIES, SELECTION_POLICIES
from serving.values.rehearsal import EXACT
from serving.values.rollouts import STICKY
from serving.values.slice_specs import DIVISIONS, PROCESS_COUNT_MAX
from serving.values.specs import ISOLATE, BatchingSpec

TENANT_COUNT_MAX = 64
"""Tenants are a label of metrics: each multiplies their series."""

TIER_COUNT_MAX = 32
"""Tiers are one too, and every model has an objective for each."""

DEVICE_COUNT_MAX = 100_000
"""Devices of an entry; more are a mistake."""

SLICE_COUNT_MAX = 1024
"""Slices of an entry: each is a process."""

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
_BATCHING = BatchingSpec()


class Section(Keys, BaseModel):  # the second so that linters know it
    """A mapping with known keys."""


def _check_variants(value: object) -> object:
    if value == "all":
        return []
    if isinstance(value, str):
        raise refuse(fault("not a list of variants", value, f"all, or a list such as [{value}]"))
    return check_names(value)


def _check_cache(value: object) -> object:
    if value is None or isinstance(value, bool | dict):
        return value
    raise refuse(fault("not a mapping", value, "keys and values (key: value), or false to keep no answers"))


def _check_redis(value: object) -> object:
    if isinstance(value, str | dict):
        return value
    raise refuse(fault("not a server", value, "a URL such as redis://localhost, or a mapping with a url"))


def _check_replicas(value: object) -> object:
    if value == "auto" or isinstance(value, dict) or (type(value) is int and value >= 1):
        return value
    if type(value) is int:
        raise refuse(
            fault("no replicas", value, "1 or more; {min: 0} lets go of a model that nobody asks for")
        )
    expected = "auto, a number such as 2, or {min: 1, max: 4}"
    raise refuse(fault("not a number of replicas", value, expected))


def _check_rehearse(value: object) -> object:
    if isinstance(value, bool | dict):
        return value
    raise refuse(fault("not true or false", value, "true, or how: {noise: 0.03, seed: 1}"))


def _check_profiles(value: object) -> object:
    if isinstance(value, dict) or (isinstance(value, str) and 1 <= len(value) <= 4096):
        return value
    expected = "a folder such as profiles, or a mapping with folder and remeasure"
    raise refuse(fault("not a folder", value, expected))


class GatewayFile(Section):
    """`penstock.yaml`. Its sections are read one by one, so that a fault in one hides none in another."""

    server: dict[str, object] = {}
    admin: dict[str, object] = {}
    limits: dict[str, object] = {}
    slices: Annotated[list[object], Field(min_length=1)] = []
    models: Annotated[list[object], Field(min_length=1)]
    devices: list[object] = []
    prices: list[object] = []
    scaling: dict[str, object] = {}
    placement: dict[str, object] = {}
    mig: dict[str, object] = {}
    tenants: Annotated[list[object], Field(max_length=TENANT_COUNT_MAX)] = []
    tiers: Annotated[list[object], Field(max_length=TIER_COUNT_MAX)] = []
    profiles: Annotated[object, AfterValidator(_check_profiles)] = {}
    recording: dict[str, object] | None = None
    repository: dict[str, object] | None = None
    cache: Annotated[object, AfterValidator(_check_cache)] = None
    logging: dict[str, object] = {}
    workers: dict[str, object] = {}
    tracing: dict[str, object] | None = None
    auth: dict[str, object] | None = None
    nodes: dict[str, object] | None = None
    cells: dict[str, object] | None = None


class WorkersSection(Section):
    """`workers:`; the defaults are those of WorkersSpec. `inherit`: names of the gateway's own variables."""

    environment: dict[str, object] = {}
    inherit: Names = []
    memory_mb: Annotated[float, Field(ge=64, le=1 << 20, allow_inf_nan=False)] | None = None
    open_files: Annotated[int, Field(ge=64, le=1 << 20)] | None = None
    processes: Annotated[int, Field(ge=16, le=1 << 22)] | None = None
    spare: bool = True
    orphan_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None


class ServerSection(Section):
    """`server:`; the defaults are those of ServerSettings."""

    name: Text | None = None
    host: Text | None = None
    rest_port: Port | None = None
    grpc_port: Port | None = None
    metrics_port: Port | None = None
    triton_metrics: bool | None = None
    grpc: Literal["ngh2", "grpcio"] | None = None
    tls: dict[str, object] | None = None  # `router.settings.door.tls.TlsSection`
    client_shm: ClientShmKey = None
    forward_headers: PatternText | None = None
    cors: OriginsKey = ()


class AdminSection(Section):
    """`admin:`; the defaults are those of AdminSettings."""

    host: Text | None = None
    port: Port | None = None
    socket: Text | None = None
    hosts: Names = []
    on_inference_ports: bool = False
    feedback: bool = False


class LimitsSection(Section):
    """`limits:`, one key per field of serving.values.specs.Limits, in units that people use."""

    body_mb: Megabytes | None = None
    header_kb: Kilobytes | None = None
    header_count: Count | None = None
    json_mb: Megabytes | None = None
    json_depth: Annotated[int, Field(ge=4, le=1000)] | None = None  # an OIP request has depth 4
    inflation: Annotated[int, Field(ge=1, le=1032)] | None = None  # deflate makes no more of a byte
    element_count: Count | None = None
    bytes_count: Count | None = None
    tensor_count: Count | None = None
    tensor_mb: Megabytes | None = None
    rows_per_request: Count | None = None
    queue_rows: Count | None = None
    queue_requests: Count | None = None
    held_mb: Megabytes | None = None
    connection_count: Count | None = None
    reserved_connection_count: Annotated[int, Field(ge=0, le=1024)] | None = None  # 0: no reserve
    idle_connection_s: Seconds | None = None
    slow_client_s: Seconds | None = None
    write_buffer_kb: Kilobytes | None = None
    grpc_call_count: Count | None = None
    grpc_stream_count: Count | None = None
    grpc_watch_count: Count | None = None
    infer_stream_count: Count | None = None
    infer_stream_requests: Count | None = None
    infer_stream_mb: Megabytes | None = None
    grpc_age_s: Annotated[float, Field(ge=0, le=DAY_S, allow_inf_nan=False)] | None = None
    startup_s: Seconds | None = None
    stall_s: Seconds | None = None
    drain_grace_s: Annotated[float, Field(ge=0, le=DAY_S, allow_inf_nan=False)] | None = None
    drain_s: Seconds | None = None
    sweep_s: Seconds | None = None


class RecordingSection(Section):
    """`recording:`, which is off without it; the defaults of the numbers are those of RecordingSpec."""

    folder: Text = "recordings"
    file_mb: Annotated[float, Field(ge=0.1, le=4096, allow_inf_nan=False)] | None = None
    files: Annotated[int, Field(ge=1, le=10_000)] | None = None


class LoggingSection(Section):
    """`logging:`; the defaults are those of LogSettings."""

    level: Annotated[str, AfterValidator(known("log level", LOG_LEVELS))] = "info"
    format: Annotated[str, AfterValidator(known("log format", LOG_FORMATS))] = "text"
    access: bool = False


def _check_collector(value: str) -> str:
    found = urlsplit(value)
    if found.scheme in ("http", "https") and found.hostname:
        return value
    raise refuse(fault("not a URL", value, "the collector's, such as http://localhost:4318"))


class TracingSection(Section):
    """`tracing:`, which is off without it; the defaults are those of TracingSettings."""

    otlp: Annotated[Text, AfterValidator(_check_collector)] | None = None
    sample: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    missed: bool | None = None
    service: Text | None = None
    file: Text | None = None


class AuthSection(Section):
    """`auth:`; without it no caller needs a key."""

    keys: Text
    metrics: bool = False


class RepositorySection(Section):
    """`repository:`; the defaults are those of RepositorySettings."""

    folders: Names = []
    control: bool = True


class ProfilesSection(Section):
    """`profiles:`; `remeasure`: one that is no longer right may be measured anew on idle slices."""

    folder: Text = "profiles"
    remeasure: bool = True


class RedisSection(Section):
    """`redis:` of `cache:` or `cells:`, with defaults of RedisSpec. `password_env`, `key_env`: variables."""

    url: Annotated[str, Field(min_length=1)]  # nothing else: a fault would show it, password and all
    namespace: Name | None = None
    password_env: Text | None = None
    key_env: Text | None = None
    budget_ms: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] | None = None


class CacheSection(Section):
    """`cache:`, which is off without it; the defaults are those of CacheSpec."""

    memory_mb: Megabytes | None = None
    ttl_s: Annotated[float, Field(ge=0.001, le=DAY_S, allow_inf_nan=False)] | None = None
    shared: bool = False
    redis: Annotated[str | dict[str, object] | None, PlainValidator(_check_redis)] = None


class SliceSection(Section):
    """An entry of `slices:`. `device`, `share`: of a GPU; `kind`, `node_count`: of nodes."""

    name: Name
    device: DeviceText | None = None
    share: ShareText | None = None
    processes: Annotated[int, Field(ge=1, le=PROCESS_COUNT_MAX)] = 1
    count: Annotated[int, Field(ge=1, le=SLICE_COUNT_MAX)] | None = None
    cores: Annotated[int | tuple[int, ...] | None, PlainValidator(check_cores)] = None
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_mb: Megabytes | None = None
    python: Text | None = None
    node: Name | None = None
    node_count: Annotated[int, Field(ge=1, le=SLICE_COUNT_MAX)] | None = None
    kind: Name | None = None
    price: Price | None = None
    spot: bool = False


class ScalingSection(Section):
    """`scaling:`; the defaults are those of ScalingSpec."""

    policy: Annotated[str, AfterValidator(known("scaling policy", SCALING_POLICIES))] | None = None
    target: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    cost_max_per_hour: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = None
    fair: bool = False


class ReplicasSection(Section):
    """`replicas:` of a served model, where it is a mapping; the defaults are those of ReplicaSpec."""

    min: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    max: Count | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0


class DeviceSection(Section):
    """An entry of `devices:`; what is left out is this machine's, or follows from the kind."""

    name: Name
    kind: Name | None = None
    count: Annotated[int, Field(ge=1, le=DEVICE_COUNT_MAX)] = 1
    divide: Annotated[str, AfterValidator(known("way to divide a device", DIVISIONS))] | None = None
    cores: Annotated[int, Field(ge=1, le=4096)] | None = None
    memory_gb: Annotated[float, Field(ge=0.001, le=1 << 20, allow_inf_nan=False)] | None = None
    price: Price | None = None
    domain: Name | None = None
    rehearse: Annotated[bool | dict[str, object], PlainValidator(_check_rehearse)] = False


class RehearseSection(Section):
    """`rehearse:` of a device, where it is a mapping; the defaults are those of RehearsalSpec."""

    noise: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)] = EXACT.noise
    outliers: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = EXACT.outliers
    interference: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = EXACT.interference
    crash_every_s: Seconds | None = None
    stall_every_s: Seconds | None = None
    stall_s: Seconds = EXACT.stall_s
    disturb: Text | None = None
    seed: Annotated[int, Field(ge=0, le=1 << 53)] = EXACT.seed
    beside_real: bool = False


class BatchingSection(Section):
    """`batching:` of a served model; the catalogue of policies says which keys and modes go with which."""

    policy: Annotated[str, AfterValidator(known("batching policy", tuple(POLICIES)))] = _BATCHING.policy
    mode: str = _BATCHING.mode
    admission: bool = _BATCHING.admission
    size: Count | None = None
    delay_ms: Annotated[float, Field(ge=0, le=HOUR_MS, allow_inf_nan=False)] = 0.0
    weight: Annotated[float, Field(ge=0.001, le=1_000_000, allow_inf_nan=False)] = _BATCHING.weight


class NeedsSection(Section):
    """What is promised: of a model, or in a tier. The defaults are those of Needs."""

    slo_ms: SloMs | None = None
    slo_rows: Count | None = None
    percentile: Annotated[float, Field(ge=50, le=99.999, allow_inf_nan=False)] | None = None
    accuracy_min: Fraction | None = None
    tolerance: Fraction | None = None
    cost_max: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = None
    optimize: Annotated[str, AfterValidator(known("aim", OPTIMIZE))] | None = None


class TierSection(NeedsSection):
    """An entry of `tiers:`."""

    name: Name


class GuardSection(Section):
    """What each value of an output has to be; the defaults are those of Guard."""

    finite: bool = False
    min: Number | None = None
    max: Number | None = None


class SelectionSection(Section):
    """`selection:` of a served model; the defaults are those of SelectionSpec."""

    policy: Annotated[str, AfterValidator(known("way to select", SELECTION_POLICIES))]
    members: Names
    output: Text | None = None
    keep_s: Annotated[float, Field(ge=1, le=DAY_S, allow_inf_nan=False)] | None = None


class RolloutSection(Section):
    """`rollout:` of a model; the defaults are those of RolloutSpec."""

    of: Text | None = None
    steps: list[Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]] = []
    hold_s: Annotated[float, Field(ge=1, le=604_800, allow_inf_nan=False)] | None = None
    sticky: Annotated[str, AfterValidator(known("key", STICKY))] = STICKY[0]
    margins: dict[str, object] = {}
    shadow: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = None


class ServedSection(NeedsSection):
    """An entry of `models:`; empty `variants` or `slices` mean all of them."""

    path: Text
    slices: Names = []
    variants: Annotated[list[str], PlainValidator(_check_variants)] = []
    default_variant: str = ""
    batching: BatchingSection = BatchingSection()
    cache: bool | None = None
    required: bool = False
    isolate: Annotated[str, AfterValidator(known("isolation", ISOLATE))] = ISOLATE[0]
    domains: Annotated[int, Field(ge=1, le=1000)] = 1
    tiers: dict[str, object] = {}  # of NeedsSection, each read by itself
    selection: SelectionSection | None = None
    replicas: Annotated[int | str | dict[str, object] | None, PlainValidator(_check_replicas)] = None
    rollout: RolloutSection | None = None
    version_policy: Annotated[VersionPolicy | None, PlainValidator(read_policy)] = None
    guards: dict[str, object] = {}  # by output, of GuardSection, each read by itself
