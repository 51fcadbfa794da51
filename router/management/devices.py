"""The GPUs that a gateway's slices use: their health in force, and what is to be said of them.

Nothing of it runs where no slice is on a GPU of this machine.
"""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache

from router.management.rehearsed import rehearsed_gpus
from router.observing.status import GpuStatus, gpu_status, mig_status
from serving.policy.device_health import GpuReading, obstacle
from serving.profile.device import device_kind
from serving.runtime.fleet import Fleet
from serving.runtime.slicing.health import GpuReader, used_bytes
from serving.runtime.slicing.opening import DeviceShares
from serving.runtime.slicing.watch import DeviceWatch, Reader
from serving.values.slice_specs import SliceSpec

logger = logging.getLogger(__name__)


class UnknownGpuError(Exception):
    """No slice uses a GPU of that name; `known` are the names of those that slices use."""

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__("no slice uses such a GPU")
        self.known = tuple(known)


class FaultyGpuError(Exception):
    """The GPU has a fault at this moment, which the text names."""


class DeviceBoard:
    """What a gateway knows of its GPUs. It begins to watch when the first share of one is opened."""

    def __init__(
        self, fleet: Fleet, shares: DeviceShares, make_reader: Callable[[], Reader] = GpuReader
    ) -> None:
        self._fleet = fleet
        self._shares = shares
        self._watch = DeviceWatch(fleet, lambda: shares.placed, self._domain, make_reader)
        self._broken_daemons: dict[str, set[str]] = {}  # domains that were lost with an MPS daemon, by device
        shares.on_trouble = logger.warning
        shares.on_open = self._watch.start
        shares.on_restart = self._restarted
        shares.on_broken = self._broken
        fleet.weigh = self._weigh

    @property
    def cordoned(self) -> dict[str, str]:
        """Why slices may not use a GPU, by its UUID."""
        return {uuid: each.cordoned for uuid, each in self._watch.standings.items() if each.cordoned}

    def used(self) -> list[GpuReading]:
        """Return the GPUs that slices use, or did until they failed, at the last reading."""
        mine = {place.uuid for place in self._shares.placed.values()} | self.cordoned.keys()
        return [reading for reading in self._watch.readings if reading.uuid in mine]

    def describe(self) -> list[GpuStatus]:
        """Return what the status says of them, and of the rehearsed ones."""
        there: dict[str, dict[str, SliceSpec]] = {}
        for name, place in self._shares.placed.items():
            record = self._fleet.control.slices.get(name)
            if record is not None:
                there.setdefault(place.uuid, {})[name] = record.spec
        layouts, found = self._shares.layouts, []
        for gpu in self.used():
            specs = there.get(gpu.uuid, {})
            shares = {name: str(spec.share) for name, spec in specs.items()}
            found.append(gpu_status(gpu, shares, self.cordoned))
            if (layout := layouts.get(gpu.uuid)) is not None:
                held = {name: used_bytes([gpu], self._fleet.pid(name) or 0) for name in specs}
                known = {name: count for name, count in held.items() if count}
                instances = {name: spec.held_as for name, spec in specs.items()}
                found[-1]["mig"] = mig_status(layout, instances, known)
        return found + rehearsed_gpus(self._fleet.control.slices.values())

    async def back(self, name: str) -> list[str]:
        """Use a GPU again, as its operator says that it was reset. Return the slices that use it again.

        `name`: as in `slices:`, its UUID, or `gpu-0` as NVML counts. Raises UnknownGpuError, and
        FaultyGpuError if it has a fault at this moment.
        """
        devices = self._names()
        uuid = next((uuid for uuid, names in devices.items() if name in names), None)
        if uuid is None:
            raise UnknownGpuError([each for names in devices.values() for each in names])
        now = next((each for each in self._watch.readings if each.uuid == uuid), None)
        if now is not None and (fault := obstacle(now)):
            raise FaultyGpuError(fault)
        domains = {*self._watch.release(uuid)}
        for each in devices[uuid]:
            domains |= self._broken_daemons.pop(each, set())
        for domain in sorted(domains):
            await self._fleet.device_ended(domain)  # one process at a time
            self._fleet.device_back(domain)
        slices = self._fleet.control.slices
        return sorted(slot for slot, record in slices.items() if record.spec.domain in domains)

    def _names(self) -> dict[str, list[str]]:
        """Return all names of each GPU that slices use or have lost, by its UUID."""
        found = {each.uuid: [f"gpu-{each.index}", each.uuid] for each in self.used()}
        for slot, place in self._shares.placed.items():
            record = self._fleet.control.slices.get(slot)
            names = found.setdefault(place.uuid, [place.uuid])
            if record is not None and record.spec.device not in names:
                names.insert(0, record.spec.device)
        return found

    def stop(self) -> None:
        """Watch no longer."""
        self._watch.stop()

    async def _weigh(self, pid: int) -> int:
        """Return the bytes that a worker holds on its GPU, with context and libraries."""
        return used_bytes(await self._watch.fresh(), pid)

    def _domain(self, slice_name: str) -> str:
        record = self._fleet.control.slices.get(slice_name)
        return record.spec.domain if record is not None else ""

    def _restarted(self, slices: Sequence[str], reason: str) -> None:
        logger.warning("%s; it was started anew, and the workers of its GPU end", reason)
        for name in slices:
            self._fleet.end_worker(name, "its MPS daemon was started anew")

    def _broken(self, device: str, reason: str) -> None:
        logger.error("%s; the slices of %s are lost", reason, device)
        slices = self._fleet.control.slices.values()
        domains = {
            record.spec.domain for record in slices if record.spec.device == device and not record.spec.node
        }
        self._broken_daemons.setdefault(device, set()).update(domains)
        for domain in sorted(domains):
            self._fleet.device_lost(domain, reason)


@lru_cache(1000)
def kind_named(spec: SliceSpec) -> str:
    """Return the kind of device that a slice is a share of; a GPU's own name if its driver has not been
    asked."""
    try:
        return device_kind(spec)
    except ValueError:
        return spec.device
