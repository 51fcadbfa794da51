"""The settings of the gateway as frozen values: models, variants, slices, limits.

`router/settings/` makes these values from files once, at start; no code below it reads a file for them.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from types import MappingProxyType

from serving.values.applications import Application
from serving.values.objectives import Needs, Objective, RateSpec, ReplicaSpec, SelectionSpec, ranked, resolve
from serving.values.rollouts import RolloutSpec
from serving.values.sequences import SequenceSpec
from serving.values.versions import ONLY, model_of, version_name

ParameterValue = bool | int | float | str
Parameters = tuple[tuple[str, ParameterValue], ...]
"""Request parameters for the model: sorted by name, hashable; requests with equal ones may share a batch."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The values that an output may have: finite, at least `least`, at most `most`. NaN is in no range."""

    finite: bool = False
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        bounds = (("at least", self.least), ("at most", self.most))
        stated = [f"{how} {bound:.10g}" for how, bound in bounds if bound is not None]
        return ", ".join([*(("finite",) if self.finite else ()), *stated])

    def takes(self, value: float) -> bool:
        """Return whether an answer may contain the value."""
        if self.finite and not isfinite(value):
            return False
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True, slots=True)
class Labels:
    """What the values of an output's row stand for: `names` by index, from `file` if it is not ""."""

    names: tuple[str, ...]
    file: str = ""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output: OIP datatype (or `serving.values.tensor.ANY`) and shape, -1 where free.

    The first dimension is the batch dimension and always -1. `guard`: the values that penstock.yaml allows
    for an output. `labels`: of an output, only for people; tensors that differ in nothing else are equal.
    `optional`: a request may leave the input out. The first input is never optional.
    `parameter`: an output that answers carry among their parameters, unless a client asks for it by name.
    `names`: of each dimension, "" where it has none, () where no dimension has one; dimensions of one name
    have one size in a request. `pad`: with what the worker fills up an input's shorter rows, None where rows
    of unlike size share no batch. `mask`: an input that the worker makes, 1 for a row's values and 0 for
    what fills it up, unless the request has it.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    guard: Guard | None = None
    labels: Labels | None = field(default=None, compare=False)
    optional: bool = False
    parameter: bool = False
    names: tuple[str, ...] = ()
    pad: float | None = None
    mask: bool = False


@dataclass(frozen=True, slots=True)
class PaddedSize:
    """A named size along which shorter rows are filled up: `input` and `dimension` say where a request has
    it."""

    name: str
    input: int
    dimension: int


def padded_sizes(inputs: Sequence[TensorSpec]) -> tuple[PaddedSize, ...]:
    """Return the sizes along which rows are filled up, each where the first input has it."""
    found: dict[str, PaddedSize] = {}
    for place, each in enumerate(inputs):
        if each.pad is not None and not each.mask:
            for dimension, name in enumerate(each.names):
                if name:
                    found.setdefault(name, PaddedSize(name, place, dimension))
    return tuple(found.values())


PYTHON, REMOTE = "python", "remote"
"""The backends of a variant that the model's own code computes, and of one that another server does."""


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """One way to compute a model. `artifact` is the path that its code loads; accuracy is measured or None.

    `deterministic`: equal requests get equal answers, but for rounding in the variant's datatype. `build`: a
    digest of all that determines its answers, "" if its answers are not kept. `artifact_bytes`: the size of
    all files of the artifact, 0 if unknown. `compile`: how it runs on a GPU: "none", "torch" or "graphs".
    `backend`: what loads and runs it.
    """

    name: str
    artifact: Path | None
    options: tuple[tuple[str, ParameterValue], ...] = ()
    accuracy: float | None = None
    deterministic: bool = False
    build: str = ""
    artifact_bytes: int = 0
    compile: str = "none"
    backend: str = PYTHON


SIZE_BITS = 5
"""Significant bits of a size that decisions see: steps of 3 to 6 %, sixteen an octave. So tables by size,
latency tables above all, stay small, whatever sizes clients send."""


def stepped(size: int) -> int:
    """Return the next size that decisions see, at least as large as `size`."""
    shift = max(size.bit_length() - SIZE_BITS, 0)
    return -(-size >> shift) << shift


@dataclass(frozen=True, slots=True)
class SizeHint:
    """A row's cost hint that the edge can compute: the size of `input`'s element in `unit`.

    "bytes" counts them; "text" estimates tokens: each punctuation mark counts for `tensor.MARK_BYTES`;
    "values" counts the numbers of a row. `buckets` are ascending upper bounds. A row belongs to the first
    that holds it, a longer text to the last (the model truncates it); more values are refused. Requests share
    a batch only within a bucket. The size of its largest row determines a batch's latency.
    """

    input: str
    buckets: tuple[int, ...]
    unit: str = "bytes"

    def bucket(self, size: int) -> int:
        """Return the upper bound of the bucket that a row of this size belongs to."""
        place = bisect_left(self.buckets, size)
        return self.buckets[min(place, len(self.buckets) - 1)]

    def place(self, size: int) -> tuple[int, int]:
        """Return (the size that decisions see, its bucket) for a row of this size."""
        bucket = self.bucket(size)
        return min(stepped(min(size, bucket)), bucket), bucket


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A request parameter that the model reads (`type`: "bool", "int", "float" or "string").

    `time_unit`: one of TIME_UNITS if the value is a time that a batch takes, else "". `bounded_by`: the key
    of the settings that has lowered `maximum`, "" if `maximum` is the model's own. `header`: the settings let
    a header field of this name state it.
    """

    name: str
    type: str
    default: ParameterValue
    minimum: float | None = None
    maximum: float | None = None
    time_unit: str = ""
    bounded_by: str = ""
    header: bool = False


TIME_UNITS: Mapping[str, int] = MappingProxyType({"us": 1, "ms": 1_000, "s": 1_000_000})
"""Microseconds of each unit."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The variants' answers for rows that none was trained on: `labels`, and by variant the class of each
    row. Joint accuracies are counted on them, because the errors of variants are never independent."""

    labels: tuple[int, ...]
    predictions: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Priorities:
    """The levels of a request's `priority`, 1 before 2 and so on; `default`: of a request that states none,
    or one beyond `levels`."""

    levels: int
    default: int

    def rank(self, stated: int) -> int:
        """Return how far before the default level (or, below 0, behind it) a request is."""
        return self.default - (stated if 1 <= stated <= self.levels else self.default)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model folder (`models/<name>/model.yaml`) with the measurements of its build. `slo_us`: 0 if only
    penstock.yaml states it. `slo_rows`: the rows that it is stated for, 0 for any number. `decoupled`: a
    request, of one row, has any number of answers. `sequence`: None for a model whose requests stand for
    themselves. `code`: the file of its Python code, None for `model.py`. `unbatched`: clients and the model's
    code know no batch dimension; all in between has one, of one row. `padded`: the sizes along which rows of
    unlike length share a batch. `version`: the number of its folder, or 0; then
    `name` is as `serving.values.versions` says."""

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
    slo_rows: int = 0
    decoupled: bool = False
    sequence: SequenceSpec | None = None
    unbatched: bool = False
    padded: tuple[PaddedSize, ...] = ()
    application: Application | None = None
    priorities: Priorities | None = None
    code: Path | None = None
    version: int = 0

    @property
    def model_name(self) -> str:
        """The name of the model in requests and answers, whatever the version."""
        return model_of(self.name)

    @property
    def model_version(self) -> str:
        """The version that answers state."""
        return str(self.version) if self.version else ONLY

    @property
    def home(self) -> Path:
        """The folder with the model's model.yaml; `folder` is the version's own, if it has versions."""
        return self.folder.parent if self.version else self.folder

    def told(self, tensor: TensorSpec) -> tuple[int, ...]:
        """Return the shape that clients know of an input or output."""
        return tensor.shape[1:] if self.unbatched else tensor.shape

    @property
    def sizes(self) -> tuple[int, ...]:
        """The model's size buckets, ascending; (0,) if it has no size hint."""
        return self.size_hint.buckets if self.size_hint else (0,)

    def variant(self, name: str) -> VariantSpec:
        """Return the variant of that name; KeyError if there is none."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise KeyError(name)


def guards_of(spec: ModelSpec) -> dict[str, Guard]:
    """Return the guards of a model's outputs, by output; empty if it has none."""
    return {output.name: output.guard for output in spec.outputs if output.guard is not None}


@dataclass(frozen=True, slots=True)
class BatchingSpec:
    """Which batching policy a model's queue follows, with that policy's own parameters.

    The catalogue (`serving/policy/batching/catalogue.py`) says which parameters each policy uses. `size`:
    rows of a batch, None for the most that model and SLO allow. `delay_us`: the longest wait for more rows.
    `mode`: "" for the policy's default. `admission`: in overload, requests are refused at arrival; if False,
    all of them queue. `guard_us`: how late wake-ups and answers may be (until that is measured), None for the
    policy's default. `weight`: the model's share of a slice's time.
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

    `needs`: the promise to a request without a tier; `tiers`: to a request that asks for one. `own` and
    `by_tier` are these as the model can meet them. `replicas`: the range that follows the load; None: one on
    each slice. `required`: the gateway is not ready without the model, even if it was never loaded.
    `isolate`: whether it has an own process on its slices, of ISOLATE. `rollout`: of the model whose place it
    is to take. `stays`: requests for it go to no candidate, as they name its version; `pinned` is the same
    model for these.
    """

    spec: ModelSpec
    slo_us: int
    variants: tuple[str, ...]
    slices: tuple[str, ...]
    batching: BatchingSpec = field(default_factory=BatchingSpec)
    default_variant: str = ""  # "" takes the spec's
    cache: bool = False  # the answers of deterministic variants may be kept
    domains_min: int = 1  # a placement puts its replicas into at least so many failure domains
    revision: str = ""  # of its files; replicas of another revision are loaded again
    needs: Needs = field(default_factory=Needs)
    tiers: tuple[Needs, ...] = ()
    selection: SelectionSpec | None = None
    replicas: ReplicaSpec | None = None
    required: bool = False
    isolate: str = "auto"
    rollout: RolloutSpec | None = None
    stays: bool = False
    name: str = field(init=False)  # the spec's; a field, because each request reads it several times
    own: Objective = field(init=False, compare=False, repr=False)
    by_tier: dict[str, Objective] = field(init=False, compare=False, repr=False)
    _accuracy: dict[str, float | None] = field(init=False, compare=False, repr=False)  # answers read it
    _pinned: "ServedModel | None" = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        known = {variant.name: variant.accuracy for variant in self.spec.variants}
        accuracy = {name: known.get(name) for name in self.variants}
        fixed = self.default_variant or self.spec.default_variant
        own = resolve(self.needs, accuracy, fixed, self.slo_us)
        tiers = (resolve(each.over(self.needs), accuracy, fixed, self.slo_us) for each in self.tiers)
        object.__setattr__(self, "name", self.spec.name)
        splits = self.spec.version and not self.stays
        object.__setattr__(self, "_pinned", replace(self, stays=True) if splits else None)
        object.__setattr__(self, "_accuracy", known)
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "by_tier", {each.tier: each for each in tiers})

    @property
    def pinned(self) -> "ServedModel":
        """The same model for requests that name its version; one object, as edges remember by it."""
        return self._pinned or self

    def stands_for(self, model: "ServedModel") -> bool:
        """Return whether a model is this one as it is served now, or its `pinned`."""
        return model is self or model is self._pinned

    @property
    def answering_variant(self) -> str:
        """The variant that answers without overload, if the request pins none."""
        return self.default_variant or (self.own.variants or (self.spec.default_variant,))[0]

    @property
    def dispensable(self) -> bool:
        """Whether the model may be without a replica at times; the gateway then stays ready."""
        return self.replicas is not None and self.replicas.least == 0

    def accuracy(self, variant: str) -> float | None:
        """Return the measured accuracy of a variant; None if it was not measured or is unknown."""
        return self._accuracy.get(variant)

    def objective(self, tier: str = "", accuracy_min: float = 0.0) -> Objective:
        """Return the promise to a request of a tier that states a floor, 0 for none; the higher floor counts.

        KeyError if there is no such tier.
        """
        promised = self.by_tier[tier] if tier else self.own
        if accuracy_min <= promised.accuracy_min:
            return promised
        needs = next((each for each in self.tiers if each.tier == tier), self.needs) if tier else self.needs
        names = promised.variants if needs.over(self.needs).chooses else self.variants
        enough = ranked({name: self.accuracy(name) for name in names}, accuracy_min)
        return replace(promised, variants=enough, accuracy_min=accuracy_min)


def find_version(models: Mapping[str, ServedModel], name: str, version: str) -> ServedModel | None:
    """Return what is served as that version of a model, under the model's own name or its own; None for
    nothing."""
    found = models.get(name)
    if found is not None and found.spec.model_version == version:
        return found
    return models.get(version_name(name, version))


ISOLATE = ("auto", "always", "never")
"""When a model has an own process: after it killed or blocked the shared worker, from the start, or never."""

DEFAULT_TENANT = "default"
"""The tenant of every request that names no tenant of the settings."""


@dataclass(frozen=True, slots=True)
class TenantSpec:
    """A group of requests. `tier`: for its requests that ask for none; `rate`: how much it may send.

    In overload, the highest `priority` gets the slices' time first. Within a priority, tenants share it
    max-min fair by `weight`.
    """

    name: str
    weight: float = 1.0
    priority: int = 0
    tier: str = ""
    rate: RateSpec | None = None


@dataclass(frozen=True, slots=True)
class RecordingSpec:
    """Where the gateway records arrivals: at most `files` files of `file_bytes`, the oldest deleted first."""

    folder: Path
    file_bytes: int = 16 << 20
    files: int = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """Every limit of the gateway. `penstock.yaml` names each under `limits:`, with sizes in MB or KB and all
    times in seconds: `body_bytes` is `body_mb`, `stall_us` is `stall_s`."""

    body_bytes: int = 64 << 20
    header_bytes: int = 64 << 10
    header_count: int = 128
    json_bytes: int = 16 << 20  # of a request's JSON, after decompression
    json_depth: int = 32
    inflation: int = 100  # bytes from one compressed byte, beyond the first megabyte
    element_count: int = 1 << 20  # of a request or an answer in JSON, which writes each by itself
    bytes_count: int = 1 << 16  # elements of a BYTES input; each carries its length
    tensor_count: int = 64
    tensor_bytes: int = 64 << 20
    rows_per_request: int = 4096
    queue_rows: int = 8192  # per model
    queue_requests: int = 8192  # per model
    held_bytes: int = 1 << 30  # tensors of all accepted requests together
    connection_count: int = 4096
    reserved_connection_count: int = 32  # in addition, for probes, status and operators
    idle_connection_s: float = 75.0
    slow_client_s: float = 30.0  # to send a request or take an answer
    write_buffer_bytes: int = 1 << 20  # per connection; beyond it, reading from the connection pauses
    grpc_call_count: int = 8192  # open at once; twice as many may wait for the event loop
    grpc_stream_count: int = 1024  # calls at once on a connection; its client holds back the others
    grpc_watch_count: int = 256  # open Health.Watch streams
    infer_stream_count: int = 1024  # streams of requests or answers, open at once
    infer_stream_requests: int = 128  # of one stream under way; no more of it are read
    infer_stream_bytes: int = 4 << 20  # of one stream's answers that its client has not taken
    grpc_age_s: float = 0.0  # after it, a connection closes once its calls are answered; 0: never
    startup_s: float = 120.0  # for a worker to start and load
    stall_us: int = 5_000_000  # the gateway gives up a batch so much later than planned, with its worker
    drain_grace_s: float = 0.5  # not ready, but requests are still accepted
    drain_s: float = 30.0  # accepted requests are answered
    sweep_s: float = 12.0  # for the first profiles of all models together
