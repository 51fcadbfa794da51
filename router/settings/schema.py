"""The shape of `penstock.yaml` and of a `model.yaml`: which keys, of which type, in which range.

What needs more than one key to judge (names that must exist, ports that clash) is judged where the
values are built. Units are in the keys, so a schema number never changes its meaning.
"""

from collections.abc import Callable, Collection
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from router.settings.problems import fault, shown, unknown_name
from serving.policy.batching.catalogue import POLICIES
from serving.specs import DIVISIONS, BatchingSpec, ParameterValue
from serving.tensor import ANY, DATATYPES

TENANT_COUNT_MAX = 64
"""Tenants are a label of metrics: each multiplies their series."""

DEVICE_COUNT_MAX = 100_000
"""Devices of an entry; more are a mistake."""

FAULT = "fault"
"""The pydantic error type whose message is already a sentence of ours."""

_BATCHING = BatchingSpec()
_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S
_HOUR_MS = _HOUR_S * 1000


class Section(BaseModel):
    """A mapping with known keys. A key without a value counts as not given."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _omit_empty(cls, section: object) -> object:
        if not isinstance(section, dict):
            return section
        return {k: v for k, v in section.items() if v is not None or k not in cls.model_fields}


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError(FAULT, "{message}", {"message": message})


def _known(what: str, names: Collection[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in names:
            raise _fault(unknown_name(f"unknown {what}", name, names))
        return name

    return check


def _distinct(values: list[int] | list[str]) -> bool:
    return len(set(values)) == len(values)


def _check_cores(value: object) -> object:
    if type(value) is int and 1 <= value <= 4096:
        return value
    if isinstance(value, list) and value and all(type(core) is int and 0 <= core < 4096 for core in value):
        if _distinct(value):
            return tuple(value)
        raise _fault("a core is listed twice")
    what = "no cores" if value in (0, []) else "not a number of cores"
    raise _fault(fault(what, value, "a count (1 or more) or a list of core numbers such as [0, 1]"))


def _check_names(value: object) -> object:
    if isinstance(value, list) and value and all(type(name) is str for name in value):
        if _distinct(value):
            return value
        twice = next(name for name in value if value.count(name) > 1)
        raise _fault(f"{shown(twice)} is listed twice")
    raise _fault(fault("not a list of names", value, "a list with at least one name, such as [a, b]"))


def _check_variants(value: object) -> object:
    if value == "all":
        return []
    if isinstance(value, str):
        raise _fault(fault("not a list of variants", value, f"all, or a list such as [{value}]"))
    return _check_names(value)


def _check_shape(shape: list[int]) -> list[int]:
    if shape[:1] != [-1] or any(size < 1 and size != -1 for size in shape):
        message = "-1 (the batch) and then sizes of 1 or more, or -1 where any size is welcome"
        raise _fault(f"not a shape; got {shape}, expected {message}")
    return shape


def _check_buckets(buckets: list[int]) -> list[int]:
    if not buckets or buckets != sorted(set(buckets)) or buckets[0] < 1:
        raise _fault(f"not ascending sizes; got {buckets}, expected numbers such as [64, 128]")
    return buckets


def _check_cache(value: object) -> object:
    if value is None or isinstance(value, bool | dict):
        return value
    raise _fault(fault("not a mapping", value, "keys and values (key: value), or false to keep no answers"))


def _check_redis(value: object) -> object:
    if isinstance(value, str | dict):
        return value
    raise _fault(fault("not a server", value, "a URL such as redis://localhost, or a mapping with a url"))


def _check_profiles(value: object) -> object:
    if isinstance(value, dict) or (isinstance(value, str) and 1 <= len(value) <= 4096):
        return value
    expected = "a folder such as profiles, or a mapping with folder and remeasure"
    raise _fault(fault("not a folder", value, expected))


def _check_scalar(value: object) -> object:
    if isinstance(value, bool | str) or (isinstance(value, int | float) and abs(value) < 1 << 63):
        return value
    raise _fault(fault("not a single value", value, "true, false, a finite number or text"))


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
Text = Annotated[str, Field(min_length=1, max_length=4096)]
Names = Annotated[list[str], PlainValidator(_check_names)]
Scalar = Annotated[ParameterValue, PlainValidator(_check_scalar)]
Number = Annotated[float, Field(allow_inf_nan=False, gt=-(2**63), lt=2**63)]
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
SloMs = Annotated[float, Field(ge=0.001, le=_HOUR_MS, allow_inf_nan=False)]  # the clock counts us
Seconds = Annotated[float, Field(gt=0, le=_DAY_S, allow_inf_nan=False)]
Kilobytes = Annotated[float, Field(ge=1, le=1 << 20, allow_inf_nan=False)]
Megabytes = Annotated[float, Field(ge=0.001, le=1 << 20, allow_inf_nan=False)]


class GatewayFile(Section):
    """`penstock.yaml`. Its sections are read one by one, so that a fault in one hides none in another."""

    server: dict[str, object] = {}
    limits: dict[str, object] = {}
    slices: Annotated[list[object], Field(min_length=1)] = []
    models: Annotated[list[object], Field(min_length=1)]
    devices: list[object] = []
    tenants: Annotated[list[object], Field(max_length=TENANT_COUNT_MAX)] = []
    profiles: Annotated[object, AfterValidator(_check_profiles)] = {}
    recording: dict[str, object] | None = None
    repository: dict[str, object] | None = None
    cache: Annotated[object, AfterValidator(_check_cache)] = None


class ServerSection(Section):
    """`server:`; the defaults are those of ServerSettings."""

    name: Text | None = None
    host: Text | None = None
    rest_port: Port | None = None
    grpc_port: Port | None = None
    metrics_port: Port | None = None


class LimitsSection(Section):
    """`limits:`, one key per field of serving.specs.Limits, in units that people use."""

    body_mb: Megabytes | None = None
    header_kb: Kilobytes | None = None
    header_count: Count | None = None
    json_depth: Annotated[int, Field(ge=4, le=1000)] | None = None  # an OIP request has depth 4
    tensor_count: Count | None = None
    tensor_mb: Megabytes | None = None
    rows_per_request: Count | None = None
    queue_rows: Count | None = None
    queue_requests: Count | None = None
    held_mb: Megabytes | None = None
    connection_count: Count | None = None
    idle_connection_s: Seconds | None = None
    slow_client_s: Seconds | None = None
    write_buffer_kb: Kilobytes | None = None
    startup_s: Seconds | None = None
    stall_s: Seconds | None = None
    drain_grace_s: Annotated[float, Field(ge=0, le=_DAY_S, allow_inf_nan=False)] | None = None
    drain_s: Seconds | None = None
    sweep_s: Seconds | None = None


class RecordingSection(Section):
    """`recording:`, which is off without it; the defaults of the numbers are those of RecordingSpec."""

    folder: Text = "recordings"
    file_mb: Annotated[float, Field(ge=0.1, le=4096, allow_inf_nan=False)] | None = None
    files: Annotated[int, Field(ge=1, le=10_000)] | None = None


class RepositorySection(Section):
    """`repository:`; the defaults are those of RepositorySettings."""

    folders: Names = []
    control: bool = True


class ProfilesSection(Section):
    """`profiles:`; `remeasure`: one that is no longer right may be measured anew on idle slices."""

    folder: Text = "profiles"
    remeasure: bool = True


class RedisSection(Section):
    """`redis:` of `cache:`; the defaults are those of RedisSpec. `password_env` names an environment
    variable."""

    url: Annotated[str, Field(min_length=1)]  # nothing else: a fault would show it, password and all
    namespace: Name | None = None
    password_env: Text | None = None
    budget_ms: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] | None = None


class CacheSection(Section):
    """`cache:`; the defaults are those of CacheSpec."""

    memory_mb: Megabytes | None = None
    ttl_s: Annotated[float, Field(ge=0.001, le=_DAY_S, allow_inf_nan=False)] | None = None
    shared: bool = False
    redis: Annotated[str | dict[str, object] | None, PlainValidator(_check_redis)] = None


class SliceSection(Section):
    """An entry of `slices:`."""

    name: Name
    cores: Annotated[int | tuple[int, ...] | None, PlainValidator(_check_cores)] = None
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_mb: Megabytes | None = None


class DeviceSection(Section):
    """An entry of `devices:`; what is left out is this machine's, `divide` what goes with the kind."""

    name: Name
    kind: Name | None = None
    count: Annotated[int, Field(ge=1, le=DEVICE_COUNT_MAX)] = 1
    divide: Annotated[str, AfterValidator(_known("way to divide a device", DIVISIONS))] | None = None
    cores: Annotated[int, Field(ge=1, le=4096)] | None = None
    memory_gb: Annotated[float, Field(ge=0.001, le=1 << 20, allow_inf_nan=False)] | None = None
    price: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] = 0.0
    domain: Name | None = None


class TenantSection(Section):
    """An entry of `tenants:`; the defaults are those of TenantSpec."""

    name: Name
    weight: Annotated[float, Field(ge=0.001, le=1_000_000, allow_inf_nan=False)] = 1.0
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0


class BatchingSection(Section):
    """`batching:` of a served model; the catalogue of policies says which keys and modes go with which."""

    policy: Annotated[str, AfterValidator(_known("batching policy", tuple(POLICIES)))] = _BATCHING.policy
    mode: str = _BATCHING.mode
    admission: bool = _BATCHING.admission
    size: Count | None = None
    delay_ms: Annotated[float, Field(ge=0, le=_HOUR_MS, allow_inf_nan=False)] = 0.0
    weight: Annotated[float, Field(ge=0.001, le=1_000_000, allow_inf_nan=False)] = _BATCHING.weight


class ServedSection(Section):
    """An entry of `models:`; empty `variants` or `slices` mean all of them."""

    path: Text
    slo_ms: SloMs | None = None
    slices: Names = []
    variants: Annotated[list[str], PlainValidator(_check_variants)] = []
    default_variant: str = ""
    batching: BatchingSection = BatchingSection()
    cache: bool | None = None
    domains: Annotated[int, Field(ge=1, le=1000)] = 1


class TensorSection(Section):
    """An input or output of a model."""

    name: Text
    datatype: Annotated[str, AfterValidator(_known("datatype", (*DATATYPES, ANY)))]
    shape: Annotated[list[int], AfterValidator(_check_shape)]


class VariantSection(Section):
    """An entry of `variants:`; `deterministic` defaults to the model's."""

    name: Name
    artifact: Text | None = None
    deterministic: bool | None = None
    options: dict[str, Scalar] = {}


class AccuracySection(Section):
    """Where a build wrote what it measured: one JSON object, variant to a share in 0..1."""

    metric: Text
    file: Text


class SizeHintSection(Section):
    """`size_hint:`; bytes are counted, and of texts in Latin script each punctuation mark as several."""

    input: Text
    unit: Literal["bytes", "text"] = "bytes"
    buckets: Annotated[list[int], AfterValidator(_check_buckets)]


class ParameterSection(Section):
    """A request parameter that the model reads."""

    name: Name
    type: Annotated[str, AfterValidator(_known("type", ("bool", "int", "float", "string")))]
    default: Scalar
    minimum: Number | None = None
    maximum: Number | None = None


class ModelFile(Section):
    """`model.yaml`."""

    name: Name
    description: str = ""
    inputs: Annotated[list[TensorSection], Field(min_length=1)]
    outputs: Annotated[list[TensorSection], Field(min_length=1)]
    batch_max: Annotated[int, Field(ge=1, le=65536)]
    slo_ms: SloMs
    deterministic: bool = True
    default_variant: str
    accuracy: AccuracySection | None = None
    variants: Annotated[list[VariantSection], Field(min_length=1)]
    size_hint: SizeHintSection | None = None
    parameters: list[ParameterSection] = []
    build: Text | None = None
