"""What `penstock serve` is asked to serve: a settings file, or one model in a file or on another server."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from router.settings import SettingsError, load_model
from router.verbs.target.errors import FORMS, TargetError

SETTINGS: Final = (".yaml", ".yml")
BACKENDS: Final[Mapping[str, str]] = {
    ".py": "python", ".onnx": "onnx", ".pt2": "torch_export", ".xml": "openvino",
    ".joblib": "sklearn", ".pkl": "sklearn", ".pickle": "sklearn",
}  # fmt: skip
HUB: Final = "hf:"
REMOTE: Final = "remote:"


@dataclass(frozen=True, slots=True)
class Target:
    """One model without settings. `artifact`: an absolute path, or HOST:PORT/MODEL of another server; a
    folder that has a model.yaml already has the backend ""."""

    text: str
    name: str
    backend: str
    artifact: str


def is_settings(text: str) -> bool:
    """Return whether the text names a settings file."""
    return text.endswith(SETTINGS)


def read_target(text: str) -> Target:
    """Return what the text names. Raises TargetError if it names nothing that can be served."""
    if text.startswith(HUB):
        named = text.removeprefix(HUB)
        folder = Path(named)
        artifact = str(folder.resolve()) if folder.is_dir() else named
        return Target(text, plain_name(folder.absolute().name), "transformers", artifact)
    if text.startswith(REMOTE):
        artifact = text.removeprefix(REMOTE)
        if not re.fullmatch(r"[^/\s]+:\d+/[^/\s]+", artifact):
            raise TargetError(f"{text} names no model of a server; expected remote:HOST:PORT/MODEL")
        return Target(text, plain_name(artifact.rpartition("/")[2]), "remote", artifact)
    path = Path(text)
    if not path.exists():
        raise TargetError(f"{text} is not there; expected {FORMS}")
    whole = str(path.resolve())
    if path.is_dir():
        if (path / "model.yaml").is_file():
            return Target(text, plain_name(path.absolute().name), "", whole)
        path = _only_model(path, text)
        whole = str(path.resolve())
    backend = BACKENDS.get(path.suffix)
    if backend is None:
        raise TargetError(f"{text} is no model that Penstock knows; expected {FORMS}")
    return Target(text, plain_name(path.stem), backend, whole)


def _only_model(folder: Path, text: str) -> Path:
    """Return the one model file in a folder, as storage of models brings it; hidden files are none."""
    found = sorted(each for each in folder.iterdir() if each.suffix in BACKENDS and each.name[0] != ".")
    if len(found) != 1:
        many = f"with {len(found)} model files" if found else "without a model file"
        raise TargetError(f"{text} is a folder without model.yaml, and {many}; expected {FORMS}")
    return found[0]


def named(target: Target, name: str | None) -> Target:
    """Return the target under a name of the operator's, None for its own. Raises TargetError for a name that
    settings do not allow, and for a folder whose model.yaml has another."""
    if name is None:
        return target
    if plain_name(name) != name:
        raise TargetError(f"--name {name} is no name of a model; expected one such as {plain_name(name)}")
    if not target.backend:
        own = _own_name(Path(target.artifact))
        if own != name:
            raise TargetError(f"--name {name}: {target.text}/model.yaml names the model {own}; expected that")
    return replace(target, name=name)


def _own_name(folder: Path) -> str:
    try:
        return load_model(folder).name
    except SettingsError as error:
        raise TargetError(str(error)) from None


def plain_name(text: str) -> str:
    """Return a name that settings allow."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "model"
