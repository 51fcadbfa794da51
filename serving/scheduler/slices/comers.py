"""Slices as they come: each has a number, and its device is shared with others there."""

from collections.abc import Mapping

from serving.scheduler.slices.roster import Roster
from serving.scheduler.slices.shared_device import SharedDevice
from serving.scheduler.slices.slices import Slice


class Comers:
    """Makes the slices of a scheduler. `devices`: by slice; those that it does not name share one."""

    __slots__ = ("_count", "_device_of", "_devices", "_roster", "_stall_us")

    def __init__(self, devices: Mapping[str, str], stall_us: int, roster: Roster) -> None:
        self._device_of = devices
        self._devices: dict[str, SharedDevice] = {}
        self._stall_us = stall_us
        self._roster = roster
        self._count = 0  # that ever came

    def enter(self, name: str, now_us: int) -> Slice:
        """Return a slice that is free from now on."""
        device = self._devices.setdefault(self._device_of.get(name, ""), SharedDevice())
        self._count += 1
        live = Slice(name, self._count, self._stall_us, device, self._roster)
        live.free_since_us = now_us
        return live
