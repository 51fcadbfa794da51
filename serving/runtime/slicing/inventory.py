"""The devices of this machine: its cores, and its NVIDIA GPUs as NVML tells them.

A machine without GPUs, driver or library has an inventory without GPUs and the reason. What a driver or a
container does not tell of a GPU is None.
"""

import ctypes
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

import pynvml

from serving.policy.placement.terms.geometry import Geometry, MigProfile

_T = TypeVar("_T")

_CORES_PER_SM: Final = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
_CORES_PER_SM_ELSE: Final = 128
"""FP32 units of a multiprocessor by compute capability (CUDA C Programming Guide, "Arithmetic
Instructions"): NVML counts them, not the multiprocessors."""

_SILENT: Final = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)  # the second: newer than the driver

_WORD_BITS: Final = 64  # of a mask of cores
BUSY_PERCENT: Final = 10
"""A GPU that nobody uses reads 0; a display or a monitor keeps it at a few per cent."""


class ComputeMode(IntEnum):
    """What may use a GPU: any processes, one thread, nothing, or one process (NVML's numbers)."""

    DEFAULT = 0
    EXCLUSIVE_THREAD = 1
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


_MODES: Final = frozenset(ComputeMode)


@dataclass(frozen=True, slots=True)
class MigDevice:
    """The compute instance of a GPU instance, by the UUID that CUDA knows it by.

    `profile` ("1g.18gb"): what NVML calls its size, "" where it does not say.
    """

    uuid: str
    gpu_instance: int
    memory_bytes: int | None
    sms: int | None
    compute_instance: int = 0
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU. `index` is NVML's (by PCI bus), which need not be CUDA's; `mig`: whether MIG mode is on;
    `used_percent`: of the last second or less, some kernel ran; `processes` that compute there, by pid.
    `geometry`: the driver's list of MIG profiles and places, () while MIG mode is off or it does not tell.
    `cores`: those of its NUMA node, () if unknown.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    capability: tuple[int, int] | None
    sms: int | None
    mig: bool | None
    mig_devices: tuple[MigDevice, ...]
    power_w: float | None
    power_limit_w: float | None
    used_percent: int | None
    processes: tuple[int, ...] | None
    geometry: Geometry = ()
    cores: tuple[int, ...] = ()
    compute_mode: ComputeMode | None = None

    @property
    def chunk_sms(self) -> int | None:
        """Multiprocessors of a chunk of static MPS partitions (seen on Ampere and Hopper), None before."""
        major = self.capability[0] if self.capability else 0
        return 8 if major >= 9 else 4 if major == 8 else None

    def used_by_others(self, ours: Collection[int] = ()) -> str:
        """Return in words which other processes use the GPU, "" if none is seen. The pids in `ours` do not
        count. A container may hide others' processes; then the GPU's use tells: ask while ours do not
        compute."""
        others = sorted(set(self.processes or ()) - set(ours))
        if others:
            return f"GPU {self.index} is used by process {', '.join(map(str, others))}"
        if not self.processes and (self.used_percent or 0) >= BUSY_PERCENT:
            return f"GPU {self.index} is busy at {self.used_percent} % with processes that cannot be seen"
        return ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """`cores`: those that this process may use; `cuda`: the driver's CUDA version times 1000 (13010 is 13.1);
    `reason`: why there are no GPUs, or what could not be read of them, else ""."""

    cores: tuple[int, ...]
    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: int | None = None
    reason: str = ""


def take_inventory() -> Inventory:
    """Read all of it anew: milliseconds without GPUs, longer where a driver has to wake them."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    try:
        with _nvml():
            gpus, reasons = _gpus()
            reason = "; ".join(reasons) or ("" if gpus else "NVML lists no GPU")
            driver = _ask(pynvml.nvmlSystemGetDriverVersion)
            cuda = _ask(pynvml.nvmlSystemGetCudaDriverVersion)
            return Inventory(cores, gpus, _text(driver), cuda, reason)
    except pynvml.NVMLError as error:
        return Inventory(cores, reason=f"NVML: {error}")


@contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpus() -> tuple[tuple[Gpu, ...], list[str]]:
    found: list[Gpu] = []
    reasons: list[str] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            found.append(_gpu(index, pynvml.nvmlDeviceGetHandleByIndex(index)))
        except pynvml.NVMLError as error:  # lost, or not this container's
            reasons.append(f"GPU {index}: {error}")
    return tuple(found), reasons


def _gpu(index: int, handle: Any) -> Gpu:
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    mode = _ask(pynvml.nvmlDeviceGetMigMode, handle)
    used = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    processes = _processes(handle)
    capability = _ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    only = _ask(pynvml.nvmlDeviceGetComputeMode, handle)
    return Gpu(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=memory and int(memory.total),
        memory_used_bytes=None if memory is None else int(memory.used),
        capability=capability,
        sms=_sms(handle, capability),
        mig=mode and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
        mig_devices=mig_devices(handle) if mode and mode[0] else (),
        power_w=_watts(pynvml.nvmlDeviceGetPowerUsage, handle),
        power_limit_w=_watts(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
        used_percent=None if used is None else int(used.gpu),
        processes=processes,
        geometry=_geometry(handle) if mode and mode[0] else (),
        compute_mode=ComputeMode(only) if only in _MODES else None,
        cores=_cores(handle),
    )


def _cores(handle: Any) -> tuple[int, ...]:
    """Return the cores near the GPU, ascending."""
    words = _ask(pynvml.nvmlDeviceGetCpuAffinity, handle, -(-(os.cpu_count() or 1) // _WORD_BITS))
    if words is None:
        return ()
    return tuple(
        number * _WORD_BITS + bit
        for number, word in enumerate(words)
        for bit in range(_WORD_BITS)
        if int(word) >> bit & 1
    )


def _geometry(handle: Any) -> Geometry:
    """Return the profiles that the driver lists with their places, the largest last as `nvidia-smi` does.

    A driver without nvmlDeviceGetGpuInstanceProfileInfoV (before R510) tells no names, and so nothing.
    """
    found = []
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = _ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number)
        places = _places(handle, info.id) if info is not None else []
        if info is None or not places:  # not a profile of this GPU
            continue
        found.append(
            MigProfile(
                id=info.id,
                name=_text(info.name).removeprefix("MIG "),
                starts=tuple(sorted(start for start, _ in places)),
                size=places[0][1],
                instances_max=info.instanceCount,
                memory_gib=round(info.memorySizeMB / 1024, 2),
                sms=info.multiprocessorCount,
            )
        )
    return tuple(sorted(found, key=lambda each: (each.size, each.sms, each.name)))


def _places(handle: Any, profile: int) -> list[tuple[int, int]]:
    """Return (first memory slice, slices) of each place where an instance of this profile may lie."""
    count = ctypes.c_uint()
    if (
        _ask(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, profile, None, ctypes.byref(count))
        is None
    ):
        return []
    there = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    if (
        _ask(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, profile, there, ctypes.byref(count))
        is None
    ):
        return []
    return [(each.start, each.size) for each in there]


def _processes(handle: Any) -> tuple[int, ...] | None:
    for call in (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
    ):
        found = _ask(call, handle)
        if found is not None:
            return tuple(sorted(process.pid for process in found))
    return None


def mig_devices(handle: Any) -> tuple[MigDevice, ...]:
    """Return the MIG devices of a GPU, by its handle."""
    found = []
    for index in range(_ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        device = _ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if device is None:  # no instance of that index
            continue
        instance = _ask(pynvml.nvmlDeviceGetGpuInstanceId, device)
        uuid = _ask(pynvml.nvmlDeviceGetUUID, device)
        if instance is None or uuid is None:
            continue
        memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, device)
        attributes = _ask(pynvml.nvmlDeviceGetAttributes_v2, device)
        sms = attributes and int(attributes.multiprocessorCount)
        found.append(
            MigDevice(
                uuid=_text(uuid),
                gpu_instance=instance,
                memory_bytes=memory and int(memory.total),
                sms=sms,
                compute_instance=_ask(pynvml.nvmlDeviceGetComputeInstanceId, device) or 0,
                profile=_text(_ask(pynvml.nvmlDeviceGetName, device)).partition(" MIG ")[2],
            )
        )
    return tuple(found)


def _sms(handle: Any, capability: tuple[int, int] | None) -> int | None:
    cores = _ask(pynvml.nvmlDeviceGetNumGpuCores, handle)
    if cores is None or capability is None:
        return None
    return int(cores) // _CORES_PER_SM.get(capability, _CORES_PER_SM_ELSE)


def _watts(call: Callable[..., int], handle: Any) -> float | None:
    milliwatts = _ask(call, handle)
    return None if milliwatts is None else milliwatts / 1000


def _ask(call: Callable[..., _T], *arguments: Any) -> _T | None:
    """Return what NVML answers, None where it does not: not supported here, not permitted, not in this
    driver."""
    try:
        return call(*arguments)
    except _SILENT:
        return None


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
