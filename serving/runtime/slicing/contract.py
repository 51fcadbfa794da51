"""What an actuator of shares promises: one that makes a slice's share of its device real.

Actuators are plain synchronous classes. Some start processes and wait for their answer, up to seconds: call
them from a thread where an event loop must go on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from serving.values.slice_specs import Share, SliceSpec


class SlicingError(Exception):
    """A share that cannot be had. The message names the slice or device and says what the tool said."""


class Resize(StrEnum):
    """What another share costs; each one more than the one before."""

    NEW_PROCESS = "new process"  # one is started with the new share, then the old one drains
    NEW_INSTANCE = "new instance"  # and the device is divided anew, where nothing runs


class FaultDomain(StrEnum):
    """What else is lost with a slice if its computation faults."""

    PROCESS = "process"  # no other slice
    DEVICE = "device"  # every slice of the device


@dataclass(frozen=True, slots=True)
class Guarantee:
    """All that an optimiser has to know of a way to divide a device.

    `reservation`: what a slice has, no other can take; else it is a cap at most. `granularity`: the shares
    that can be asked for, smallest first. `tenants_max`: slices at a time, None where memory alone limits
    them.
    """

    reservation: bool
    granularity: tuple[Share, ...]
    resize: Resize
    fault_domain: FaultDomain
    tenants_max: int | None

    def require(self, spec: SliceSpec, opened: Mapping[str, Share]) -> None:
        """Raise SlicingError unless the slice can have its share beside the `opened` shares, by slice."""
        had = opened.get(spec.name)
        if had not in (None, spec.share):
            raise SlicingError(f"slice {spec.name} has {had}; open another slice for {spec.share}")
        if had is None and self.tenants_max is not None and len(opened) >= self.tenants_max:
            raise SlicingError(f"slice {spec.name}: there are {len(opened)} slices, as many as there can be")
        if spec.share not in self.granularity:
            first, last = self.granularity[0], self.granularity[-1]
            raise SlicingError(
                f"slice {spec.name}: {spec.share} is no share here; there are {first} to {last}"
            )


@dataclass(frozen=True, slots=True)
class Setting:
    """What the worker process of a slice is started with.

    `environment`: variables to set, or with None to take away; `cores` to stay on, () for any; `device`: its
    torch name within that process, where another GPU may be the first than in the gateway.
    """

    environment: tuple[tuple[str, str | None], ...] = ()
    cores: tuple[int, ...] = ()
    threads: int = 1
    device: str = "cpu"


class Actuator(Protocol):
    """Gives slices their shares of one device.

    A slice that is resized is opened under another name with its new share before the old one is closed.
    """

    @property
    def guarantee(self) -> Guarantee:
        """What a share is worth; it stays the same as long as the actuator lives."""

    def open(self, spec: SliceSpec) -> Setting:
        """Make the slice's share real; SlicingError where that cannot be. May block. A slice that is open is
        given the same share again, as when its worker is restarted."""

    def close(self, name: str) -> None:
        """Give the share of an ended worker back; SlicingError where it cannot be. Nothing where none is."""

    def stop(self) -> None:
        """Close all and end what the actuator started. It may be opened again afterwards."""
