"""The files that a worker on another machine needs for a variant, named by their content.

A parcel has the model's folder without the artifacts of other variants, and the code and the artifact where
they lie elsewhere. A worker there finds each at the same place relative to the folder.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Final, Literal

from serving.profile.files.shared_files import open_regular
from serving.runtime.files.artifacts import files_of_artifact
from serving.runtime.nodes.notes import ParcelFile
from serving.values.specs import ModelSpec
from serving.worker.frames.orders import LoadOrder

Place = Literal["folder", "code", "artifact"]
_Found = tuple[Place, str, Path]

LEFT_OUT: Final = frozenset(("__pycache__", ".git", ".venv", "node_modules"))
"""Folders that no model needs of its folder."""
_KNOWN: dict[Path, tuple[tuple[int, int, int], str]] = {}  # digests, by what the files were then


@dataclass(frozen=True, slots=True)
class Parcel:
    """`paths`: where this machine has each content. `digest`: of all names and contents."""

    digest: str
    files: tuple[ParcelFile, ...]
    paths: Mapping[str, Path]


def parcel_of(order: LoadOrder, model: ModelSpec) -> Parcel:
    """Return the parcel of a variant. It reads the files, up to 1 s a gigabyte: call it in a thread.

    Raises OSError if a file cannot be read.
    """
    files: dict[tuple[str, str], ParcelFile] = {}
    paths: dict[str, Path] = {}
    for place, name, path in _found(order, model):
        size_bytes, blob = _digest(path)
        files[place, name] = ParcelFile(place, name, size_bytes, blob)
        paths[blob] = path
    ordered = tuple(files[key] for key in sorted(files))
    told = "\n".join(f"{each.place} {each.blob} {each.name!r}" for each in ordered)
    return Parcel(sha256(told.encode(errors="surrogateescape")).hexdigest(), ordered, paths)


def placed(order: LoadOrder, root: Path) -> LoadOrder:
    """Return the order with the paths that it has below the parcel's root on a node."""
    return replace(
        order,
        folder=root / "folder",
        code=order.code and _moved(order, order.code, root, "code"),
        artifact=order.artifact and _moved(order, order.artifact, root, "artifact"),
    )


def _moved(order: LoadOrder, path: Path, root: Path, place: Place) -> Path:
    if path.is_relative_to(order.folder):
        return root / "folder" / path.relative_to(order.folder)
    # A folder's files are named from it, and a file's beside it from the folder that both are in.
    return root / place if path.is_dir() else root / place / path.name


def _found(order: LoadOrder, model: ModelSpec) -> Iterator[_Found]:
    others = {
        each.artifact.resolve() for each in model.variants if each.artifact and each.name != order.variant
    }
    others.discard(order.artifact or order.folder)
    for path in _below(order.folder, others):
        yield "folder", str(path.relative_to(order.folder)), path
    if order.code is not None and not order.code.is_relative_to(order.folder):
        for path in sorted(order.code.parent.glob("*.py")):
            yield "code", path.name, path
    if order.artifact is not None and not order.artifact.is_relative_to(order.folder):
        for name, path in files_of_artifact(order.artifact):
            yield "artifact", name, path


def _below(folder: Path, others: set[Path]) -> Iterator[Path]:
    """Yield the files below a folder, without what `others` name."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(
            each for each in folders if each not in LEFT_OUT and Path(root, each).resolve() not in others
        )
        for name in sorted(names):
            path = Path(root, name)
            if path.is_file() and path.resolve() not in others:
                yield path


def _digest(path: Path) -> tuple[int, str]:
    """Return the size and SHA-256 of a file; a file that has not changed is not read again."""
    with open_regular(path) as file:
        about = os.fstat(file.fileno())
        state = (about.st_ino, about.st_size, about.st_mtime_ns)
        known = _KNOWN.get(path)
        if known is None or known[0] != state:
            _KNOWN[path] = known = (state, file_digest(file, "sha256").hexdigest())
        return about.st_size, known[1]
