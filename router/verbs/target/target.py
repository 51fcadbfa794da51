"""What `penstock serve` is asked to serve: a settings file, or one model in a file or on another server."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
        if not (path / "model.yaml").is_file():
            raise TargetError(f"{text} is a folder without model.yaml; expected {FORMS}")
        return Target(text, plain_name(path.absolute().name), "", whole)
    backend = BACKENDS.get(path.suffix)
    if backend is None:
        raise TargetError(f"{text} is no model that Penstock knows; expected {FORMS}")
    return Target(text, plain_name(path.stem), backend, whole)


def plain_name(text: str) -> str:
    """Return a name that settings allow."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "model"
