"""Opens the shares of slices for their workers, off the event loop, and gives them back.

An actuator may start a daemon or wait for a tool, up to seconds, so one thread works for all of them. A share
stays open while its worker is restarted; it is given back when its slice is gone.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol

from serving.runtime.slicing.choice import VisibleDevice, device_actuator, device_named
from serving.runtime.slicing.contract import Actuator, Setting, SlicingError
from serving.runtime.slicing.cores import core_set
from serving.runtime.slicing.inventory import Inventory, take_inventory
from serving.runtime.slicing.mig import MigInstances
from serving.runtime.slicing.mps import MpsPercentages
from serving.specs import Share, SliceSpec

MakeActuator = Callable[[str, VisibleDevice, Inventory], Actuator]
"""Return the actuator of a kind of share on a device; raises SlicingError if it has no such shares."""


class Shares(Protocol):
    """What gives a slice's worker its share of a device."""

    async def open(self, spec: SliceSpec) -> Setting:
        """Return what the slice's worker starts with; raises SlicingError if the share cannot be had.

        The same share is returned again if the slice has it already.
        """
        ...

    def close(self, name: str) -> None:
        """Give back the share of a slice whose worker has ended, in the background."""
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

    async def stop(self) -> None:
        """Do nothing: nothing was started here."""


@dataclass
class _Opened:
    """An actuator, and the slices that have a share by it."""

    actuator: Actuator
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
        self.on_trouble: Callable[[str], None] = lambda _: None

    async def open(self, spec: SliceSpec) -> Setting:
        """See `Shares`. A slice of cores waits for no thread."""
        if spec.device == "cpu":
            return core_set(spec)
        self._asked[spec.name] = spec
        await asyncio.sleep(0)  # the others that start now are known before the first is opened
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._open, spec)

    def close(self, name: str) -> None:
        """See `Shares`."""
        if name in self._specs:
            self._thread.submit(self._close_told, name)

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
            setting = self._open_inside(opened, spec) if spec.instance else opened.actuator.open(spec)
        except SlicingError:
            self._drop_unused()
            raise
        opened.slices.add(spec.instance or spec.name)
        self._specs[spec.name] = spec
        return setting

    def _coming(self, spec: SliceSpec) -> tuple[str, ...]:
        """Return the profiles of the instances that are asked for beside this slice's and not yet open."""
        others = {
            each.instance or each.name: each.share.profile
            for each in self._asked.copy().values()
            if (each.device, each.share.kind) == (spec.device, "mig")
        }
        opened = self._opened[spec.device, "mig"].slices
        return tuple(
            profile for name, profile in others.items() if name not in {*opened, spec.instance or spec.name}
        )

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
            self._opened[key] = _Opened(self._make(spec.share.kind, device, inventory))
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
            opened.slices.discard(spec.instance or name)
            opened.actuator.close(spec.instance or name)
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
