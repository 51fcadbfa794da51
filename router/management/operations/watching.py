"""penstock.yaml while the gateway runs: an edit is carried out whole, or refused with reasons."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic, time

from router.management.operations.current import ChangeRefused
from router.management.operations.differences import differences
from router.management.operations.repository.repository import Repository
from router.settings import Settings, SettingsError, load_settings
from router.settings.file_following import Edition, FileFollower, Say, read_edition
from router.settings.gateway import read_door, read_logs, read_server
from router.settings.values.document import Document
from router.settings.values.problems import Loc, SettingsProblem
from serving.values.nodes import NodesSpec
from serving.values.specs import TenantSpec


class SettingsWatch(FileFollower):
    """Follows one penstock.yaml. `in_force_s`: when what it says was last read and in force, in seconds of
    Unix time."""

    def __init__(self, repository: Repository, say: Say, say_in_force: Say) -> None:
        """Build the watch. `say_in_force` prints that an edit is in force; `say` prints all other
        sentences."""
        gone, unchanged = "what it said stays in force until it is back", "nothing of it is done"
        super().__init__(repository.filed.path, say, gone, unchanged)
        self.in_force_s = time()
        self._repository = repository
        self._say_in_force = say_in_force
        self._wanted: Settings | None = None  # the change that is under way
        self._ahead: tuple[Edition | None, Settings | None] | None = None  # what waits for its end

    async def _take(self) -> None:
        began = monotonic()
        try:
            filed = await asyncio.to_thread(self._load)
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
        for warning in _new_warnings(before, filed):
            self._say(f"warning: {warning}")
        self._say(
            f"{self._path} was edited: {'; '.join(differences(before, filed)) or 'nothing that is served'}"
        )
        self._wanted = filed
        try:
            await self._repository.follow(filed)
        except ChangeRefused as error:
            self._refuse(error.reasons)
            return
        finally:
            self._wanted = None
        self.refused = ()
        self.in_force_s = time()
        self._say_in_force(f"{self._path} is in force ({monotonic() - began:.1f} s)")

    async def _overtaken(self) -> None:
        """Give up a change that is under way if the file now says something else that can be in force. A
        fault, a mere touch or a file that is gone for a moment leave the change alone."""
        edition = await asyncio.to_thread(read_edition, self._path)
        if self._ahead is None or self._ahead[0] != edition:
            self._ahead = edition, await asyncio.to_thread(self._readable)
        wanted, ahead = self._wanted, self._ahead[1]
        if wanted is not None and ahead is not None and _value(ahead) != _value(wanted):
            self._repository.give_up()

    def _load(self) -> Settings:
        return load_settings(self._path, self._repository.filed.rehearse)

    def _readable(self) -> Settings | None:
        """Return what the file says, where that can be in force."""
        try:
            filed = self._load()
        except SettingsError:
            return None
        return None if any(needs_restart(self._repository.filed, filed)) else filed


def _value(settings: Settings) -> object:
    return settings.document.value if settings.document else None


def _new_warnings(before: Settings, filed: Settings) -> Iterator[SettingsProblem]:
    """Yield those that the settings before did not have, wherever in the file: lines and list entries
    move."""
    known = Counter(map(_what, before.warnings))
    for warning in filed.warnings:
        known[_what(warning)] -= 1
        if known[_what(warning)] < 0:
            yield warning


def _what(warning: SettingsProblem) -> tuple[str, str]:
    return re.sub(r"\[\d+\]", "[]", warning.where), warning.message


def needs_restart(old: Settings, new: Settings) -> Iterator[str]:
    """Yield a sentence, with its place, on each thing in the new file that no running gateway can change."""
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
    """Yield the sections of penstock.yaml that count at the start only: (key, what was said, what is
    said)."""
    yield "server", read_server(old_document), read_server(new_document)  # whatever the command line said
    yield "admin", read_door(old_document), read_door(new_document)
    yield "limits", old.limits, new.limits
    yield "tenants", _without_rates(old), _without_rates(new)
    yield "profiles", (old.profiles, old.remeasure), (new.profiles, new.remeasure)
    yield "recording", old.recording, new.recording
    yield "cache", old.cache, new.cache
    yield "workers", old.workers, new.workers
    yield "mig", old.placement.recut, new.placement.recut
    yield "tracing", old.tracing, new.tracing
    yield "auth", old.auth, new.auth
    yield "nodes", _without_names(old), _without_names(new)
    yield "cells", old.cells, new.cells
    yield "logging", read_logs(old_document), read_logs(new_document)


def _without_names(settings: Settings) -> NodesSpec | None:
    """Return the door; which nodes there are follows from the slices."""
    return settings.nodes and replace(settings.nodes, names=())


def _without_rates(settings: Settings) -> list[TenantSpec]:
    return [replace(each, rate=None) for each in settings.tenants]


def _differing(section: str, old: Document, new: Document) -> list[Loc]:
    """Return the section, or those of its keys that are said otherwise."""
    before, after = old.at((section,)), new.at((section,))
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [(section,)]
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [(section, key) for key in keys] or [(section,)]
