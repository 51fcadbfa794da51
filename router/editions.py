"""The editions of a file that operators edit while the gateway runs: what it holds, and when it changes."""

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

from watchfiles import awatch

from router.settings.document import FILE_BYTES_MAX
from serving.profile.shared_files import open_regular

QUIET_MS: Final = 100
"""Who writes a file in several steps pauses for less. As often watchfiles looks whether it is to end."""

GATHER_MS: Final = 2_000
"""A file that is written to all the time is read after this."""

STEPS_MAX: Final = 1_000
"""Folders and links on the way to the file, so that links in a circle are an end too."""

logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it would log each event

Edition = tuple[int, int, bytes]


def read_edition(path: Path) -> Edition | None:
    """What tells one edition of the file from another: inode, time of change and start; None where it cannot
    be read. A mere touch is an edition too: what was refused is tried again."""
    try:
        with open_regular(path) as file:
            about = os.fstat(file.fileno())
            return about.st_ino, about.st_mtime_ns, file.read(FILE_BYTES_MAX + 1)
    except OSError:
        return None


async def changes(path: Path) -> AsyncIterator[object]:
    """Something at each change on the way to the file, without end.

    Folders are watched, not the file: editors replace it by renaming, a mounted ConfigMap swaps a link.
    Where a link leads elsewhere from then on, the folders there are watched instead. Errors are those of
    inotify: watches are a bounded resource of the machine.
    """
    while True:
        way = _way(path)
        async with aclosing(_watch(way)) as found:
            async for change in found:
                yield change
                if _way(path) != way:
                    break


def _watch(way: set[tuple[Path, str]]) -> AsyncGenerator[object, None]:
    names = {name for _, name in way}  # logs may lie there too
    return awatch(
        *{folder for folder, _ in way if folder.is_dir()},
        watch_filter=lambda _, path: Path(path).name in names,
        recursive=False,
        debounce=GATHER_MS,
        step=QUIET_MS,
        rust_timeout=0,
    )


def _way(path: Path) -> set[tuple[Path, str]]:
    """The links and the file that lead from `path` to what is read: each with the folder that holds it, free
    of links itself. A mounted ConfigMap has three: penstock.yaml, ..data, and the file in the folder that
    ..data names."""
    found: set[tuple[Path, str]] = set()
    folder, ahead = Path("/"), [*reversed(Path(os.path.abspath(path)).parts[1:])]
    for _ in range(STEPS_MAX):
        if not ahead:
            break
        name = ahead.pop()
        if name == "..":
            folder = folder.parent
            continue
        place = folder / name
        if not ahead or place.is_symlink():
            found.add((folder, name))
        if not place.is_symlink():
            folder = place
            continue
        target = place.readlink()
        if target.is_absolute():
            folder = Path("/")
        ahead += reversed(target.parts[target.is_absolute() :])
    return found
