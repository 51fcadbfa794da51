"""What is asked of the gateway, as frozen values: models, variants, slices, limits.

Files become these values once, at start (`router/settings/`); nothing below reads a file for them.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

from serving.objectives import Needs, Objective, ReplicaSpec, SelectionSpec, ranked, resolve

ParameterValue = bool | int | float | str
Parameters = tuple[tuple[str, ParameterValue], ...]
"""Request parameters that reach the model: sorted by name, hashable; equal ones may share a batch."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What each value of an output has to be: `finite`, at least `least`, at most `most`; NaN is in no
    range."""

    finite: bool = False
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        bounds = (("at least", self.least), ("at most", self.most))
        stated = [f"{how} {bound:.10g}" for how, bound in bounds if bound is not None]
        return ", ".join([*(("finite",) if self.finite else ()), *stated])

    def takes(self, value: float) -> bool:
        """Whether the value may be answered."""
        if self.finite and not isfinite(value):
            return False
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output: OIP datatype (or `serving.tensor.ANY`) and shape, -1 where free.

    The first dimension is the batch dimension and always -1. `guard`: what an output's values have to be,
    where penstock.yaml says so.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    guard: Guard | None = None


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """One way to compute a model. `artifact` is what its code loads; accuracy is measured or None.

    `deterministic`: the same question has the same answer, but for rounding in the datatype that it computes
    in. `build`: a digest of what decides its answers, "" where none are kept. `artifact_bytes`: of all files
    of the artifact, 0 where that is not known.
    """

    name: str
    artifact: Path | None
    options: tuple[tuple[str, ParameterValue], ...] = ()
    accuracy: float | None = None
    deterministic: bool = False
    build: str = ""
    artifact_bytes: int = 0


SIZE_BITS = 5
"""Significant bits of a size that decisions see: steps of 3 to 6 %, sixteen an octave. What is kept by size,
latency tables above all, so stays small, whatever clients send."""


def stepped(size: int) -> int:
    """The next size that decisions see: at least as large."""
    shift = max(size.bit_length() - SIZE_BITS, 0)
    return -(-size >> shift) << shift


@dataclass(frozen=True, slots=True)
class SizeHint:
    """A row's cost hint that the edge can compute: the size of `input`'s element in `unit`.

    "bytes" counts them; "text" estimates tokens: each punctuation mark counts for MARK_BYTES (router).
    `buckets` are ascending upper bounds; a row belongs to the first that holds it, a longer row to
    the last (the model truncates it). Requests share a batch only within a bucket; what a batch takes
    follows from the size of its largest row.
    """

    input: str
    buckets: tuple[int, ...]
    unit: str = "bytes"

    def bucket(self, size: int) -> int:
        """The upper bound of the bucket that a row of this size belongs to."""
        place = bisect_left(self.buckets, size)
        return self.buckets[min(place, len(self.buckets) - 1)]

    def place(self, size: int) -> tuple[int, int]:
        """(the size that decisions see, its bucket) of a row of this size."""
        bucket = self.bucket(size)
        return min(stepped(min(size, bucket)), bucket), bucket


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A request parameter that the model reads (`type`: "bool", "int", "float" or "string").

    `time_unit`: its value is a time that a batch takes, in this unit, of TIME_UNITS; "" where it is none.
    `bounded_by`: the key of the settings that has lowered `maximum`, "" where it is the model's own.
    """

    name: str
    type: str
    default: ParameterValue
    minimum: float | None = None
    maximum: float | None = None
    time_unit: str = ""
    bounded_by: str = ""


TIME_UNITS: Mapping[str, int] = MappingProxyType({"us": 1, "ms": 1_000, "s": 1_000_000})
"""Microseconds of each."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What variants said of rows that none was trained on: `labels`, and of each variant the class that it
    named, by row. Joint accuracies are counted here, as the errors of variants are never independent."""

    labels: tuple[int, ...]
    predictions: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model folder (`models/<name>/model.yaml`) together with what its build measured. `slo_us`: 0 where
    only penstock.yaml says it."""

    name: str
    folder: Path
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    variants: tuple[VariantSpec, ...]
    default_variant: str
    slo_us: int
    batch_max: int
    accuracy_metric: str = ""
    size_hint: SizeHint | None = None
    parameters: tuple[ParameterSpec, ...] = ()
    description: str = ""
    validation: Validation | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size buckets that its rows fall into, ascending; (0,) where it has no hint."""
        return self.size_hint.buckets if self.size_hint else (0,)

    def variant(self, name: str) -> VariantSpec:
        """The variant of that name; KeyError where there is none."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise KeyError(name)


def guards_of(spec: ModelSpec) -> dict[str, Guard]:
    """The guards of a model's outputs, by output; empty where it has none."""
    return {output.name: output.guard for output in spec.outputs if output.guard is not None}


@dataclass(frozen=True, slots=True)
class BatchingSpec:
    """Which batching policy a model's queue follows, with that policy's own knobs.

    The catalogue (`serving/policy/batching/catalogue.py`) says which knobs mean something to which policy.
    `size`: rows of a batch, None for the largest that the model and its SLO allow; `delay_us`: the longest
    wait for more of them; `mode`: "" for the policy's default; `admission`: overload turns requests away at
    arrival, else all wait for their chance; `guard_us`: how late wake-ups and answers may be (until that has
    been measured), None for the policy's default; `weight`: the model's share of a slice's time.
    """

    policy: str = "slo"
    size: int | None = None
    delay_us: int = 0
    guard_us: int | None = None
    mode: str = ""
    admission: bool = True
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as this gateway serves it: its spec, SLO, resident variants and slices.

    `needs`: what is promised of it; `tiers`: what is promised otherwise, to whom asks for a tier. `own` and
    `by_tier` are these as it can meet them. `replicas`: how many follow its load; None: one on each slice.
    `required`: the gateway is not ready without it, though it never was there. `isolate`: whether it has a
    worker process of its own on its slices, of ISOLATE.
    """

    spec: ModelSpec
    slo_us: int
    variants: tuple[str, ...]
    slices: tuple[str, ...]
    batching: BatchingSpec = field(default_factory=BatchingSpec)
    default_variant: str = ""  # "" takes the spec's
    cache: bool = False  # the answers of deterministic variants may be kept
    domains_min: int = 1  # a placement puts its replicas into at least so many failure domains
    revision: str = ""  # what its files are now: those of another are loaded anew
    needs: Needs = field(default_factory=Needs)
    tiers: tuple[Needs, ...] = ()
    selection: SelectionSpec | None = None
    replicas: ReplicaSpec | None = None
    required: bool = False
    isolate: str = "auto"
    name: str = field(init=False)  # the spec's; a field, for it is read several times a request
    own: Objective = field(init=False, compare=False, repr=False)
    by_tier: dict[str, Objective] = field(init=False, compare=False, repr=False)
    _accuracy: dict[str, float | None] = field(init=False, compare=False, repr=False)  # asked for by answers

    def __post_init__(self) -> None:
        known = {variant.name: variant.accuracy for variant in self.spec.variants}
        accuracy = {name: known.get(name) for name in self.variants}
        fixed = self.default_variant or self.spec.default_variant
        own = resolve(self.needs, accuracy, fixed, self.slo_us)
        tiers = (resolve(each.over(self.needs), accuracy, fixed, self.slo_us) for each in self.tiers)
        object.__setattr__(self, "name", self.spec.name)
        object.__setattr__(self, "_accuracy", known)
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "by_tier", {each.tier: each for each in tiers})

    @property
    def answering_variant(self) -> str:
        """The variant that answers while there is no pressure, where the request pins none."""
        return self.default_variant or (self.own.variants or (self.spec.default_variant,))[0]

    @property
    def dispensable(self) -> bool:
        """Whether it may have no replica at times: no reason to take a gateway out of service."""
        return self.replicas is not None and self.replicas.least == 0

    def accuracy(self, variant: str) -> float | None:
        """What was measured of a variant; None where nobody has, or it is unknown."""
        return self._accuracy.get(variant)

    def objective(self, tier: str = "", accuracy_min: float = 0.0) -> Objective:
        """What a request of a tier is promised that states a floor of its own, 0 for none: the higher one
        counts. KeyError where there is no such tier."""
        promised = self.by_tier[tier] if tier else self.own
        if accuracy_min <= promised.accuracy_min:
            return promised
        needs = next((each for each in self.tiers if each.tier == tier), self.needs) if tier else self.needs
        names = promised.variants if needs.over(self.needs).chooses else self.variants
        enough = ranked({name: self.accuracy(name) for name in names}, accuracy_min)
        return replace(promised, variants=enough, accuracy_min=accuracy_min)


ISOLATE = ("auto", "always", "never")
"""When a model has a worker process of its own: once its deaths ask for it, from the start, in no case."""

DEFAULT_TENANT = "default"
"""Who every request belongs to that names no tenant of the settings."""


@dataclass(frozen=True, slots=True)
class TenantSpec:
    """Whose requests these are. In overload the slices' time is given to the highest `priority` first, and
    within a priority split max-min fair by `weight`. `tier`: of its requests that ask for none."""

    name: str
    weight: float = 1.0
    priority: int = 0
    tier: str = ""


SHARE_KINDS = ("cores", "mps", "sm", "green", "mig", "whole", "time")


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """How much of a device a slice has.

    `kind` and `amount`: "cores" of a CPU; "mps", per cent of a GPU's multiprocessors, at most (CUDA MPS);
    "sm", chunks of a static MPS partition; "green", multiprocessors of a green context; "mig", compute
    slices of the instance that `label` names ("3g.71gb"); "whole" (1), all of it; "time" (1), all of it in
    turns with others.
    """

    kind: str
    amount: float
    label: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.label or format(self.amount, 'g')}"

    @classmethod
    def parse(cls, text: str) -> "Share":
        """The share that `str` writes so; ValueError says what is wrong with a text that none does."""
        kind, colon, amount = text.partition(":")
        if kind not in SHARE_KINDS or not colon:
            raise ValueError(f"a share is KIND:AMOUNT with a kind of {', '.join(SHARE_KINDS)}, not {text!r}")
        label = amount if kind == "mig" else ""
        number = amount.partition("g")[0] if label else amount
        if not _AMOUNT.fullmatch(number) or not 0 < float(number) <= AMOUNT_MAX:
            raise ValueError(f"the amount of a share is a number above 0, not {amount!r} (in {text!r})")
        return cls(kind, float(number), label)


AMOUNT_MAX = 100_000
_AMOUNT = re.compile(r"\d{1,6}(\.\d{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """A share of a device on which one worker process runs.

    `cores`: those that its process stays on, () for any; `threads` compute there. `device`: "cpu", or a GPU
    by its torch name ("cuda:0"), of which it has `part`, None for all, and `memory_bytes` at most where its
    actuator can see to that, 0 for no limit. `price` for an hour, 0 where nobody says. `spot`: it may be
    taken away at any time.
    """

    name: str
    cores: tuple[int, ...]  # empty: not pinned
    threads: int = 1
    device: str = "cpu"
    part: Share | None = None
    memory_bytes: int = 0
    price: float = 0.0
    spot: bool = False

    @property
    def place(self) -> str:
        """The name of the slice whose cores it has: its own, but for a model's own process there."""
        return place_of(self.name)

    @property
    def domain(self) -> str:
        """What it is lost with: its device, or its place alone where that may be taken away."""
        return f"spot {self.place}" if self.spot else self.device

    @property
    def share(self) -> Share:
        """How much of its device it computes on."""
        if self.device == "cpu":
            return Share("cores", float(self.threads))
        return self.part or Share("whole", 1.0)


@dataclass(frozen=True, slots=True)
class WorkersSpec:
    """What worker processes are given, and what each is held to; 0 for no bound.

    `environment`: variables that are set; `inherit`: those of the gateway's own that they get beside the
    usual ones. `memory_bytes`: of a worker and all that it has started. `open_files`: descriptors of each of
    these processes. `processes`: processes and threads of their user, all programs counted.
    """

    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    inherit: tuple[str, ...] = ()
    memory_bytes: int = 0
    open_files: int = 0
    processes: int = 0


_OWN = "+"  # no name of a slice or a model in a settings file may hold it


def own_process(slice_name: str, model: str) -> str:
    """What the process is called that a model has to itself on a slice: a slice on the same cores."""
    return f"{slice_name}{_OWN}{model}"


def place_of(slice_name: str) -> str:
    """The slice whose cores a process has, by the name of either."""
    return slice_name.partition(_OWN)[0]


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """Devices that a placement may use: `count` of them, alike.

    `kind` as profiles name it ("gpu-nvidia-h200"); `divide`: into what kind of shares, of DIVISIONS; `cores`
    of a CPU; `memory_bytes` 0: not limited; `price` of one for an hour. Those of one `domain` fail together;
    "": each of them alone.
    """

    name: str
    kind: str
    divide: str
    count: int = 1
    cores: int = 0
    memory_bytes: int = 0
    price: float = 0.0
    domain: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Of each device: the name alone for one, `name-1` to `name-N` for several."""
        return tuple(f"{self.name}-{n}" for n in range(1, self.count + 1)) if self.count > 1 else (self.name,)


DIVISIONS = ("cores", "mps", "mig", "whole")


@dataclass(frozen=True, slots=True)
class RecordingSpec:
    """Where arrivals are recorded: at most `files` files of `file_bytes` each, the oldest deleted first."""

    folder: Path
    file_bytes: int = 16 << 20
    files: int = 8


@dataclass(frozen=True, slots=True)
class RedisSpec:
    """The Redis server through which gateways share answers. `url` (redis://, rediss:// or unix://) may hold
    a password, as `password` does: neither is ever shown, nor is `key`. Gateways of one `namespace` share; a
    call is held up by at most `budget_us` for a look."""

    url: str = field(repr=False)
    password: str = field(default="", repr=False)
    namespace: str = "penstock"
    budget_us: int = 2_000
    key: str = field(default="", repr=False)

    @property
    def secret(self) -> str:
        """By which answers are signed: `key`, else the password; "" where there is neither."""
        return self.key or self.password or unquote(urlsplit(self.url).password or "")

    @property
    def place(self) -> str:
        """The URL as it may be shown."""
        url = urlsplit(self.url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """How answers are kept: at most `memory_bytes` of them, each for `ttl_us`. `shared`: a tenant may be
    answered with what was computed for another; it can then tell, by the time it takes, what others asked.
    `redis`: where they are kept for other gateways too."""

    memory_bytes: int = 64 << 20
    ttl_us: int = 300_000_000
    shared: bool = False
    redis: RedisSpec | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Every bound of the gateway. `penstock.yaml` names each under `limits:`, sizes there in MB or KB and
    all times in seconds: `body_bytes` is `body_mb`, `stall_us` is `stall_s`."""

    body_bytes: int = 64 << 20
    header_bytes: int = 64 << 10
    header_count: int = 128
    json_bytes: int = 16 << 20  # of a request's JSON, once inflated
    json_depth: int = 32
    inflation: int = 100  # bytes that a compressed byte may become, beyond the first megabyte
    element_count: int = 1 << 20  # of a request or an answer, where each is written by itself: JSON
    bytes_count: int = 1 << 16  # elements of a BYTES input, each of which carries its length
    tensor_count: int = 64
    tensor_bytes: int = 64 << 20
    rows_per_request: int = 4096
    queue_rows: int = 8192  # per model
    queue_requests: int = 8192  # per model
    held_bytes: int = 1 << 30  # tensors of all accepted requests together
    connection_count: int = 4096
    reserved_connection_count: int = 32  # more than those, for probes, status and operators
    idle_connection_s: float = 75.0
    slow_client_s: float = 30.0  # to send a request or take an answer
    write_buffer_bytes: int = 1 << 20  # per connection, before reading from it pauses
    grpc_call_count: int = 8192  # open at once; twice as many may wait for the event loop
    grpc_stream_count: int = 1024  # calls at once on a connection: its client keeps the others back
    grpc_watch_count: int = 256  # open Health.Watch streams
    grpc_age_s: float = 0.0  # a connection is closed after that, its calls answered; 0: never
    startup_s: float = 120.0  # for a worker to start and load
    stall_us: int = 5_000_000  # a batch that is later than predicted by this is given up with its worker
    drain_grace_s: float = 0.5  # ready is false, requests are still accepted
    drain_s: float = 30.0  # accepted requests are answered
    sweep_s: float = 12.0  # first profiles of all models together
