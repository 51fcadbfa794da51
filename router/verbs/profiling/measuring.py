"""Measures targets: opens their share, loads, looks whether all is quiet, sweeps, keeps what was found."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from router.settings.model_file.revisions import build_of
from router.verbs.profiling.asked import Target
from router.verbs.profiling.devices import MeasuredDevice
from serving.profile.curve import Origin, Profile
from serving.profile.files.shared_files import read_regular, replace_file
from serving.profile.files.store import LOCAL, ProfileStore
from serving.profile.files.unfinished import Unfinished, parse, render
from serving.profile.sweeping.exploration import Exploration
from serving.profile.sweeping.noise import Steadiness
from serving.runtime.slicing.contract import Actuator
from serving.runtime.slicing.mps.clients import check_clients
from serving.runtime.workers.bench import Bench, bench_of
from serving.runtime.workers.sweeping import look, sweep
from serving.values.slice_specs import SliceSpec
from serving.worker.frames.orders import Loaded

SAVE_EVERY_S = 1.0
LOOKS = 8  # seconds: what others do on a shared machine comes and goes
Say = Callable[[str], None]


class NoisyError(Exception):
    """The machine is too noisy to be measured; the text shows the evidence."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How is measured: see the options of the same names."""

    rows: tuple[int, ...] = ()
    full: bool = False
    point_us: float = 3e6
    longest_us: float | None = None
    again: bool = False
    allow_noise: bool = False
    command: str = ""


@dataclass(slots=True)
class Work:
    """A target's sweep while it goes on."""

    target: Target
    build: str
    exploration: Exploration
    path: Path
    seconds: float = 0.0
    steadiness: Steadiness = field(default_factory=Steadiness)
    _since: float = field(default_factory=time.monotonic)
    _saved: float = 0.0

    def resume(self, machine: tuple[tuple[str, str], ...]) -> str:
        """Go on from what an interrupted sweep has left; a sentence about it, "" where there is nothing."""
        try:
            found = parse(read_regular(self.path))
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            return f"{self.path}: ignored: {error}"
        if not found.fits(self.build, machine):
            return f"{self.path}: of another build or machine, begun anew"
        self.exploration.seen.update(found.seen)
        self.seconds = found.seconds
        return f"{self.target} goes on where it was interrupted, after {len(found.seen)} batches"

    def save(self, machine: tuple[tuple[str, str], ...], now: bool = False) -> None:
        """Keep the runs, once a second, so that an interruption costs no more."""
        at = time.monotonic()
        if now or at - self._saved >= SAVE_EVERY_S:
            self._saved = at
            found = Unfinished(self.build, machine, self.spent, self.exploration.seen)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, render(found))

    @property
    def spent(self) -> float:
        """Seconds of measuring, earlier tries included."""
        return self.seconds + time.monotonic() - self._since


class Measurer:
    """Measures on one device and keeps what it finds in a store."""

    def __init__(self, device: MeasuredDevice, store: ProfileStore, manner: Manner, say: Say) -> None:
        self._device, self._store, self._manner, self._say = device, store, manner, say

    @property
    def device_kind(self) -> str:
        """Of the device that is measured."""
        return self._device.kind

    def known(self, target: Target) -> Profile | None:
        """Return the profile already measured for the target's present build."""
        found = self._store.read_set(self._device.kind, target.model.name, target.variant)
        for profile in found.profiles if found and not self._manner.again else ():
            same = profile.share == target.share
            if same and profile.measured and profile.origin.build == _build(target):
                return profile
        return None

    async def measure(self, target: Target, progress: Callable[[Work], None]) -> Profile:
        """Return the target's profile, measured and kept. NoisyError, BenchError, SlicingError; whatever ends
        it early, what was measured so far is kept for the next try."""
        async with self._opened(target) as (bench, names, loaded):
            return await self._sweep(bench, names, self._work(target), loaded, progress)

    async def measure_one(self, target: Target, rows: int, size: int) -> Profile:
        """Return a profile of that batch alone, which is not kept. Raises what `measure` does."""
        async with self._opened(target) as (bench, names, loaded):
            alone = Exploration(target.model.batch_max, (size,), inf, self._manner.point_us, (rows,))
            work = Work(target, _build(target), alone, Path())
            await sweep(bench, names, alone, work.steadiness, lambda: None)
            return self._profile(work, loaded)

    @asynccontextmanager
    async def _opened(self, target: Target) -> AsyncIterator[tuple[Bench, list[str], Loaded]]:
        """Yield the target's variant loaded on its share, and what that cost, on a quiet machine."""
        if (used := self._device.used_by_others()) and not self._manner.allow_noise:
            raise NoisyError(
                f"{used}: figures measured beside it are worth nothing. Stop it, or --allow-noise"
            )
        slices = self._device.slices(target.share, target.share.processes)
        async with opened(self._device, slices) as (bench, actuator):
            names = [each.name for each in slices]
            costs = [await bench.load(name, target.model, target.variant) for name in names]
            check_clients(actuator, bench.pids)
            await self.wait_for_quiet(bench, names[:1], slices[0].cores)  # the others share its cores
            held_bytes = await asyncio.to_thread(self._device.process_bytes, bench.pids[0])
            yield bench, names, with_context(costs[0], held_bytes)

    async def wait_for_quiet(self, bench: Bench, names: Sequence[str], cores: Sequence[int]) -> None:
        """Look until all is quiet, a few times. NoisyError where figures of this machine would not be worth
        keeping, unless that is allowed."""
        for _ in range(1 if self._manner.allow_noise else LOOKS):
            evidence = await look(bench, names, cores)
            if evidence.quiet:
                return
        if not self._manner.allow_noise:
            raise NoisyError(
                f"this machine is too noisy to be measured: {evidence}. Stop what runs beside it, "
                "or measure anyway with --allow-noise"
            )
        self._say(f"measured in spite of noise: {evidence}")

    def _work(self, target: Target) -> Work:
        model, manner = target.model, self._manner
        longest_us = manner.longest_us or 4.0 * model.slo_us
        rows = tuple(each for each in manner.rows if each <= model.batch_max)
        exploration = Exploration(
            model.batch_max, model.sizes, longest_us, manner.point_us, rows, manner.full
        )
        share = str(target.share).replace(":", "-")
        name = f"{model.name}.{target.variant}.{share}.part"
        path = self._store.folder / LOCAL / self._device.kind / name
        work = Work(target, _build(target), exploration, path)
        if manner.again:
            path.unlink(missing_ok=True)
        elif said := work.resume(self._device.machine):
            self._say(said)
        return work

    async def _sweep(
        self, bench: Bench, names: list[str], work: Work, loaded: Loaded, progress: Callable[[Work], None]
    ) -> Profile:
        machine = self._device.machine

        def after_trial() -> None:
            work.save(machine)
            progress(work)

        try:
            await sweep(bench, names, work.exploration, work.steadiness, after_trial, self._device.watts)
        except BaseException:
            if work.exploration.seen:
                work.save(machine, now=True)
            raise
        profile = self._profile(work, loaded)
        self._store.write(profile)
        work.path.unlink(missing_ok=True)
        return profile

    def _profile(self, work: Work, loaded: Loaded) -> Profile:
        target = work.target
        origin = self.origin(work.build, work.spent, work.steadiness.spread)
        return Profile(
            target.model.name, target.variant, self._device.kind, work.exploration.points(), loaded.load_us,
            loaded.memory_bytes, "", target.share, loaded.warm_us, origin,
            loaded.import_bytes,
        )  # fmt: skip

    def origin(self, build: str, seconds: float, noise: float) -> Origin:
        """Return the origin of what has just been measured here."""
        measured = datetime.now(UTC).isoformat(timespec="seconds")
        about = (measured, self._manner.command, self._device.machine)
        return Origin(*about, build, round(seconds, 1), round(noise, 4))


def with_context(loaded: Loaded, process_bytes: int) -> Loaded:
    """Return what a load cost, with what its process holds on its GPU beside the model, once a process."""
    beside = process_bytes - loaded.memory_bytes
    return replace(loaded, import_bytes=max(loaded.import_bytes, beside))


@asynccontextmanager
async def opened(
    device: MeasuredDevice, slices: Sequence[SliceSpec]
) -> AsyncIterator[tuple[Bench, Actuator | None]]:
    """Yield a worker on each of the slices, which have one kind of share, and what made the shares real."""
    actuator = await asyncio.to_thread(device.actuator, slices[0].share)
    if actuator is None:
        async with bench_of(slices) as bench:
            yield bench, None
        return
    try:
        settings = {each.name: await asyncio.to_thread(actuator.open, each) for each in slices}
        async with bench_of(slices, lambda spec: settings[spec.name]) as bench:
            yield bench, actuator
    finally:
        actuator.stop()


def _build(target: Target) -> str:
    return build_of(target.model, target.model.variant(target.variant))
