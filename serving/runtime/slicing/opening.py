"""Opens the shares of slices for their workers, off the event loop, and gives them back.

An actuator may start a daemon or wait for a tool, up to seconds, so one thread works for all of them. A share
stays open while its worker is restarted; it is given back when its slice is gone.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol

from serving.policy.device_health import Placed
from serving.runtime.slicing.choice import VisibleDevice, device_actuator, device_named
from serving.runtime.slicing.contract import Actuator, Setting, SlicingError
from serving.runtime.slicing.cores import core_set
from serving.runtime.slicing.inventory import Inventory, take_inventory
from serving.runtime.slicing.mig.layout import MigLayout
from serving.runtime.slicing.mig.mig import MigInstances
from serving.runtime.slicing.mps.clients import Ended, check_clients, daemon_of, end_client
from serving.runtime.slicing.mps.mps import MpsPercentages
from serving.values.slice_specs import Share, SliceSpec

MakeActuator = Callable[[str, VisibleDevice, Inventory], Actuator]
"""Return the actuator of a kind of share on a device; raises SlicingError if it has no such shares."""


class Shares(Protocol):
    """What gives a slice's worker its share of a device."""

    async def open(self, spec: SliceSpec) -> Setting:
        """Return the settings that the slice's worker starts with. Raises SlicingError if the share is not
        available.

        Return the same share again if the slice already has it.
        """
        ...

    def close(self, name: str) -> None:
        """Release, in the background, the share of a slice after its worker has ended."""
        ...

    def is_shared(self, name: str) -> bool:
        """Return whether the slice's worker computes by way of a process that others use too."""
        ...

    async def end(self, name: str, pid: int) -> None:
        """End the work of a worker of a shared slice at its device, before its process is killed."""
        ...

    async def check(self, name: str, pid: int) -> str:
        """Return why a worker of a shared slice does not compute within its share, "" if it does."""
        ...

    async def stop(self) -> None:
        """Give back all shares and end what was started for them."""
        ...


class PreparedShares:
    """Shares that need no work off the event loop: cores, or what a caller has opened before."""

    def __init__(self, prepare: Callable[[SliceSpec], Setting] = core_set) -> None:
        self._prepare = prepare

    async def open(self, spec: SliceSpec) -> Setting:
        return self._prepare(spec)

    def close(self, name: str) -> None:
        """Keep what the caller has opened: it closes that itself."""

    def is_shared(self, name: str) -> bool:  # noqa: ARG002  # whoever opened it sees to it
        return False

    async def end(self, name: str, pid: int) -> None:
        """Do nothing: no slice is shared."""

    async def check(self, name: str, pid: int) -> str:  # noqa: ARG002
        return ""

    async def stop(self) -> None:
        """Do nothing: nothing was started here."""


@dataclass
class _Opened:
    """An actuator on the GPU of a UUID, the usable cores near it, and the slices with a share by it."""

    actuator: Actuator
    uuid: str = ""
    cores: tuple[int, ...] = ()
    slices: set[str] = field(default_factory=set)


class DeviceShares:
    """Shares of cores and of this machine's GPUs, by one actuator for each GPU and kind of share."""

    def __init__(
        self,
        inventory: Callable[[], Inventory] = take_inventory,
        make: MakeActuator = device_actuator,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._inventory = inventory
        self._make = make
        self._environ = environ
        self._thread = ThreadPoolExecutor(1, "shares")
        self._opened: dict[tuple[str, str], _Opened] = {}  # by device and kind of share
        self._inside: dict[str, _Opened] = {}  # MPS inside a MIG instance, by its shared name
        self._specs: dict[str, SliceSpec] = {}
        self._asked: dict[str, SliceSpec] = {}  # to be opened next
        self._placed: dict[str, Placed] = {}
        self.on_trouble: Callable[[str], None] = lambda _: None
        self.on_open: Callable[[], None] = lambda: None
        self.on_restart: Callable[[Sequence[str], str], None] = lambda _slices, _reason: None
        self.on_broken: Callable[[str, str], None] = lambda _device, _reason: None

    async def open(self, spec: SliceSpec) -> Setting:
        """See `Shares`. A slice of cores waits for no thread."""
        if spec.device == "cpu":
            return core_set(spec)
        if not spec.rehearsed:
            self.on_open()
        self._asked[spec.name] = spec
        await asyncio.sleep(0)  # the others that start now are known before the first is opened
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._open, spec)

    def close(self, name: str) -> None:
        """See `Shares`."""
        if name in self._specs:
            self._thread.submit(self._close_told, name)

    @property
    def placed(self) -> Mapping[str, Placed]:
        """Where the slices with an open share compute."""
        return dict(self._placed)

    @property
    def layouts(self) -> Mapping[str, MigLayout]:
        """The MIG layout of each GPU that gives instances to slices, by its UUID, as it was last listed."""
        there = self._opened.copy().values()
        return {each.uuid: each.actuator.layout for each in there if isinstance(each.actuator, MigInstances)}

    def is_shared(self, name: str) -> bool:
        """See `Shares`: its work passes through an MPS daemon."""
        place = self._placed.get(name)
        return place is not None and place.share_kind in ("mps", "sm")

    async def end(self, name: str, pid: int) -> None:
        """See `Shares`. `on_restart` hears if all workers of the daemon must end, `on_broken` if none can
        start there."""
        loop = asyncio.get_running_loop()
        others, device, ended = await loop.run_in_executor(self._thread, self._end, name, pid)
        if ended.restarted:
            self.on_restart(others, ended.restarted)
        if ended.broken:
            self.on_broken(device, ended.broken)

    async def check(self, name: str, pid: int) -> str:
        """See `Shares`. A worker that does not compute on the GPU, or is not seen there, is not blamed."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._check, name, pid)

    async def stop(self) -> None:
        """See `Shares`."""
        if self._specs:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._stop)
        self._thread.shutdown()

    # in the thread

    def _open(self, spec: SliceSpec) -> Setting:
        self._asked.pop(spec.name, None)
        had = self._specs.get(spec.name)
        if had is not None and (had.device, had.share) != (spec.device, spec.share):
            self._close(spec.name)
        opened = self._actuator(spec)
        if isinstance(opened.actuator, MigInstances):
            opened.actuator.coming = self._coming(spec)
        try:
            if spec.instance:
                setting = self._open_inside(opened, spec)
            else:
                setting = opened.actuator.open(replace(spec, name=spec.held_as))
        except SlicingError:
            self._drop_unused()
            raise
        opened.slices.add(spec.held_as)
        self._specs[spec.name] = spec
        visible = dict(setting.environment).get("CUDA_VISIBLE_DEVICES") or ""
        instance = visible if visible.startswith("MIG-") else ""
        kind = "mps" if spec.instance else spec.share.kind
        self._placed[spec.name] = Placed(opened.uuid, instance, kind)
        # Memory of another node is farther from the GPU, for copies and for the calls of its driver.
        return setting if setting.cores else replace(setting, cores=opened.cores)

    def _through(self, spec: SliceSpec) -> tuple[Actuator, Sequence[str]]:
        """Return what gives a slice its share, and the slices and own processes beside it there."""
        if spec.instance in self._inside:
            inside = self._inside[spec.instance]
            return inside.actuator, sorted(inside.slices)
        there = spec.device, spec.share.kind
        beside = [name for name, each in self._specs.items() if (each.device, each.share.kind) == there]
        return self._opened[there].actuator, sorted(beside)

    def _end(self, name: str, pid: int) -> tuple[Sequence[str], str, Ended]:
        spec = self._specs.get(name)
        if spec is None:
            return (), "", Ended()
        actuator, slices = self._through(spec)
        daemon = daemon_of(actuator)
        return slices, spec.device, Ended() if daemon is None else end_client(daemon, pid)

    def _check(self, name: str, pid: int) -> str:
        spec = self._specs.get(name)
        if spec is None:
            return ""
        uuid = self._placed[name].uuid
        gpu = next((gpu for gpu in self._inventory().gpus if gpu.uuid == uuid), None)
        if gpu is None or pid not in (gpu.processes or ()):
            return ""
        try:
            check_clients(self._through(spec)[0], (pid,))
        except SlicingError as error:
            return f"slice {name}: {error}"
        return ""

    def _coming(self, spec: SliceSpec) -> tuple[str, ...]:
        """Return the profiles of the instances that are asked for beside this slice's and not yet open."""
        others = {
            each.held_as: each.share.profile
            for each in self._asked.copy().values()
            if (each.device, each.share.kind) == (spec.device, "mig")
        }
        opened = self._opened[spec.device, "mig"].slices
        return tuple(profile for name, profile in others.items() if name not in {*opened, spec.held_as})

    def _actuator(self, spec: SliceSpec) -> _Opened:
        key = spec.device, spec.share.kind
        if key not in self._opened:
            others = [kind for device, kind in self._opened if device == spec.device]
            if others:
                raise SlicingError(
                    f"slice {spec.name}: {spec.device} still has shares of kind {others[0]}; "
                    f"{spec.share} waits until their workers have ended"
                )
            inventory = self._inventory()
            device = device_named(spec.device, inventory, self._environ)
            near = tuple(core for core in inventory.cores if core in device.gpu.cores)
            actuator = self._make(spec.share.kind, device, inventory)
            self._opened[key] = _Opened(actuator, device.gpu.uuid, near)
        return self._opened[key]

    def _open_inside(self, opened: _Opened, spec: SliceSpec) -> Setting:
        """Open one of several processes of a MIG instance: each is a client of a daemon on that instance."""
        whole = replace(spec, name=spec.instance, part=Share("mig", spec.share.amount, spec.share.profile))
        instance = dict(opened.actuator.open(whole).environment)["CUDA_VISIBLE_DEVICES"] or ""
        if spec.instance not in self._inside:
            self._inside[spec.instance] = _Opened(MpsPercentages(instance))
        inside = self._inside[spec.instance]
        setting = inside.actuator.open(replace(spec, part=Share("mps", 100.0)))
        inside.slices.add(spec.name)
        return setting

    def _close_told(self, name: str) -> None:
        try:
            self._close(name)
        except SlicingError as error:
            self.on_trouble(f"the share of slice {name} could not be given back: {error}")

    def _close(self, name: str) -> None:
        spec = self._specs.pop(name, None)
        self._placed.pop(name, None)
        if spec is None:
            return
        opened = self._opened[spec.device, spec.share.kind]
        try:
            if spec.instance:
                inside = self._inside[spec.instance]
                inside.actuator.close(name)
                inside.slices.discard(name)
                if inside.slices:
                    return
                self._inside.pop(spec.instance).actuator.stop()
            mine = spec.device, spec.held_as
            if any((each.device, each.held_as) == mine for each in self._specs.values()):
                return  # another process computes there
            opened.slices.discard(spec.held_as)
            opened.actuator.close(spec.held_as)
        finally:
            self._drop_unused()

    def _drop_unused(self) -> None:
        """End the actuators without a slice: another kind of share may follow on their GPUs."""
        for key in [key for key, opened in self._opened.items() if not opened.slices]:
            self._opened.pop(key).actuator.stop()

    def _stop(self) -> None:
        for opened in (*self._inside.values(), *self._opened.values()):
            try:
                opened.actuator.stop()
            except SlicingError as error:
                self.on_trouble(f"shares could not be given back: {error}")
        self._inside.clear()
        self._opened.clear()
        self._specs.clear()
        self._placed.clear()
