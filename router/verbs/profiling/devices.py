"""What can be measured on this machine: its CPU, and each GPU that NVML lists."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from router.verbs.profiling.asked import MeasureRequestError
from serving.profile.device import device_kind, gpu_kind, processor_name
from serving.runtime.slicing.choice import VisibleDevice, device_actuator, device_named
from serving.runtime.slicing.contract import Actuator, SlicingError
from serving.runtime.slicing.health import GpuReader, used_bytes
from serving.runtime.slicing.inventory import Gpu, Inventory, take_inventory
from serving.runtime.slicing.mps.inside import InstanceProcesses
from serving.values.slice_specs import Share, SliceSpec

PERCENTAGES = tuple(range(10, 101, 10))


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """A device to measure. `default_shares`: what is measured where none are asked for."""

    name: str
    kind: str
    default_shares: tuple[Share, ...]
    machine: tuple[tuple[str, str], ...]
    inventory: Inventory
    visible: VisibleDevice | None = None

    @property
    def gpu(self) -> Gpu | None:
        """Return the GPU that it is or is an instance of; None for the CPU."""
        return self.visible.gpu if self.visible else None

    @property
    def cores(self) -> tuple[int, ...]:
        """Those that this process may use."""
        return self.inventory.cores

    def watts(self) -> float:
        """Return what a GPU draws at this moment; 0 where nothing tells."""
        now = self._now()
        return (now.power_w or 0.0) if now else 0.0

    def used_by_others(self) -> str:
        """Return the other processes that compute on a GPU, "" if none is seen. Ask before your own processes
        compute."""
        now = self._now()
        return now.used_by_others() if now else ""

    def process_bytes(self, pid: int) -> int:
        """Return the memory that a process holds on a GPU, with context and libraries; 0 if unknown."""
        if self.gpu is None:
            return 0
        reader = GpuReader()
        try:
            return used_bytes(reader.read(), pid)
        finally:
            reader.close()

    def _now(self) -> Gpu | None:
        if self.gpu is None:
            return None
        uuid = self.gpu.uuid
        return next((gpu for gpu in take_inventory().gpus if gpu.uuid == uuid), None)

    def share(self, text: str) -> Share:
        """Return the share in `text`: `2` or `cores:2` of a CPU, `50`, `mps:50` or `whole:1` of a GPU. Raises
        MeasureRequestError for a share that the device has not."""
        numbers = "cores" if self.gpu is None else "mps"
        try:
            share = Share.parse(text if ":" in text else f"{numbers}:{text}")
        except ValueError as error:
            raise MeasureRequestError(f"--shares: {error}") from None
        kinds = ("cores",) if self.gpu is None else ("mps", "sm", "mig", "whole", "time")
        if share.kind not in kinds:
            raise MeasureRequestError(
                f"--shares: {share} cannot be measured on {self.name}; expected {' or '.join(kinds)}"
            )
        if self.gpu is None and (share.amount > len(self.cores) or share.amount % 1):
            raise MeasureRequestError(
                f"--shares: {share} is no share of {self.name}: it has {len(self.cores)} cores"
            )
        return share

    def slices(self, share: Share, count: int) -> tuple[SliceSpec, ...]:
        """Return `count` slices that have this share together, at the same time."""
        if self.gpu is None:
            cores = self.cores[-int(share.amount) :]  # interrupts mostly go to the first
            return tuple(SliceSpec(f"measured-{n}", cores, len(cores)) for n in range(count))
        return tuple(SliceSpec(f"measured-{n}", (), 1, self.name, share) for n in range(count))

    def apart(self, share: Share, count: int) -> tuple[SliceSpec, ...]:
        """Return `count` slices that have this share each. Raises MeasureRequestError if there is not enough
        room for them."""
        if self.gpu is not None:
            return self.slices(share, count)
        size = int(share.amount)
        if size * count > len(self.cores):
            raise MeasureRequestError(
                f"--colocate: {count} slices of {share} need {size * count} cores of {len(self.cores)}"
            )
        return tuple(
            SliceSpec(f"measured-{n}", self.cores[n * size : (n + 1) * size], size) for n in range(count)
        )

    def actuator(self, share: Share) -> Actuator | None:
        """Return the actuator that makes slices of that share real. One of several processes is open already.

        Returns None on a CPU, as workers go to their cores by themselves. Raises SlicingError if the GPU has
        no such shares.
        """
        if self.visible is None:
            return None
        found = device_actuator(share.kind, self.visible, self.inventory)
        return InstanceProcesses(found, share) if share.processes > 1 else found


def device(name: str) -> MeasuredDevice:
    """Return the device of that name ("cpu", "cuda:0", "gpu-0", a UUID); UsageError where there is none."""
    inventory = take_inventory()
    if name == "cpu":
        count = len(inventory.cores)
        doubled = [1 << power for power in range(count.bit_length()) if 1 << power < count]
        shares = tuple(Share("cores", float(cores)) for cores in [*doubled, count])
        machine = {"processor": processor_name(), "cores": str(os.cpu_count()), "memory": _memory()}
        return MeasuredDevice(name, device_kind(SliceSpec("", ())), shares, _about(machine), inventory)
    try:
        visible = device_named(name, inventory, os.environ)
    except SlicingError as error:
        raise MeasureRequestError(f"--device: {error}; or cpu") from None
    gpu = visible.gpu
    parts = tuple(Share("mps", float(percent)) for percent in PERCENTAGES)
    shares = parts if visible.mig_device is None else (visible.share,)
    machine = {"gpu": gpu.name, "driver": inventory.driver, "cuda": str((inventory.cuda or 0) / 1000)}
    return MeasuredDevice(name, gpu_kind(gpu.name), shares, _about(machine), inventory, visible)


def _about(machine: dict[str, str]) -> tuple[tuple[str, str], ...]:
    found = machine | {"kernel": platform.release(), "python": platform.python_version()}
    return tuple((found | _versions(("numpy", "torch"))).items())


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.1f} GiB"
