"""The models that a node has: each content once, and a folder for each parcel, of links to contents.

blobs/<sha256>      a content
parcels/<digest>/   the files of a parcel, in `folder`, `code` and `artifact`
"""

import os
import re
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from serving.runtime.nodes.notes import Offer, ParcelFile
from serving.values.tensor import Buffer

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class ParcelError(Exception):
    """What the gateway sent cannot be kept; the text says why."""


class _Hash(Protocol):
    def update(self, data: Buffer, /) -> None: ...
    def hexdigest(self) -> str: ...


class _Coming:
    """A content that is being received."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("xb")
        self.digest: _Hash = sha256()


class ModelCache:
    """The folder of one node. Nothing in it is used before it is whole."""

    def __init__(self, root: Path) -> None:
        """Raises OSError if the folder cannot be made."""
        self._blobs, self._parcels = root / "blobs", root / "parcels"
        for each in (self._blobs, self._parcels):
            each.mkdir(parents=True, exist_ok=True)
            for scratch in each.glob(".*"):  # of a node that was killed
                _remove(scratch)
        self._coming: dict[str, _Coming] = {}

    def wanted(self, offer: Offer) -> tuple[str, ...]:
        """Return the contents that are not here. Raises ParcelError if a name leaves the parcel."""
        for each in offer.files:
            _check(each)
        if self._is_there(offer):
            return ()
        blobs = dict.fromkeys(each.blob for each in offer.files)
        return tuple(each for each in blobs if not (self._blobs / each).exists())

    def take(self, blob: str, data: Buffer, last: bool) -> None:
        """Take the next part of a content. Raises OSError or ParcelError if it cannot be kept."""
        if _DIGEST.fullmatch(blob) is None:
            raise ParcelError(f"{blob!r:.80} is no content")
        coming = self._coming.get(blob)
        if coming is None:
            coming = self._coming[blob] = _Coming(self._blobs / f".{uuid.uuid4().hex}")
        coming.file.write(data)
        coming.digest.update(data)
        if last:
            del self._coming[blob]
            coming.file.close()
            if (found := coming.digest.hexdigest()) != blob:
                coming.path.unlink()
                raise ParcelError(f"a content is {found[:12]} where {blob[:12]} was due")
            coming.path.chmod(0o444)  # every parcel with the content has this very file
            coming.path.replace(self._blobs / blob)

    def build(self, offer: Offer) -> Path:
        """Return the folder of a parcel with all contents here. Raises OSError if it cannot be made."""
        root = self._parcels / offer.digest
        if self._is_there(offer):
            os.utime(root)
            return root
        scratch = self._parcels / f".{uuid.uuid4().hex}"
        try:
            (scratch / "folder").mkdir(parents=True)
            for each in offer.files:
                path = scratch / each.place / each.name
                path.parent.mkdir(parents=True, exist_ok=True)
                os.link(self._blobs / each.blob, path)
            scratch.replace(root)
        except OSError:
            _remove(scratch)
            raise
        return root

    def give_up(self) -> None:
        """Forget what has not come whole."""
        for each in self._coming.values():
            each.file.close()
            each.path.unlink(missing_ok=True)
        self._coming.clear()

    def prune(self, bytes_max: int, used: Mapping[str, object]) -> None:
        """Remove the parcels that were used the longest ago, until the contents take at most so many bytes.
        `used`: digests of parcels that stay."""
        parcels = sorted(self._parcels.iterdir(), key=lambda path: path.stat().st_mtime)
        for parcel in parcels:
            if self._held_bytes() <= bytes_max:
                return
            if parcel.name not in used:
                _remove(parcel)
                for blob in self._blobs.iterdir():
                    if blob.stat().st_nlink == 1:
                        blob.unlink()

    def _held_bytes(self) -> int:
        return sum(blob.stat().st_size for blob in self._blobs.iterdir())

    def _is_there(self, offer: Offer) -> bool:
        if _DIGEST.fullmatch(offer.digest) is None:
            raise ParcelError(f"{offer.digest!r:.80} is no parcel")
        return (self._parcels / offer.digest).is_dir()


def _check(file: ParcelFile) -> None:
    name = PurePosixPath(file.name)
    if name.is_absolute() or ".." in name.parts or not name.parts or "\0" in file.name:
        raise ParcelError(f"{file.name!r:.80} is no name below a folder")
    if _DIGEST.fullmatch(file.blob) is None:
        raise ParcelError(f"{file.blob!r:.80} is no content")


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
