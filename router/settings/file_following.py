"""The editions of a file that operators edit while the gateway runs: what it holds, and when it changes."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from watchfiles import awatch

from router.settings.values.document import FILE_BYTES_MAX
from serving.profile.files.shared_files import open_regular

QUIET_MS: Final = 100
"""Who writes a file in several steps pauses for less. As often watchfiles looks whether it is to end."""

GATHER_MS: Final = 2_000
"""A file that is written to all the time is read after this."""

SURE_MS: Final = 2_000
"""An edit that came between the last look and the begin of the watch is found after this."""

STEPS_MAX: Final = 1_000
"""Folders and links on the way to the file, so that links in a circle are an end too."""

AGAIN_S: Final = 0.1
"""What has not begun to change anything cannot be given up yet."""

logger = logging.getLogger(__name__)
logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it would log each event

Edition = tuple[int, int, bytes]
Say = Callable[[str], None]


def read_edition(path: Path) -> Edition | None:
    """Return what tells one edition of the file from another: inode, time of change and start; None where it
    cannot be read. A mere touch is an edition too: what was refused is tried again."""
    try:
        with open_regular(path) as file:
            about = os.fstat(file.fileno())
            return about.st_ino, about.st_mtime_ns, file.read(FILE_BYTES_MAX + 1)
    except OSError:
        return None


async def changes(path: Path) -> AsyncIterator[object]:
    """Yield something at each change on the way to the file, and once after a watch began, without end.

    Folders are watched, not the file: editors replace it by renaming, and a mounted ConfigMap swaps a link.
    If a link leads elsewhere from then on, the folders there are watched instead. Raises the errors of
    inotify: watches are a bounded resource of the machine.
    """
    while True:
        way = _way(path)
        async with aclosing(_watch(way)) as found:
            async for change in found:
                yield change
                if _way(path) != way:
                    break


async def _watch(way: set[tuple[Path, str]]) -> AsyncGenerator[object, None]:
    names = {name for _, name in way}  # logs may lie there too
    is_sure = False
    found = awatch(
        *{folder for folder, _ in way if folder.is_dir()},
        watch_filter=lambda _, path: not is_sure or Path(path).name in names,
        recursive=False,
        debounce=GATHER_MS,
        step=QUIET_MS,
        rust_timeout=SURE_MS,
        yield_on_timeout=True,
    )
    async with aclosing(found):
        async for change in found:
            if change or not is_sure:
                is_sure = True
                yield change


def _way(path: Path) -> set[tuple[Path, str]]:
    """Return the links and the file that lead from `path` to what is read: each with the folder that holds
    it, free of links itself. A mounted ConfigMap has three: penstock.yaml, ..data, and the file in the folder
    that ..data names."""
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


class FileFollower:
    """Follows a file: each edition counts whole, or is refused with reasons and what was said before stays.
    `refused`: why the latest does not count; () where it does."""

    def __init__(self, path: Path, say: Say, gone: str, unchanged: str) -> None:
        """Keep the ends of two sentences: `gone` says that the file is gone, `unchanged` that an edit is
        refused."""
        self.refused: tuple[str, ...] = ()
        self._path = path
        self._say = say
        self._gone = gone
        self._unchanged = unchanged
        self._seen: Edition | None = None
        self._looked = False

    async def run(self) -> None:
        """Follow the file until this is cancelled, or the file cannot be watched."""
        # It may have been edited since it was read at the start; `changes` finds what comes after this look.
        looking = asyncio.create_task(self._look())
        try:
            async for _ in changes(self._path):
                while not looking.done() and await self._is_new():
                    await self._overtaken()
                    await asyncio.wait([looking], timeout=AGAIN_S)
                if looking.done():
                    looking = asyncio.create_task(self._look())
        except Exception as error:  # of inotify: watches are a bounded resource of the machine
            logger.exception("watching %s failed", self._path)
            self._say(f"{self._path} is not watched any more, an edit needs a restart: {error}")
        finally:
            looking.cancel()

    async def look(self) -> None:
        """Follow the file where it is another than at the last look; one that is gone is waited for."""
        edition = await asyncio.to_thread(read_edition, self._path)
        if self._looked and edition == self._seen:
            return
        self._looked, self._seen = True, edition
        if edition is None:
            self._say(f"{self._path} is gone: {self._gone}")
        else:
            await self._take()

    async def _look(self) -> None:
        try:
            await self.look()
        except Exception:  # a bug: the next edit may fare better
            logger.exception("following %s failed", self._path)
            self._refuse([f"{self._path}: following it failed inside the gateway, whose log says how"])

    async def _take(self) -> None:
        """Read the file, and do what it says or `_refuse` it."""
        raise NotImplementedError

    async def _overtaken(self) -> None:
        """Handle another edit of the file while `_take` is under way; called again until that is done."""

    async def _is_new(self) -> bool:
        """Return whether the file is another than the one that was looked at last."""
        return not self._looked or await asyncio.to_thread(read_edition, self._path) != self._seen

    def _refuse(self, reasons: Sequence[str]) -> None:
        self.refused = tuple(reasons)
        self._say(f"the edit of {self._path} is refused, {self._unchanged}:")
        for reason in reasons:
            self._say(f"  {reason}")
