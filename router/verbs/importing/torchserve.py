"""A model archive of TorchServe, unpacked as a model folder (its model-archiver's README has the form)."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

from router.settings.values.document import read_document
from router.settings.values.problems import SettingsError
from router.verbs.importing import archived
from router.verbs.target.errors import TargetError
from router.verbs.target.target import plain_name
from router.verbs.target.writing import write_file

CODE: Final = "model.py"
"""A copy of `router.verbs.importing.archived`."""
LEFT_OUT: Final = {
    "minWorkers": "the gateway starts a replica on each slice, or as many as `replicas:` allows",
    "maxBatchDelay": "the gateway finds batches by the SLO",
    "responseTimeout": "the SLO says how long an answer may take",
    "deviceType": "the slices say where a model computes",
}


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive. `batch_max`: the rows that its handler takes at once; `notes`: what was left out."""

    name: str
    batch_max: int
    notes: tuple[str, ...]


def unpack_archive(file: Path, example: Path | None, models: Path) -> Archive:
    """Write the model folder of an archive below `models`. `example`: a body that the handler takes.

    Raises TargetError if the file is no archive, or the example is missing.
    """
    if example is None or not example.is_file():
        what = "states no body" if example is None else f"names {example}, which is no file"
        raise TargetError(
            f"--example {what}; expected a body that the handler takes, such as a picture or JSON"
        )
    try:
        archive = ZipFile(file)
    except (BadZipFile, OSError) as error:
        raise TargetError(f"{file} is no model archive of TorchServe: {error}") from None
    with archive:
        manifest = _manifest(file, archive)
        name = plain_name(str(manifest.get("modelName") or file.stem))
        folder = models / name
        archive.extractall(folder / archived.ARCHIVE)
    shutil.copyfile(example, folder / archived.EXAMPLE)
    shutil.copyfile(str(archived.__file__), folder / CODE)
    config = _config(folder / archived.ARCHIVE / str(manifest.get("configFile") or archived.CONFIG))
    batch_max = config.get("batchSize", 1)
    if type(batch_max) is not int or batch_max < 1:
        raise TargetError(f"{file} states batchSize: {batch_max!r}; expected a number of 1 or more")
    write_file(folder / "model.yaml", _text(name, batch_max))
    return Archive(name, batch_max, tuple(_notes(manifest, config, folder)))


def _manifest(file: Path, archive: ZipFile) -> dict[str, Any]:
    try:
        found = json.loads(archive.read(archived.MANIFEST))["model"]
        if not isinstance(found, dict) or not found.get("handler"):
            raise KeyError("handler")
    except (KeyError, ValueError, TypeError) as error:
        raise TargetError(
            f"{file} has no {archived.MANIFEST} with a model and its handler: {error}"
        ) from None
    return found


def _config(file: Path) -> dict[str, Any]:
    """Return what the archive's own settings say. Raises TargetError if they are no YAML."""
    try:
        found = read_document(file).value if file.is_file() else None
    except SettingsError as error:
        raise TargetError(str(error)) from None
    return found if isinstance(found, dict) else {}


def _text(name: str, batch_max: int) -> str:
    return (
        "# `penstock import --torchserve` wrote this. docs/models.md explains the keys.\n"
        f"name: {name}\nbatch_max: {batch_max}\n"
        "inputs: [{name: BODY, datatype: BYTES, shape: [-1, 1]}]\n"
        "outputs: [{name: ANSWER, datatype: BYTES, shape: [-1, 1]}]\n"
        f"variants: [{{name: default, artifact: {archived.ARCHIVE}}}]\n"
    )


def _notes(manifest: dict[str, Any], config: dict[str, Any], folder: Path) -> list[str]:
    notes = [f"{key} is left out: {why}" for key, why in LEFT_OUT.items() if key in config]
    if "batchSize" not in config:
        notes.append(
            "no batchSize is stated, so batches have one row; raise batch_max if the handler takes more"
        )
    if requirements := manifest.get("requirementsFile"):
        needs = folder / archived.ARCHIVE / str(requirements)
        notes.append(f"install what it needs: `pip install -r {needs}`, or `python:` of a slice")
    if not (
        folder / archived.ARCHIVE / f"{str(manifest['handler']).partition(':')[0].removesuffix('.py')}.py"
    ).is_file():
        notes.append("its handler is TorchServe's own: `pip install torchserve`")
    return notes
