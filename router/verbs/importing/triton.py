"""A model of Triton's repository, as a target and its signature (Triton's model_config.proto and
docs/user_guide/model_configuration.md)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf import text_format  # type: ignore[import-untyped]

from router.settings.model_file.folders import is_version
from router.tensors.protos.files import oip
from router.verbs.target.errors import TargetError
from router.verbs.target.target import REMOTE, Target
from serving.worker.backends.signature import Dimension, Signature, Tensor

CONFIG: Final = "config.pbtxt"
FILES: Final = {"onnx": ("model.onnx",), "torch_export": ("model.pt2", "model.pt")}
"""The files of each backend here, by Triton's own default names."""
FOREIGN: Final = {
    "tensorrt": "TensorRT engines", "python": "Triton's Python backend",
    "tensorflow": "TensorFlow graphs", "openvino": "OpenVINO models", "dali": "DALI pipelines",
}  # fmt: skip
_LEFT_OUT: Final = (
    ("dynamic_batching", "the gateway finds batches by the SLO"),
    ("instance_group", "the gateway starts a replica on each slice, or as many as `replicas:` allows"),
    ("optimization", "options of a variant state providers"),
    ("model_warmup", "a worker runs each model before it serves"),
    ("response_cache", "`cache: true` needs `deterministic: true`"),
    ("model_repository_agents", "the gateway has none"),
)


@dataclass(frozen=True, slots=True)
class Imported:
    """A model and what it promises. `slo_ms`: None if its configuration has no timeout. `notes`: what was
    left out. `versions`: the folders of its versions, for links; none if a Triton computes it."""

    target: Target
    signature: Signature
    slo_ms: float | None
    notes: tuple[str, ...]
    versions: tuple[Path, ...] = ()


def read_model(folder: Path, server: str) -> Imported:
    """Return the model in a folder of the repository. `server`: a Triton that runs, "" for none.

    Raises TargetError if the model cannot be imported; the text says why, and what would help.
    """
    config = _config(folder / CONFIG)
    _refuse(config)
    target = _target(config, folder, server)
    batch, loaded = config.max_batch_size, target.backend != "remote"
    keys: dict[str, object] = _policy(config) if loaded else {}
    levels = config.dynamic_batching.priority_levels
    if levels:
        keys["priorities"] = {
            "levels": levels,
            "default": config.dynamic_batching.default_priority_level or 1,
        }
    signature = Signature(
        tuple(_tensor(each, batch) for each in _in_order(config.input)),
        tuple(_tensor(each, batch, folder / each.label_filename) for each in _in_order(config.output)),
        artifact=Path(target.artifact).name if loaded else "",
        keys=keys,
        rows_max=batch,
    )
    timeout_us = config.dynamic_batching.default_queue_policy.default_timeout_microseconds
    slo_ms = timeout_us / 1000 if timeout_us else None
    versions = tuple(_versions(folder).values()) if loaded else ()
    return Imported(target, signature, slo_ms, tuple(_notes(config)), versions)


def _policy(config: Any) -> dict[str, object]:
    """Return the key of a model.yaml for the versions that are served, unless that is the default."""
    policy = config.version_policy
    if policy.HasField("all"):
        return {"version_policy": "all"}
    if policy.HasField("specific"):
        return {"version_policy": {"specific": [*policy.specific.versions]}}
    if policy.latest.num_versions > 1:
        return {"version_policy": {"latest": policy.latest.num_versions}}
    return {}


def _config(file: Path) -> Any:
    if not file.is_file():
        raise TargetError(f"it has no {CONFIG}; Triton can write it: `curl HOST:8000/v2/models/NAME/config`")
    try:
        found = text_format.Parse(file.read_text("utf-8"), oip.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise TargetError(f"{file}:{error}") from None
    if not found.input or not found.output:
        raise TargetError(f"{file} states no {'output' if found.input else 'input'}; expected both")
    return found


def _refuse(config: Any) -> None:
    """Raise TargetError for what no model here can be."""
    if config.HasField("ensemble_scheduling") or config.platform == "ensemble":
        steps = ", ".join(step.model_name for step in config.ensemble_scheduling.step)
        raise TargetError(f"it is an ensemble of {steps}; no model here calls others: call them in turn")
    if config.HasField("sequence_batching"):
        raise TargetError(
            "it has sequence_batching; write its `sequence:` by hand (docs/models.md#sequences)"
        )
    if config.model_transaction_policy.decoupled:
        raise TargetError("it is decoupled; write a model with `decoupled: true` (docs/models.md)")
    for each in config.input:
        if each.allow_ragged_batch or each.is_shape_tensor:
            what = "ragged batches" if each.allow_ragged_batch else "a shape tensor"
            raise TargetError(f"input {each.name!r} has {what}, which no batch here can have")
    for each in (*config.input, *config.output):
        if each.HasField("reshape"):
            raise TargetError(f"{each.name!r} has a reshape; let clients send the model's own shape")


def _target(config: Any, folder: Path, server: str) -> Target:
    name = config.name or folder.name
    kind = config.backend or config.platform
    backend = "onnx" if "onnx" in kind else "torch_export" if "pytorch" in kind or "torch" in kind else ""
    version = _version(config, folder)
    names = (
        (config.default_model_filename,) if config.default_model_filename else FILES.get(backend, ("model",))
    )
    file = next((version / name for name in names if (version / name).exists()), version / names[0])
    if backend and file.exists():
        return Target(str(file), name, backend, str(file.resolve()))
    if server:
        return Target(f"{REMOTE}{server}/{name}", name, "remote", f"{server}/{name}")
    if backend:
        raise TargetError(f"{file} is missing")
    foreign = next((words for word, words in FOREIGN.items() if word in kind), f"of the backend {kind!r}")
    raise TargetError(
        f"it is {foreign}, which no backend here loads; --server HOST:PORT lets Triton compute it"
    )


def _in_order(tensors: Any) -> list[Any]:
    """Return the tensors by their places, which Triton's PyTorch backend puts into names: `INPUT__0`."""
    places = [each.name.rpartition("__")[2] for each in tensors]
    if not all(place.isdigit() for place in places):
        return list(tensors)
    return [tensors[at] for at in sorted(range(len(places)), key=lambda at: int(places[at]))]


def _version(config: Any, folder: Path) -> Path:
    """Return the folder of the version that is served: the highest, or the highest that a policy names."""
    there = _versions(folder)
    named = set(config.version_policy.specific.versions) & there.keys()
    chosen = max(named or there, default=None)
    if chosen is None:
        raise TargetError("it has no version; expected a folder 1 with the model's file")
    return there[chosen]


def _versions(folder: Path) -> dict[int, Path]:
    return {int(each.name): each for each in folder.iterdir() if is_version(each.name) and each.is_dir()}


def _tensor(stated: Any, batch: int, labels: Path | None = None) -> Tensor:
    sides: list[Dimension] = [
        int(side) if side >= 0 else f"{stated.name}.{at}"
        for at, side in enumerate(stated.dims, 1 if batch else 0)
    ]
    kind = oip.DataType.Name(stated.data_type).removeprefix("TYPE_")
    if kind == "INVALID":
        raise TargetError(f"{stated.name!r} states no data_type")
    names = labels.read_text("utf-8").split("\n") if labels is not None and labels.is_file() else []
    told = tuple(name.strip() for name in names if name.strip())
    datatype = "BYTES" if kind == "STRING" else kind
    optional = bool(getattr(stated, "optional", False))
    return Tensor(stated.name, datatype, ("batch", *sides) if batch else tuple(sides), told, optional)


def _notes(config: Any) -> Iterator[str]:
    for name, instead in _LEFT_OUT:
        field = config.DESCRIPTOR.fields_by_name[name]
        value = getattr(config, name)
        if value if field.is_repeated else config.HasField(name):
            yield f"{name} is left out: {instead}"
    for each in config.input:
        if any(side < 0 for side in each.dims):
            yield f"input {each.name!r} has a free dimension, measured as 1: option `dim.*` states another"
