"""The rare frames: JSON metadata, checked field by field on arrival."""

import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from serving.values.sequences import SequenceSpec, pack_spec, unpack_spec
from serving.values.specs import PYTHON, Guard, ModelSpec, ParameterValue, SizeHint, TensorSpec
from serving.worker.frames.batches import MESSAGE_CHARS_MAX
from serving.worker.frames.wire import Frame, FrameKind, ProtocolError, pack_frame

JsonObject = dict[str, object]
_T = TypeVar("_T")

LATENCIES_MAX: Final = 100_000
"""Runs of one MEASURE; more is a mistake."""


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """What a worker needs to know of a variant; paths are absolute.

    `sizes`: smallest and largest size hint of a row, (0, 0) where the model has none. `revision`: what the
    model's files are at the moment; the folder's code is executed once for each. `deterministic`: the variant
    says that it is. `batch_max`: the most rows of a batch; `compile`: how it runs on a GPU. `hint`: by
    what the size of a row is known without the model, None if it has no sizes. `decoupled`: a row has any
    number of answers. `sequence`: None for a model without sequences. `unbatched`, `code`: see ModelSpec.
    `backend`: see VariantSpec.
    """

    replica: int
    model: str
    folder: Path
    variant: str
    artifact: Path | None
    options: tuple[tuple[str, ParameterValue], ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sizes: tuple[int, int]
    revision: str = ""
    deterministic: bool = False
    batch_max: int = 1
    compile: str = "none"
    hint: SizeHint | None = None
    decoupled: bool = False
    sequence: SequenceSpec | None = None
    unbatched: bool = False
    backend: str = PYTHON
    code: Path | None = None

    @classmethod
    def of(cls, replica: int, model: ModelSpec, variant: str, revision: str = "") -> "LoadOrder":
        """Return the order to load a model's variant; KeyError where it has no such variant."""
        chosen = model.variant(variant)
        return cls(
            replica, model.name, model.folder.resolve(), variant,
            chosen.artifact.resolve() if chosen.artifact else None,
            chosen.options, model.inputs, model.outputs, (model.sizes[0], model.sizes[-1]), revision,
            chosen.deterministic, model.batch_max, chosen.compile,
            model.size_hint, model.decoupled, model.sequence, model.unbatched, chosen.backend,
            model.code.resolve() if model.code else None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker's first frame. `shared`: it has mapped both areas. `versions`: of what it computes with."""

    pid: int
    shared: bool
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class MeasureOrder:
    """Run a sample of `rows` x `size` up to `repeats` times, at least once, within about `budget_us`; and
    the yardstick `yardsticks` times, half of them before and half after."""

    replica: int
    rows: int
    size: int
    repeats: int
    budget_us: int
    yardsticks: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredBatches:
    """What a measurement found, microseconds; `activation_bytes`: the most memory that its runs took;
    `disturbed`: other programs used the worker's cores in every one of its runs."""

    replica: int
    rows: int
    size: int
    latencies_us: list[int]
    yardsticks_us: list[int] = field(default_factory=list)
    activation_bytes: int = 0
    disturbed: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """A replica that has run. `load_us`: all that it took; its first runs took `warm_us` of it.
    `memory_bytes`: by how much the process grew meanwhile. On a CPU that is what became resident: each worker
    counts shared mapped memory in full, and batches of other replicas count too. `import_bytes`: what its
    code's imports took before, which stays when the replica goes and is not in `memory_bytes`. The first that
    needs torch brings 210 MB of it. What code imports in its `load` cannot be told from the model: it counts
    for the first that is loaded in a process. `held_us`: the longest time for which the load kept the
    process's other threads from running, 0 if another load ran beside it. `differs`: how two answers to one
    sample differ, for a variant that says that it is deterministic; "" if they were the same. `kept`: it was
    loaded for the gateway before."""

    replica: int
    load_us: int
    memory_bytes: int
    warm_us: int = 0
    import_bytes: int = 0
    differs: str = ""
    held_us: int = 0
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Raised:
    """What a model's code raised, for the log. `doing`: at which work; `kind`: what was raised and where,
    equal for equal errors; `sentence`: one line; `traceback`: the whole of it, "" where it was told a short
    while ago."""

    model: str
    variant: str
    doing: str
    kind: str
    sentence: str
    traceback: str = ""


def pack_load(order: LoadOrder) -> bytes:
    return pack_frame(
        FrameKind.LOAD,
        orjson.dumps(
            {
                "replica": order.replica,
                "model": order.model,
                "folder": str(order.folder),
                "variant": order.variant,
                "artifact": str(order.artifact) if order.artifact else None,
                "options": dict(order.options),
                "inputs": [*map(_packed, order.inputs)],
                "outputs": [*map(_packed, order.outputs)],
                "sizes": order.sizes,
                "revision": order.revision,
                "deterministic": order.deterministic,
                "batch_max": order.batch_max,
                "compile": order.compile,
                "unbatched": order.unbatched,
                "hint": order.hint and (order.hint.input, order.hint.buckets, order.hint.unit),
                "decoupled": order.decoupled,
                "sequence": pack_spec(order.sequence),
                "backend": order.backend,
                "code": str(order.code) if order.code else None,
            }
        ),
    )


def unpack_load(frame: Frame) -> LoadOrder:
    """Return the order of a LOAD frame; ProtocolError where it is none."""
    found = _object(frame)
    try:
        artifact = found["artifact"]
        smallest, largest = _field(found, "sizes", list)
        hint = _hint(*_field(found, "hint", list)) if found["hint"] else None
        return LoadOrder(
            _field(found, "replica", int), _field(found, "model", str), Path(_field(found, "folder", str)),
            _field(found, "variant", str), Path(str(artifact)) if artifact else None,
            tuple(_field(found, "options", dict).items()),
            _specs(_field(found, "inputs", list)), _specs(_field(found, "outputs", list)),
            (int(smallest), int(largest)), _field(found, "revision", str),
            _field(found, "deterministic", bool), _field(found, "batch_max", int),
            _field(found, "compile", str),
            hint, _field(found, "decoupled", bool), unpack_spec(found["sequence"]),
            _field(found, "unbatched", bool), _field(found, "backend", str),
            Path(str(found["code"])) if found["code"] else None,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"a LOAD frame cannot be read: {error!r}") from None


def pack_hello(shared: bool, versions: dict[str, str]) -> bytes:
    about = {"python": platform.python_version(), **versions}
    return pack_frame(
        FrameKind.HELLO, orjson.dumps({"pid": os.getpid(), "shared": shared, "versions": about})
    )


def unpack_hello(frame: Frame) -> Hello:
    found = _object(frame)
    versions = {str(name): str(version) for name, version in _field(found, "versions", dict).items()}
    return Hello(_field(found, "pid", int), _field(found, "shared", bool), versions)


def pack_loaded(loaded: Loaded) -> bytes:
    return pack_frame(FrameKind.LOADED, orjson.dumps(loaded))


def unpack_loaded(frame: Frame) -> Loaded:
    found = _object(frame)
    replica, load_us, memory_bytes, warm_us, import_bytes, held_us = (
        _field(found, name, int) for name in Loaded.__slots__ if name not in ("differs", "kept")
    )
    differs, kept = _field(found, "differs", str)[:MESSAGE_CHARS_MAX], _field(found, "kept", bool)
    return Loaded(replica, load_us, memory_bytes, warm_us, import_bytes, differs, held_us, kept)


def pack_load_failed(replica: int, message: str) -> bytes:
    text = message[:MESSAGE_CHARS_MAX].encode(errors="replace").decode()  # orjson refuses lone surrogates
    return pack_frame(FrameKind.LOAD_FAILED, orjson.dumps({"replica": replica, "message": text}))


def unpack_load_failed(frame: Frame) -> tuple[int, str]:
    """Return the replica and the message."""
    found = _object(frame)
    return _field(found, "replica", int), _field(found, "message", str)[:MESSAGE_CHARS_MAX]


def pack_raised(raised: Raised) -> bytes:
    """Return the frame of RAISED; half characters, which JSON refuses, become question marks."""
    texts = {name: str(getattr(raised, name)).encode(errors="replace").decode() for name in Raised.__slots__}
    return pack_frame(FrameKind.RAISED, orjson.dumps(texts))


def unpack_raised(frame: Frame) -> Raised:
    """Return what a RAISED frame says; ProtocolError where it is none."""
    found = _object(frame)
    return Raised(*(_field(found, name, str) for name in Raised.__slots__))


def pack_unload(replica: int) -> bytes:
    return pack_frame(FrameKind.UNLOAD, orjson.dumps({"replica": replica}))


def unpack_unload(frame: Frame) -> int:
    return _field(_object(frame), "replica", int)


def pack_unloaded(replica: int) -> bytes:
    """Return the answer to UNLOAD: the replica's memory was released."""
    return pack_frame(FrameKind.UNLOADED, orjson.dumps({"replica": replica}))


unpack_unloaded = unpack_unload


def pack_measure(order: MeasureOrder) -> bytes:
    found = {name: getattr(order, name) for name in MeasureOrder.__slots__}
    return pack_frame(FrameKind.MEASURE, orjson.dumps(found))


def unpack_measure(frame: Frame) -> MeasureOrder:
    found = _object(frame)
    order = MeasureOrder(*(_field(found, name, int) for name in MeasureOrder.__slots__))
    if order.rows < 1 or not 1 <= order.repeats <= LATENCIES_MAX or order.yardsticks > LATENCIES_MAX:
        raise ProtocolError(f"a MEASURE frame asks for {order.repeats} runs of {order.rows} rows")
    return order


def pack_measured(measured: MeasuredBatches) -> bytes:
    return pack_frame(FrameKind.MEASURED, orjson.dumps(measured))


def unpack_measured(frame: Frame) -> MeasuredBatches:
    """Return the measured batches, with at least one latency."""
    found = _object(frame)
    latencies, yardsticks = (_field(found, name, list) for name in ("latencies_us", "yardsticks_us"))
    if not latencies or not all(type(time) is int and time >= 0 for time in (*latencies, *yardsticks)):
        raise ProtocolError("a MEASURED frame has no latencies")
    replica, rows, size, taken = (
        _field(found, name, int) for name in ("replica", "rows", "size", "activation_bytes")
    )
    disturbed = _field(found, "disturbed", bool)
    return MeasuredBatches(replica, rows, size, latencies, yardsticks, taken, disturbed)


def _object(frame: Frame) -> JsonObject:
    try:
        found = orjson.loads(bytes(frame.meta).rstrip(b"\0"))
    except orjson.JSONDecodeError as error:
        raise ProtocolError(f"a {frame.kind.name} frame is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ProtocolError(f"a {frame.kind.name} frame is no JSON object")
    return found


def _field(found: JsonObject, name: str, kind: type[_T]) -> _T:
    value = found.get(name)
    if type(value) is not kind:
        raise ProtocolError(f"a frame's {name!r} is {value!r:.100}, expected {kind.__name__}")
    return value


def _packed(spec: TensorSpec) -> list[object]:
    guard = spec.guard
    held = None if guard is None else [guard.finite, guard.least, guard.most]
    return [spec.name, spec.datatype, spec.shape, held, spec.names, spec.pad, spec.mask]


def _specs(found: list[list[Any]]) -> tuple[TensorSpec, ...]:
    # Any: JSON; what does not fit raises what the caller turns into ProtocolError.
    return tuple(
        TensorSpec(
            str(name),
            str(datatype),
            tuple(map(int, shape)),
            None if held is None else _guard(*held),
            names=tuple(map(str, names)),
            pad=None if pad is None else float(pad),
            mask=bool(mask),
        )
        for name, datatype, shape, held, names, pad, mask in found
    )


def _guard(finite: object, least: Any, most: Any) -> Guard:
    low, high = (None if bound is None else float(bound) for bound in (least, most))
    return Guard(bool(finite), low, high)


def _hint(name: object, buckets: Any, unit: object) -> SizeHint:
    return SizeHint(str(name), tuple(map(int, buckets)), str(unit))
