"""What a gateway keeps over restarts: files of JSON in `.penstock/`, beside penstock.yaml."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar  # Any: parsed JSON

from serving.profile.files.shared_files import read_regular, replace_file

BYTES_MAX: Final = 16 << 20
Found = TypeVar("Found")


def kept_path(settings: Path, name: str) -> Path:
    """Return where something of that name is kept for these settings."""
    return settings.parent / ".penstock" / f"{settings.stem}.{name}.json"


class KeptJson:
    """One such file. It can be done without: what is wrong with it is logged. `what` it has, as a sentence
    begins."""

    def __init__(self, path: Path, what: str, logger: logging.Logger) -> None:
        self._path = path
        self._what = what
        self._logger = logger
        self._unkept = ""  # why it could not be written the last time

    def read(self, parse: Callable[[Any], Found], none: Found) -> Found:
        """Return what `parse` makes of the content; `none` if there is no file, or no use of it."""
        try:
            return parse(json.loads(read_regular(self._path, BYTES_MAX)))
        except FileNotFoundError:
            return none
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._logger.warning("%s cannot be read: %s: %s", self._what, self._path, error)
            return none

    def keep(self, content: object) -> None:
        """Write the content in its place; blocks. Why that fails is said once."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(content, indent=1) + "\n")
            self._unkept = ""
        except OSError as error:
            why = error.strerror or str(error)
            if why != self._unkept:
                self._logger.warning("%s cannot be kept: %s: %s", self._what, self._path, why)
            self._unkept = why
