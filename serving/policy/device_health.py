"""What the state of a GPU means for the slices on it: nothing, a note, ended workers, or a cordon.

The driver reports faults as XIDs. NVIDIA's "XID Errors" catalogue says whose fault each one is and what cures
it. After an error of an application that must be restarted. After an error of the memory, of a link or of the
board the GPU must be reset, which its operator does. Until then NVML may well read as if all were good, so a
GPU is used again only after a sign that it was reset, and a quiet time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

APPLICATION_XIDS: Final[Mapping[int, str]] = {
    13: "graphics engine exception",
    31: "memory page fault",
    43: "reset of a channel",
    45: "cleanup after an earlier error",
    69: "graphics engine class error",
    94: "contained memory error",
}
"""XIDs whose cure is a restart of the application (catalogue: RESTART_APP)."""
DEVICE_XIDS: Final[Mapping[int, str]] = {
    46: "GPU stopped processing",
    48: "double bit ECC error",
    62: "halt of the internal microcontroller",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained memory error",
    119: "GSP RPC timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
    143: "GPU initialisation failure",
}
"""XIDs whose cure is a reset of the GPU or of the machine (catalogue: RESET_GPU, RESTART_BM)."""
NOTED_XIDS: Final[Mapping[int, str]] = {
    63: "row remapping recorded",
    92: "high rate of single bit ECC errors",
    154: "recovery action changed",
}
"""XIDs that need no cure now. 63 takes effect at the next reset; a fault that matters brings 48, 94 or 95."""


QUIET_US: Final = 60_000_000
"""How long a GPU has to read without a fault after a sign that it was reset, until slices use it again."""
_QUIET: Final = f"{QUIET_US / 1e6:g} s"


@dataclass(frozen=True, slots=True)
class Xid:
    """A fault that the driver reported. `instance`: the UUID of its MIG device, "" for the whole GPU."""

    number: int
    instance: str = ""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A GPU at one moment. What the driver does not say is None.

    `lost`: it has fallen off the bus. `xids`: since the reading before; None if the driver reports none.
    `uncorrected`: ECC errors since the driver loaded. `throttled`: why its clocks are lowered.
    `process_bytes`: the memory that each process holds there, by pid. `needs_reset`: whether the driver asks
    for a reset of it.
    """

    uuid: str
    index: int
    name: str = ""
    lost: bool = False
    xids: tuple[Xid, ...] | None = None
    uncorrected: int | None = None
    rows_pending: bool = False
    rows_failed: bool = False
    throttled: tuple[str, ...] = ()
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    used_percent: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    temperature_c: int | None = None
    process_bytes: Mapping[int, int] = field(default_factory=dict)
    needs_reset: bool | None = None


@dataclass(frozen=True, slots=True)
class GpuStanding:
    """What was found of a GPU until now. `cordoned`: why no slice may use it, "" if slices may. `calm_us`:
    since when it reads without a fault after a sign that it was reset, None if there was none."""

    cordoned: str = ""
    lost: bool = False
    throttled: tuple[str, ...] = ()
    rows_pending: bool = False
    uncorrected: int | None = None
    needs_reset: bool | None = None
    calm_us: int | None = None


@dataclass(frozen=True, slots=True)
class EndWorkers:
    """A verdict: the workers with a faulted computation must end, as their contexts are no longer usable."""

    uuid: str
    instance: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cordon:
    """No slice may use the GPU."""

    uuid: str
    reason: str


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Slices may use the GPU again."""

    uuid: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log."""

    uuid: str
    text: str


Verdict = EndWorkers | Cordon | Uncordon | Note


def judge(standing: GpuStanding, reading: GpuReading, now_us: int) -> tuple[GpuStanding, tuple[Verdict, ...]]:
    """Return what is known of a GPU after a reading, and the verdicts that follow from it.

    A cordoned GPU is used again after QUIET_US without a fault, which begin with a sign that it was reset.
    """
    name, uuid = f"GPU {reading.index}", reading.uuid
    if reading.lost:
        reason = f"{name} has fallen off the bus; restart the machine"
        found: tuple[Verdict, ...] = () if standing.cordoned else (Cordon(uuid, reason),)
        return replace(standing, lost=True, calm_us=None, cordoned=standing.cordoned or reason), found
    verdicts: list[Verdict] = []
    cordoned, calm_us = standing.cordoned, standing.calm_us
    if fault := _fault(standing, reading):
        reason, calm_us = f"{name}: {fault}; reset it with `nvidia-smi -i {reading.index} -r`", None
        if not cordoned:
            verdicts.append(Cordon(uuid, reason))
        cordoned = reason if standing.lost else cordoned or reason
    elif cordoned and calm_us is None and _was_reset(standing, reading):
        calm_us = now_us
        verdicts.append(Note(uuid, f"{name} reads without a fault; slices use it again after {_QUIET}"))
    elif calm_us is not None and now_us - calm_us >= QUIET_US:
        cordoned, calm_us = "", None
        verdicts.append(Uncordon(uuid))
    if not cordoned:
        verdicts += _of_applications(reading)
    verdicts += [Note(uuid, f"{name}: {text}") for text in _notes(standing, reading)]
    after = GpuStanding(
        cordoned, False, reading.throttled, reading.rows_pending, reading.uncorrected, reading.needs_reset,
        calm_us,
    )  # fmt: skip
    return after, tuple(verdicts)


def obstacle(reading: GpuReading) -> str:
    """Return the fault that a GPU has at this moment, whatever was before; "" if it can be used."""
    if reading.lost:
        return "it has fallen off the bus"
    if reading.needs_reset:
        return "its driver asks for a reset"
    return "a faulty row of its memory could not be replaced" if reading.rows_failed else ""


def _was_reset(standing: GpuStanding, reading: GpuReading) -> bool:
    """Return whether a GPU without a fault shows that it was reset: it was away, its driver counts errors
    anew, or its driver does not ask for a reset any more."""
    before, now = standing.uncorrected, reading.uncorrected
    anew = before is not None and now is not None and now < before
    return standing.lost or anew or (standing.needs_reset is True and reading.needs_reset is False)


def _fault(standing: GpuStanding, reading: GpuReading) -> str:
    """Return the fault that needs a reset of the GPU, "" if there is none."""
    for xid in reading.xids or ():
        if xid.number in DEVICE_XIDS:
            return f"XID {xid.number}, {DEVICE_XIDS[xid.number]}"
    if reading.rows_failed:
        return "a faulty row of its memory could not be replaced"
    before, now = standing.uncorrected, reading.uncorrected
    if reading.xids is None and before is not None and now is not None and now > before:
        return f"{now - before} uncorrected ECC errors"
    return ""


def _of_applications(reading: GpuReading) -> list[EndWorkers]:
    """Return which workers must end, each place once."""
    found: dict[str, EndWorkers] = {}
    for xid in reading.xids or ():
        if xid.number in APPLICATION_XIDS:
            reason = f"GPU {reading.index}: XID {xid.number}, {APPLICATION_XIDS[xid.number]}"
            found.setdefault(xid.instance, EndWorkers(reading.uuid, xid.instance, reason))
    return [*found.values()]


def _notes(standing: GpuStanding, reading: GpuReading) -> list[str]:
    found = [
        f"XID {xid.number}, {NOTED_XIDS.get(xid.number, 'no fault that is known here')}"
        for xid in reading.xids or ()
        if xid.number not in APPLICATION_XIDS and xid.number not in DEVICE_XIDS
    ]
    before, now = standing.uncorrected, reading.uncorrected
    if reading.xids is not None and before is not None and now is not None and now > before:
        found.append(f"{now - before} uncorrected ECC errors more")
    if reading.rows_pending and not standing.rows_pending:
        found.append("a faulty row of its memory is replaced at the next reset")
    if reading.throttled and not standing.throttled:
        found.append(f"its clocks are lowered: {', '.join(reading.throttled)}")
    if standing.throttled and not reading.throttled:
        found.append("its clocks are not lowered any more")
    return found


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a slice computes: the UUID of its GPU, of its MIG device ("" for none), and its kind of share."""

    uuid: str
    instance: str
    share_kind: str


def struck(verdict: EndWorkers, placed: Mapping[str, Placed]) -> Collection[str]:
    """Return the slices with workers that an application's fault has reached.

    A fault in one client of an MPS server reaches all of its clients. Slices that take turns have contexts of
    their own, and the driver does not say which context faulted: that worker notices it by itself.
    """
    if verdict.instance:
        return [name for name, place in placed.items() if place.instance == verdict.instance]
    there = [name for name, place in placed.items() if place.uuid == verdict.uuid]
    shared = any(placed[name].share_kind in ("mps", "sm") for name in there)
    return there if shared or len(there) == 1 else []
