"""Where the files of a model are: in its folder, or in the numbered folders of its versions.

As with Triton, `models/digits/2/` is version 2 of the model in `models/digits/`. The model.yaml beside the
numbered folders describes all versions. Each file that it names may be in the version's folder, or beside
model.yaml for all. A version with other properties has a model.yaml of its own in its folder.
"""

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from router.settings.values.document import read_document
from router.settings.values.problems import SettingsError

MODEL_FILE: Final = "model.yaml"
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")
_CODE: Final = "model.py"
"""The code of a model whose model.yaml names none."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """`home`: the folder with model.yaml; `version`: the numbered folder in it, 0 for a model without
    versions."""

    home: Path
    version: int = 0

    @property
    def own(self) -> Path:
        """The folder of the version, or of a model without versions."""
        return self.home / str(self.version) if self.version else self.home

    @property
    def model_file(self) -> Path:
        """The model.yaml that describes the version."""
        own = self.own / MODEL_FILE
        return own if os.path.isfile(own) else self.home / MODEL_FILE  # unlike Path.is_file, never an OSError

    def path(self, file: str) -> Path:
        """Return where a file lies that model.yaml names: in the version's folder, or else beside them."""
        own = self.own / file
        return self.home / file if not os.path.exists(own) and os.path.exists(self.home / file) else own

    def code(self, stated: str | None) -> Path | None:
        """Return the file of the model's code; None for the usual name in the version's own folder."""
        if stated is not None:
            return self.path(stated)
        found = self.path(_CODE)
        return None if found == self.own / _CODE else found


def is_version(name: str) -> bool:
    """Return whether a folder of that name is a version: a number without a leading zero, as with Triton."""
    return _NUMBER.fullmatch(name) is not None


def locate(folder: Path) -> ModelFolder:
    """Return the model in a folder: of one with versions the highest, of a numbered folder in it that one."""
    home = folder.parent
    if is_version(folder.name) and int(folder.name) in versions_in(home):
        return ModelFolder(home, int(folder.name))
    return ModelFolder(folder, max(versions_in(folder), default=0))


def versions_in(home: Path) -> tuple[int, ...]:
    """Return the versions of the model in `home`, ascending; () if it has none.

    It has none if its model.yaml names a file in a numbered folder itself.
    """
    try:
        with os.scandir(home) as entries:
            there = sorted(int(each.name) for each in entries if is_version(each.name) and each.is_dir())
    except (OSError, ValueError):  # no such folder, or no name of one
        return ()
    if not there or not os.path.isfile(home / MODEL_FILE):
        return ()
    named = stated_in(home).folders
    return () if any(str(number) in named for number in there) else tuple(there)


class Stated(NamedTuple):
    """What finding and choosing a model's files needs of its model.yaml. `name`: "" for none; `policy`: its
    `version_policy` as it stands there; `folders`: the first parts of the paths that it names."""

    name: str = ""
    policy: object = None
    folders: frozenset[str] = frozenset()


def stated_in(home: Path) -> Stated:
    """Return what the model.yaml in a folder states; nothing where it cannot be read: load_model says why."""
    file = home / MODEL_FILE
    try:
        about = file.stat()
    except OSError:  # it was there a moment ago
        return Stated()
    return _stated(file, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=4096)
def _stated(file: Path, _mtime_ns: int, _size: int) -> Stated:
    """Return it for a file of that age and size. Remembered: to parse a file takes milliseconds."""
    try:
        document = read_document(file)
    except SettingsError:
        return Stated()
    name, variants = document.at(("name",)), document.at(("variants",))
    count = len(variants) if isinstance(variants, list) else 0
    named = [document.at(("variants", place, "artifact")) for place in range(count)]
    paths = [each for each in (*named, document.at(("code",))) if isinstance(each, str)]
    folders = frozenset(part for each in paths for part in Path(each).parts[:1])
    return Stated(name if isinstance(name, str) else "", document.at(("version_policy",)), folders)
