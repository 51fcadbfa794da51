"""penstock.yaml while the gateway runs: an edit is carried out whole, or refused with reasons."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, time
from typing import Final

from router.editions import Edition, changes, read_edition
from router.operations.current import Refused
from router.operations.differences import differences
from router.operations.repository import Repository
from router.settings import Settings, SettingsError, load_settings
from router.settings.document import Document
from router.settings.gateway import read_door, read_logs, read_server
from router.settings.problems import Loc

logger = logging.getLogger(__name__)

AGAIN_S: Final = 0.1
"""What has not begun to change anything cannot be given up yet."""

Say = Callable[[str], None]


class Watch:
    """Follows one penstock.yaml. `refused`: why its latest edit is not in force; () where it is.
    `in_force_s`: when what it says was last read and in force, in seconds of Unix time."""

    def __init__(self, repository: Repository, say: Say, say_in_force: Say) -> None:
        """`say_in_force` takes the sentence that an edit is in force, `say` all others."""
        self.refused: tuple[str, ...] = ()
        self.in_force_s = time()
        self._repository = repository
        self._say = say
        self._say_in_force = say_in_force
        self._path = repository.filed.path
        self._seen: Edition | None = None
        self._looked = False

    async def run(self) -> None:
        """Until it is cancelled, or the file cannot be watched."""
        looking = asyncio.create_task(self._look())  # it may have been edited since it was read at the start
        try:
            async for _ in changes(self._path):
                while not looking.done() and await self._is_new():
                    self._repository.give_up()  # what is edited again is not wanted any more
                    await asyncio.wait([looking], timeout=AGAIN_S)
                if looking.done():
                    looking = asyncio.create_task(self._look())
        except Exception as error:  # of inotify: watches are a bounded resource of the machine
            logger.exception("watching %s failed", self._path)
            self._say(f"{self._path} is not watched any more, an edit needs a restart: {error}")
        finally:
            looking.cancel()

    async def _look(self) -> None:
        try:
            await self.look()
        except Exception:  # a bug: the next edit may fare better
            logger.exception("following %s failed", self._path)
            self._refuse(("it failed inside the gateway, whose log says how",))

    async def look(self) -> None:
        """Follow the file where it is another than at the last look; one that is gone is waited for."""
        if not await self._is_new():
            return
        began = monotonic()
        self._seen = await asyncio.to_thread(read_edition, self._path)
        self._looked = True
        if self._seen is None:
            self._say(f"{self._path} is gone: what it said stays in force until it is back")
            return
        try:
            filed = await asyncio.to_thread(load_settings, self._path)
        except SettingsError as error:
            self._refuse([str(problem) for problem in error.problems])
            return
        before = self._repository.filed
        if not self.refused and _value(before) == _value(filed):
            self.in_force_s = time()
            return  # other comments, or the first look
        if fixed := [*needs_restart(before, filed)]:
            self._refuse(fixed)
            return
        if await self._is_new():
            return  # and is looked at next
        for warning in filed.warnings:
            self._say(f"warning: {warning}")
        self._say(
            f"{self._path} was edited: {'; '.join(differences(before, filed)) or 'nothing that is served'}"
        )
        try:
            await self._repository.follow(filed)
        except Refused as error:
            self._refuse(error.reasons)
            return
        self.refused = ()
        self.in_force_s = time()
        self._say_in_force(f"{self._path} is in force ({monotonic() - began:.1f} s)")

    async def _is_new(self) -> bool:
        return not self._looked or await asyncio.to_thread(read_edition, self._path) != self._seen

    def _refuse(self, reasons: Sequence[str]) -> None:
        self.refused = tuple(reasons)
        self._say(f"the edit of {self._path} is refused, nothing of it is done:")
        for reason in reasons:
            self._say(f"  {reason}")


def _value(settings: Settings) -> object:
    return settings.document.value if settings.document else None


def needs_restart(old: Settings, new: Settings) -> Iterator[str]:
    """What of the new file no running gateway can change, with its place, a sentence each."""
    if old.document is None or new.document is None:  # not read from files
        return
    for section, before, after in _fixed(old, old.document, new, new.document):
        if before == after:
            continue
        for loc in _differing(section, old.document, new.document):
            message = "cannot be changed while the gateway runs: it needs a restart"
            yield str(new.document.problem(loc, message, at_key=len(loc) > 1))


def _fixed(
    old: Settings, old_document: Document, new: Settings, new_document: Document
) -> Iterator[tuple[str, object, object]]:
    """The sections of penstock.yaml that count at the start only: (key, what was said, what is said)."""
    yield "server", read_server(old_document), read_server(new_document)  # whatever the command line said
    yield "admin", read_door(old_document), read_door(new_document)
    yield "limits", old.limits, new.limits
    yield "tenants", old.tenants, new.tenants
    yield "profiles", (old.profiles, old.remeasure), (new.profiles, new.remeasure)
    yield "recording", old.recording, new.recording
    yield "cache", old.cache, new.cache
    yield "workers", old.workers, new.workers
    yield "auth", old.auth, new.auth
    yield "logging", read_logs(old_document), read_logs(new_document)


def _differing(section: str, old: Document, new: Document) -> list[Loc]:
    """The section, or those of its keys that are said otherwise."""
    before, after = old.at((section,)), new.at((section,))
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [(section,)]
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [(section, key) for key in keys] or [(section,)]
