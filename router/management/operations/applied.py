"""What was applied outlives a restart: it is kept in a file beside penstock.yaml, until that says otherwise.

The file is `.penstock/<stem>.placement.json` in the folder of the settings. It holds while the `slices:` of
the settings, the names of their models and the slices of each are what they were when it was applied; where
they are others the settings count.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from router.management.operations.slice_json import number, read_slice, text, told_slice
from router.settings import Settings
from router.settings.machine.slices import usable_cores
from router.settings.values.kept_json import kept_path
from serving.profile.files.shared_files import read_regular, replace_file, sync_folder
from serving.runtime.slicing.choice import device_named
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.inventory import take_inventory
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel

FORMAT = 2
FORMATS = (1, FORMAT)
"""What is read: 1 is of earlier versions, and told cores otherwise (`slice_json.py`)."""
FILE_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class PlannedFor:
    """What a plan was made for, of one model: requests a second, the rows of each (a mean), and the rows a
    second that the placement carries."""

    requests: float
    rows: float
    capacity: float


@dataclass(frozen=True, slots=True)
class AppliedPlacement:
    """A placement that was applied.

    `id` names it; `at`: when, in words; `digest`: of the settings that it stands in for; `models`: the slices
    of each; `loads` by model, of those that the plan knew.
    """

    id: str
    at: str
    digest: str
    slices: tuple[SliceSpec, ...]
    models: Mapping[str, tuple[str, ...]]
    loads: Mapping[str, PlannedFor] = field(default_factory=dict)


def path_of(settings: Path) -> Path:
    """Return where the placement that was applied to these settings is kept."""
    return kept_path(settings, "placement")


def digest(settings: Settings) -> str:
    """Return a digest of what a placement stands in for, as the file has it: slices, models, and each model's
    slices."""
    told = [
        [
            [
                each.name,
                each.cores,
                each.threads,
                each.memory_bytes,
                *([each.price] if each.price else []),
                *(["spot"] if each.spot else []),
                *([each.device, str(each.share), each.instance] if each.device != "cpu" else []),
                *([each.node] if each.node else []),
            ]
            for each in settings.slices
        ],
        [[each.name, each.slices] for each in settings.models if each.name == each.spec.model_name],
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def settings_in_force(settings: Settings) -> tuple[Settings, str | None]:
    """Return (the settings of the file with the slices that were applied to them, a sentence to say)."""
    found, said = standing(settings)
    return (settings if found is None else in_force(settings, found)), said


def standing(settings: Settings) -> tuple[AppliedPlacement | None, str | None]:
    """Return (what was applied to the settings and still holds, a sentence on that or on why it does not)."""
    file, name = path_of(settings.path), settings.path.name
    try:
        found = read(settings.path)
    except OSError as error:
        return None, f"{file} is passed over: it cannot be read: {error.strerror or error}"
    except ValueError as error:
        return None, f"{file} is passed over: it holds no applied placement ({error}); delete it"
    if found is None:
        return None, None
    if found.digest != digest(settings):
        changed = f"{name} has other slices or models than when a placement was applied ({found.at})"
        return None, f"{changed}: {name} counts, not {file}"
    if missing := _missing(found.slices):
        said = f"{file} is passed over: it uses {missing}, not usable here; apply a placement anew"
        return None, said
    said = f"slices are as a placement has them that was applied ({found.at}), not as {name} has"
    return found, f"{said}; it is kept in {file}"


def _missing(slices: Sequence[SliceSpec]) -> str:
    """Return the cores and GPUs of these slices that are not here, "" if all are; nodes' may come."""
    slices = [each for each in slices if not each.node]
    cores = sorted({core for each in slices for core in each.cores} - {*usable_cores()})
    if cores:
        return f"cores {', '.join(map(str, cores))}" if len(cores) > 1 else f"core {cores[0]}"
    devices = sorted({each.device for each in slices if each.device != "cpu" and not each.rehearsed})
    if not devices:
        return ""
    inventory = take_inventory()
    for each in devices:
        try:
            device_named(each, inventory, os.environ)
        except SlicingError as error:
            return f"{each} ({error})"
    return ""


def in_force(settings: Settings, found: AppliedPlacement) -> Settings:
    """Return the settings with these slices. A model that the placement does not know keeps those of its
    slices that are there, or is on all."""
    names = [each.name for each in found.slices]
    how = {name: each.rehearsal for each in settings.devices for name in each.names}
    return replace(
        settings,
        slices=tuple(replace(each, rehearsal=how.get(each.device, each.rehearsal)) for each in found.slices),
        models=tuple(
            replace(each, slices=_places(found, each) or remaining(each, names)) for each in settings.models
        ),
    )


def _places(found: AppliedPlacement, model: ServedModel) -> tuple[str, ...]:
    """Return the slices of the model; a version that has come since is where the model is."""
    return found.models.get(model.name) or found.models.get(model.spec.model_name, ())


def remaining(model: ServedModel, names: Sequence[str]) -> tuple[str, ...]:
    """Return the slices of the model that are among `names`; all of these where none is."""
    return tuple(name for name in model.slices if name in names) or tuple(names)


def read(settings: Path) -> AppliedPlacement | None:
    """Return the placement that is kept; None if there is none.

    Raises OSError, or ValueError that says what is wrong with the file.
    """
    try:
        content = read_regular(path_of(settings), FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(content) > FILE_BYTES_MAX:
        raise ValueError("it is too large")
    try:
        return _standing(json.loads(content))
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def kept(settings: Path) -> AppliedPlacement | None:
    """Return the placement that is kept, as `read` does; None also if it cannot be read."""
    try:
        return read(settings)
    except (OSError, ValueError):
        return None


def applied(settings: Settings) -> AppliedPlacement | None:
    """Return the placement that is kept, if its slices are the slices of these settings, which are in
    force."""
    found = kept(settings.path)
    return found if found is not None and in_force(settings, found).slices == settings.slices else None


def keep(settings: Path, found: AppliedPlacement) -> None:
    """Keep the placement, in one step: readers see all of the old or all of the new. Raises OSError if it
    cannot be kept."""
    told = asdict(found) | {"format": FORMAT}
    told["slices"] = [told_slice(each) for each in found.slices]
    file = path_of(settings)
    file.parent.mkdir(exist_ok=True)
    replace_file(file, json.dumps(told, indent=1) + "\n")


def forget(settings: Path) -> None:
    """Make sure that nothing is applied from now on. Raises OSError if that fails."""
    file = path_of(settings)
    file.unlink(missing_ok=True)
    if file.parent.is_dir():
        sync_folder(file.parent)


def put_back(settings: Path, was: AppliedPlacement | None) -> None:
    """Put the placement back as it was before. Raises OSError if that fails."""
    if was is None:
        forget(settings)
    else:
        keep(settings, was)


def _standing(told: Any) -> AppliedPlacement:
    """Return the placement in the JSON. Raises ValueError, TypeError, KeyError, AttributeError or
    OverflowError if the JSON is something else."""
    if told["format"] not in FORMATS:
        raise ValueError(f"its format is {told['format']!r}, expected {FORMAT}")
    slices = tuple(read_slice(each) for each in told["slices"])
    names = {each.name for each in slices}
    models = {text(name): tuple(map(text, on)) for name, on in told["models"].items()}
    if not slices or len(names) < len(slices):
        raise ValueError("its slices have no names of their own")
    if any(not on or not names.issuperset(on) for on in models.values()):
        raise ValueError("a model of it has no slice, or one that is not there")
    loads = {text(name): PlannedFor(**{key: number(value) for key, value in each.items()})
             for name, each in told["loads"].items()}  # fmt: skip
    return AppliedPlacement(text(told["id"]), text(told["at"]), text(told["digest"]), slices, models, loads)
