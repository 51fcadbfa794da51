"""Reads the state of this machine's GPUs by NVML, again and again: faults, memory, clocks, power.

NVML stays open between two readings, because the driver reports faults (XIDs) only to those that listen. A
call may block for as long as the driver does, so a thread reads.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import pynvml

from serving.policy.device_health import GpuReading, Xid
from serving.runtime.slicing.inventory import mig_devices

_T = TypeVar("_T")

_SILENT: Final = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)
_WHOLE_GPU: Final = 0xFFFFFFFF  # gpuInstanceId of an event without a MIG instance
_EVENTS_MAX: Final = 64  # of one reading
_THROTTLES: Final = (
    (pynvml.nvmlClocksEventReasonSwThermalSlowdown, "heat"),
    (pynvml.nvmlClocksEventReasonHwThermalSlowdown, "heat, by the hardware"),
    (pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown, "power brake"),
    (pynvml.nvmlClocksEventReasonSwPowerCap, "power limit"),
)
"""Reasons that slow computation down. An idle GPU or set clocks are none."""
_PROCESS_CALLS: Final = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)


class GpuReader:
    """NVML, opened at the first reading. Use it from one thread."""

    def __init__(self) -> None:
        self.reason = ""  # why nothing can be read, "" if it can
        self._handles: dict[int, Any] = {}
        self._uuids: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._events: Any = None
        self._listened: set[int] = set()
        self._lost: set[int] = set()
        self._open = False

    def read(self) -> tuple[GpuReading, ...]:
        """Return the GPUs as they are now; none, with `reason`, if NVML cannot be asked."""
        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
                self._events = _ask(pynvml.nvmlEventSetCreate)
            self._find()
        except _SILENT as error:
            self.reason = f"NVML: {error}"
            self.close()  # a driver that is loaded again needs another beginning
            return ()
        self.reason = ""
        xids = self._xids()
        return tuple(self._reading(index, xids.get(uuid, ())) for index, uuid in self._uuids.items())

    def close(self) -> None:
        """Close NVML."""
        if self._events is not None:
            _ask(pynvml.nvmlEventSetFree, self._events)
        if self._open:
            with suppress(*_SILENT):
                pynvml.nvmlShutdown()
        self._events, self._open = None, False
        for each in (self._handles, self._uuids, self._names, self._listened, self._lost):
            each.clear()

    def _find(self) -> None:
        """Find the GPUs that were not there before; one that was keeps its name though it is lost."""
        for index in range(pynvml.nvmlDeviceGetCount()):
            if index in self._handles and index not in self._lost:
                continue
            handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = None if handle is None else _ask(pynvml.nvmlDeviceGetUUID, handle)
            if uuid is None:
                continue
            self._handles[index], self._uuids[index] = handle, _text(uuid)
            self._names[index] = _text(_ask(pynvml.nvmlDeviceGetName, handle))
            if self._events is not None and _did(
                pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, self._events
            ):
                self._listened.add(index)

    def _xids(self) -> dict[str, list[Xid]]:
        """Return the faults reported since the last time, by UUID, oldest first."""
        found: dict[str, list[Xid]] = {}
        for _ in range(_EVENTS_MAX if self._events is not None else 0):
            event = _ask(pynvml.nvmlEventSetWait_v2, self._events, 0)
            if event is None:  # no more events: NVML says "timeout"
                break
            uuid = _ask(pynvml.nvmlDeviceGetUUID, event.device)
            if uuid is None:  # a lost GPU may not tell its name any more
                continue
            instance = ""
            if event.gpuInstanceId != _WHOLE_GPU:
                instances = {each.gpu_instance: each.uuid for each in mig_devices(event.device)}
                instance = instances.get(int(event.gpuInstanceId), "")
            found.setdefault(_text(uuid), []).append(Xid(int(event.eventData), instance))
        return found

    def _reading(self, index: int, xids: Iterable[Xid]) -> GpuReading:
        handle, uuid, name = self._handles[index], self._uuids[index], self._names[index]
        heard = tuple(xids) if index in self._listened else None
        if _lost(handle):
            self._lost.add(index)
            return GpuReading(uuid, index, name, lost=True, xids=heard)
        self._lost.discard(index)
        memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        used = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        rows = _ask(pynvml.nvmlDeviceGetRemappedRows, handle)
        millijoules = _ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        return GpuReading(
            uuid, index, name, xids=heard,
            uncorrected=_ask(
                pynvml.nvmlDeviceGetTotalEccErrors, handle,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC,
            ),
            rows_pending=bool(rows and rows[2]), rows_failed=bool(rows and rows[3]),
            throttled=_throttles(_ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0),
            memory_bytes=memory and int(memory.total), memory_used_bytes=memory and int(memory.used),
            used_percent=None if used is None else int(used.gpu),
            power_w=_thousandths(_ask(pynvml.nvmlDeviceGetPowerUsage, handle)),
            power_limit_w=_thousandths(_ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
            energy_j=_thousandths(millijoules),
            temperature_c=_ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            process_bytes=_process_bytes(handle),
            needs_reset=_needs_reset(handle),
        )  # fmt: skip


def _lost(handle: Any) -> bool:
    """Return whether the GPU has fallen off the bus, which every call to it says then."""
    try:
        pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as error:
        return bool(error.value == pynvml.NVML_ERROR_GPU_IS_LOST)
    return False


def _needs_reset(handle: Any) -> bool | None:
    """Return whether the driver asks for a recovery action; None if it does not tell (before R570)."""
    found = _ask(pynvml.nvmlDeviceGetFieldValues, handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if not found or found[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return bool(found[0].value.uiVal != pynvml.NVML_GPU_RECOVERY_ACTION_NONE)


def _process_bytes(handle: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for name in _PROCESS_CALLS:
        for process in _ask(getattr(pynvml, name), handle) or ():
            found[process.pid] = max(found.get(process.pid, 0), int(process.usedGpuMemory or 0))
    return found


def _throttles(reasons: int) -> tuple[str, ...]:
    return tuple(word for bit, word in _THROTTLES if reasons & bit)


def _thousandths(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _did(call: Callable[..., object], *arguments: Any) -> bool:
    try:
        call(*arguments)
    except _SILENT:
        return False
    return True


def _ask(call: Callable[..., _T], *arguments: Any) -> _T | None:
    """Return what NVML answers; None if it does not: not supported, not permitted, not in this driver."""
    try:
        return call(*arguments)
    except _SILENT:
        return None


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def used_bytes(readings: Sequence[GpuReading], pid: int) -> int:
    """Return the memory that a process holds on all GPUs; 0 if none is seen, as in some containers."""
    return sum(reading.process_bytes.get(pid, 0) for reading in readings)
