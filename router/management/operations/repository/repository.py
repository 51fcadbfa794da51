"""The model repository: which models there are, and their coming and going while the gateway runs.

What is served follows from penstock.yaml (`filed`), from a placement that was applied to it, and from what
clients have loaded and unloaded since (`Overlay`). Of each model the last word counts: a client's, or that
of an edit of the file that changes, adds or removes its entry.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from router.management.operations.current import ChangeRefused, Current
from router.management.operations.repository.modelconfig import Asked
from router.management.operations.repository.overlay import Overlay, Versions, with_batch_max
from router.management.operations.repository.refusals import (
    BAD_INPUT,
    DEALT,
    FAILED,
    NO_CONTROL,
    NOT_ALLOWED,
    RepositoryError,
    load_failed,
    not_found,
)
from router.settings import Settings, SettingsError
from router.settings.builds import identified, identify
from router.settings.door.headers import with_headers
from router.settings.gateway import read_served
from router.settings.model_file.delays import bounded
from router.settings.repository import find_folders, serve_alone
from router.settings.served.cache import asks_for_cache
from router.settings.served.versions import load_versions
from router.tensors.parts.wording import listed, quoted, suggestion
from serving.control.state.replicas import ReplicaStatus, SliceRecord
from serving.ports import Serving
from serving.values.specs import ModelSpec, ServedModel
from serving.values.versions import ONLY, model_of

LISTED_MAX = 8
"""Of the known models, in the sentence on an unknown one."""

Key = TypeVar("Key")

Configure = Callable[[ServedModel], Any]
Place = Callable[[Settings], Settings]
"""Settings of the file as they are in force where a placement was applied; may read files."""


class IndexEntry(NamedTuple):
    """A model of the index. `version` and `state` are empty where it was never loaded."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


class Repository:
    """The models that are served, and those that could be. One change of it at a time."""

    def __init__(
        self,
        current: Current,
        serving: Serving,
        slices: Mapping[str, SliceRecord],
        filed: Settings,
        place: Place = lambda settings: settings,
    ) -> None:
        """Build the repository. `slices`: control's records, read only; `filed`: what penstock.yaml says."""
        self.filed = filed
        self._current = current
        self._serving = serving
        self._slices = slices
        self._place = place
        self._overlay = Overlay()
        self._turn = asyncio.Lock()
        self._followed: Settings | None = None  # what a change of the file makes of the settings, under way
        self._loads: dict[tuple[str, Asked], asyncio.Task[None]] = {}
        self._unloads: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, str] = {}
        self._unloaded: set[str] = set()
        self._versions: dict[str, int] = {}  # the last one that was served under each name
        self._seen: dict[str, set[int]] = {}  # by model, the versions that were served at any time
        self.configure: Configure | None = None  # returns the ModelConfig of a served model
        self.cell_models: frozenset[str] | None = None  # all that may be served; None: this gateway is alone
        self.on_filed: Callable[[Settings], None] = lambda _filed: None  # another penstock.yaml is in force

    def configured(self, name: str) -> Any:
        """Return the ModelConfig of a model; None if it is not served."""
        model = self._serving.models.get(name)
        return self.configure(model) if model is not None and self.configure is not None else None

    @property
    def current(self) -> Settings:
        """What is served now, or will be when the change that is under way is done."""
        return self._current.settings

    async def index(self, ready: bool = False) -> list[IndexEntry]:
        """Return every known model, by name; `ready`: of them those that are."""
        folders = self.filed.repository.folders
        beside = await asyncio.to_thread(lambda: [name for name, _ in find_folders(folders)])
        names = {model.spec.model_name for model in (*self.current.models, *self.filed.models)}
        names.update(beside, map(model_of, self._serving.models), self._failures, self._loading())
        names.update(map(model_of, self._held()))
        self._remember()
        entries = [entry for name in sorted(names) for entry in self._entries(name)]
        return [each for each in entries if each.state == "READY" or not ready]

    async def load(self, name: str, asked: Asked = Asked()) -> None:  # noqa: B008  # it is frozen
        """Read the model's files and serve what they say, beside what is served of it until that is ready.

        Return when it is ready. Raises RepositoryError if it cannot be; what was served then still is. A
        caller that asks for the same while it is under way waits for the same.
        """
        self._check_control()
        key, begin = (name, asked), partial(self._load, name, asked)
        joined = key in self._loads
        await _join(self._loads, key, begin)
        if joined:  # it may have read the files before this was asked; where they are the same it is done
            await _join(self._loads, key, begin)

    async def renew(self, name: str) -> None:
        """Serve the model as its files and the ended rollouts of its versions say, as `load` does."""
        await self._load(name, Asked(self._overlay.batch_max.get(name)))

    async def unload(self, name: str) -> None:
        """Take no more requests for the model, answer those that were accepted, then give its memory back.

        Return when that is done; at once if the model is not served.
        """
        self._check_control()
        await _join(self._unloads, name, partial(self._unload, name))

    async def follow(self, filed: Settings) -> None:
        """Follow the new penstock.yaml: it counts for the models that it changes.

        Raises ChangeRefused (with all as it was) if it cannot be followed.
        """
        async with self._turn:
            self._remember()
            overlay = self._overlay.without(_changed(self.filed, filed))
            if self.cell_models is not None:
                overlay = replace(overlay, elsewhere=self._others(filed, self.cell_models))
            loaded = [each for versions in overlay.loaded.values() for each in versions]
            whole = await asyncio.to_thread(identified, replace(filed, models=(*filed.models, *loaded)))
            count = len(filed.models)
            overlay = replace(overlay, loaded=_by_model(whole.models[count:]))
            read = replace(whole, models=whole.models[:count])

            def target(now: Settings) -> Settings:
                self._followed = replace(overlay.over(self._place(read)), server=now.server, admin=now.admin)
                return self._followed

            before = {model.spec.model_name for model in self.current.models}
            try:
                await self._current.change(target)
            finally:
                self._followed = None
            self.filed, self._overlay = filed, overlay
            self.on_filed(filed)
            self._unloaded |= before - {model.spec.model_name for model in self.current.models}
            for model in self.current.models:
                self._failures.pop(model.spec.model_name, None)

    async def keep(self, names: frozenset[str]) -> None:
        """Serve these models of penstock.yaml and no others, as they are dealt to this cell.

        Raises RepositoryError, with all as it was, if that cannot be.
        """
        async with self._turn:
            overlay = replace(self._overlay, elsewhere=self._others(self.filed, names))

            def target(now: Settings) -> Settings:
                return replace(overlay.over(self._place(self.filed)), server=now.server, admin=now.admin)

            try:
                await self._current.change(target)
            except ChangeRefused as error:
                raise RepositoryError(FAILED, "; ".join(error.reasons)) from None
            self._overlay, self.cell_models = overlay, names

    @staticmethod
    def _others(filed: Settings, names: frozenset[str]) -> frozenset[str]:
        return frozenset(model.name for model in filed.models if model.name not in names)

    def give_up(self) -> None:
        """Turn back what `follow` is doing, if it is: that is Refused once all is as before."""
        if self._followed is not None and self._current.settings is self._followed:
            self._current.roll_back("the file was edited again")

    async def _load(self, name: str, asked: Asked) -> None:
        async with self._turn:
            self._remember()
            try:
                versions = await asyncio.to_thread(self._read, name, asked)
            except SettingsError as error:
                raise not_found(name, "; ".join(map(str, error.problems))) from None
            filed = any(each.name == name for each in self.filed.models)
            by_file = filed and (asked.policy is None or not versions[0].spec.version)
            overlay = self._overlay.with_loaded(versions, by_file, asked.batch_max)

            def target(now: Settings) -> Settings:
                return replace(now, models=_with(now.models, [_on(each, now) for each in versions]))

            same = target(self.current) == self.current
            if not same or not all(self._serving.model_ready(each.name) for each in versions):
                try:
                    await self._current.change(target)
                except ChangeRefused as error:
                    self._failures[name] = "; ".join(error.reasons)
                    version = max(each.spec.version for each in versions) or ONLY
                    raise load_failed(name, str(version), self._failures[name]) from None
            self._failures.pop(name, None)
            self._overlay = overlay

    async def _unload(self, name: str) -> None:
        async with self._turn:
            self._remember()
            if all(model.spec.model_name != name for model in self.current.models):
                return
            filed = any(each.name == name for each in self.filed.models)
            overlay = self._overlay.with_unloaded(name, filed)
            try:
                await self._current.change(partial(_without, name))
            except ChangeRefused as error:
                reasons = "; ".join(error.reasons)
                raise RepositoryError(FAILED, f"failed to unload '{name}', {reasons}") from None
            self._overlay = overlay
            self._unloaded.add(name)
            self._failures.pop(name, None)

    def _read(self, name: str, asked: Asked) -> Versions:
        """Return the model, and its other versions, as its files are now. It reads them: not on the event
        loop."""
        for index, model in enumerate(self.filed.models):
            if model.name == name and self.filed.document is not None:
                found = read_served(self.filed.document, index, asked.policy)
                read = [self._checked(each, name, asked.batch_max) for each in found]
                return tuple(self._identify(each) for each in self._placed(read, index))
        folders = dict(find_folders(self.filed.repository.folders))
        folder = folders.get(name)
        if folder is None:
            raise not_found(name, self._unknown(name, [*folders]))
        return tuple(self._alone(name, spec, asked.batch_max) for spec in load_versions(folder, asked.policy))

    @staticmethod
    def _checked(model: ServedModel, name: str, batch_max: int | None) -> ServedModel:
        """Return a model of the file as a load of that name asks for it."""
        _check_batch(model.spec, batch_max)
        model = with_batch_max(model, batch_max)
        _check_name(name, model.spec.model_name)
        _check_batching(model)
        return model

    def _alone(self, name: str, spec: ModelSpec, batch_max: int | None) -> ServedModel:
        """Return a model, or a version of it, that the file does not name."""
        _check_name(name, spec.model_name)
        _check_batch(spec, batch_max)
        cache = self.filed.document is not None and asks_for_cache(self.filed.document)
        alone = serve_alone(spec, self.current.slices, self.filed.tiers, cache)
        alone = with_headers(bounded(alone, self.filed.limits), self.filed.server.forward_headers)
        return self._identify(with_batch_max(alone, batch_max))

    def _identify(self, model: ServedModel) -> ServedModel:
        return identify(model, self.current.cache is not None and model.cache)

    def _placed(self, versions: Sequence[ServedModel], index: int) -> Iterator[ServedModel]:
        """Yield the versions of a model of the file on the slices where they are served, or would be."""
        there = {model.name: model.slices for model in self.current.models}
        first = versions[0]
        if first.name not in there:
            models = (*self.filed.models[:index], first, *self.filed.models[index + 1 :])
            there[first.name] = self._place(replace(self.filed, models=models)).models[index].slices
        for each in versions:
            yield _on(replace(each, slices=there.get(each.name, there[first.name])), self.current)

    def _unknown(self, name: str, beside: Sequence[str]) -> str:
        known = sorted({model.spec.model_name for model in self.filed.models} | set(beside))
        folders = self.filed.repository.folders
        where = f"penstock.yaml and {', '.join(map(str, folders))} hold" if folders else "penstock.yaml names"
        near = suggestion(name, known) or f"; known are {listed(known[:LISTED_MAX])}"
        return f"{where} no model {quoted(name)}{near}"

    def _remember(self) -> None:
        """Remember which versions are served now: the index also lists those that have gone."""
        for model in self.current.models:
            if model.spec.version:
                self._versions[model.name] = model.spec.version
                self._seen.setdefault(model.spec.model_name, set()).add(model.spec.version)

    def _entries(self, name: str) -> list[IndexEntry]:
        """Return the entries of a model, by version."""
        models = (*self.current.models, *self._serving.models.values())
        versions = {each.spec.version: each.name for each in models if each.spec.model_name == name}
        for held in self._held():
            if model_of(held) == name and held not in versions.values():
                versions.setdefault(self._versions.get(held, 0), held)
        seen = self._seen.get(name, ())
        if not versions and not seen:
            versions = {each.spec.version: each.name for each in self.filed.models if each.name == name}
        gone = {version: IndexEntry(name, str(version), "UNAVAILABLE", "unloaded") for version in seen}
        there = {
            version: self._entry(name, str(version or ONLY), served) for version, served in versions.items()
        }
        known = [entry for _, entry in sorted((gone | there).items()) if entry.state]
        return known or [self._entry(name, ONLY, name)]

    def _entry(self, name: str, version: str, served: str) -> IndexEntry:
        """Return the entry of a version; `served`: under which name it is served."""
        if served in self._serving.models:
            if self._serving.model_ready(served):
                return IndexEntry(name, version, "READY")
            failed = self._failed_replica(served)
            if failed and name not in self._loading():
                return IndexEntry(name, version, "UNAVAILABLE", failed)
            return IndexEntry(name, version, "LOADING")
        if name in self._loading() or any(model.name == served for model in self.current.models):
            return IndexEntry(name, version, "LOADING")
        if served in self._held():
            return IndexEntry(name, version, "UNLOADING")
        if name in self._failures:
            return IndexEntry(name, version, "UNAVAILABLE", self._failures[name])
        if name in self._unloaded:
            return IndexEntry(name, version, "UNAVAILABLE", "unloaded")
        return IndexEntry(name)

    def _loading(self) -> set[str]:
        return {name for name, _ in self._loads}

    def _held(self) -> set[str]:
        return {each.model for record in self._slices.values() for each in record.replicas.values()}

    def _failed_replica(self, name: str) -> str:
        for record in self._slices.values():
            for each in record.replicas.values():
                if each.model == name and each.status is ReplicaStatus.FAILED:
                    return each.reason
        return ""

    def _check_control(self) -> None:
        if not self.filed.repository.control:
            raise RepositoryError(NOT_ALLOWED, NO_CONTROL)
        if self.cell_models is not None:
            raise RepositoryError(NOT_ALLOWED, DEALT)


async def _join(
    under_way: dict[Key, asyncio.Task[None]], key: Key, begin: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Wait for what is under way, begun here where it is not. It goes on where its client leaves."""
    task = under_way.get(key)
    if task is None:
        task = under_way[key] = asyncio.ensure_future(begin())
        task.add_done_callback(partial(_forget, under_way, key))
    await asyncio.shield(task)


def _forget(under_way: dict[Key, asyncio.Task[None]], key: Key, task: asyncio.Task[None]) -> None:
    del under_way[key]
    if not task.cancelled():
        task.exception()  # seen: whoever asked may have left


def _with(models: Sequence[ServedModel], versions: Sequence[ServedModel]) -> tuple[ServedModel, ...]:
    """Return the models with these versions of one in the places of their namesakes, or at the end; without
    its other versions."""
    name, new = versions[0].spec.model_name, {each.name: each for each in versions}
    stay = [each for each in models if each.spec.model_name != name or each.name in new]
    placed = [new.pop(each.name, each) for each in stay]
    return (*placed, *new.values())


def _by_model(models: Sequence[ServedModel]) -> dict[str, Versions]:
    found: dict[str, Versions] = {}
    for each in models:
        found[each.spec.model_name] = (*found.get(each.spec.model_name, ()), each)
    return found


def _without(name: str, settings: Settings) -> Settings:
    stay = (model for model in settings.models if model.spec.model_name != name)
    return replace(settings, models=tuple(stay))


def _on(model: ServedModel, settings: Settings) -> ServedModel:
    """Return the model on those of its slices that there are; on all where there is none of them."""
    there = [each.name for each in settings.slices]
    return replace(model, slices=tuple(each for each in model.slices if each in there) or tuple(there))


def _changed(old: Settings, new: Settings) -> set[str]:
    """Return the models for which the new file says something else than the old file."""
    before, after = _entries(old), _entries(new)
    return {name for name in (*before, *after) if before.get(name) != after.get(name)}


def _entries(settings: Settings) -> dict[str, object]:
    listed_models = settings.document.at(("models",)) if settings.document else None
    entries = listed_models if isinstance(listed_models, list) else []
    return {model.name: entry for model, entry in zip(settings.models, entries, strict=False)}  # no versions


def _check_batch(spec: ModelSpec, batch_max: int | None) -> None:
    if spec.unbatched and batch_max is not None:
        why = f"model '{spec.name}' has no batch dimension (batch_max: 0 in its model.yaml)"
        raise RepositoryError(BAD_INPUT, f"config: max_batch_size: {why}, got {batch_max}, expected 0")


def _check_name(asked: str, stated: str) -> None:
    if asked != stated:
        raise not_found(asked, f"its model.yaml names it {quoted(stated)} now")


def _check_batching(model: ServedModel) -> None:
    size = model.batching.size
    if size is not None and size > model.spec.batch_max:
        message = f"batching.size of penstock.yaml is {size}: expected a max_batch_size of that or more"
        raise RepositoryError(BAD_INPUT, message)
