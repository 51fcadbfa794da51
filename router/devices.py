"""The GPUs that a gateway's slices use: their health in force, and what is to be said of them.

Nothing of it runs where no slice is on a GPU of this machine.
"""

import logging
from collections.abc import Callable, Sequence

from router.status import GpuStatus, gpu_status
from serving.policy.device_health import GpuReading
from serving.runtime.fleet import Fleet
from serving.runtime.slicing.health import GpuReader, used_bytes
from serving.runtime.slicing.opening import DeviceShares
from serving.runtime.slicing.watch import DeviceWatch, Reader

logger = logging.getLogger(__name__)


class DeviceBoard:
    """What a gateway knows of its GPUs. It begins to watch when the first share of one is opened."""

    def __init__(
        self, fleet: Fleet, shares: DeviceShares, make_reader: Callable[[], Reader] = GpuReader
    ) -> None:
        self._fleet = fleet
        self._shares = shares
        self._watch = DeviceWatch(fleet, lambda: shares.placed, self._domain, make_reader)
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
        """Return what the status says of them."""
        there: dict[str, dict[str, str]] = {}
        for name, place in self._shares.placed.items():
            record = self._fleet.control.slices.get(name)
            if record is not None:
                there.setdefault(place.uuid, {})[name] = str(record.spec.share)
        return [gpu_status(each, there.get(each.uuid, {}), self.cordoned) for each in self.used()]

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
        for domain in sorted({record.spec.domain for record in slices if record.spec.device == device}):
            self._fleet.device_lost(domain, reason)
