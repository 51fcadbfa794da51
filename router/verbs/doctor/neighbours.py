"""What others do on this machine: their time on our cores, what waits, and what the hypervisor takes."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from router.verbs.doctor.finding import Finding, ok, warning
from router.verbs.doctor.machine import Machine, text
from serving.profile.sweeping.noise import OTHERS_MAX, STOLEN_MAX

STALLED_PERCENT_MAX: Final = 10.0
"""Of the last ten seconds, some process waited for a core or for memory."""
_USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ, _STEAL = 0, 1, 2, 5, 6, 7  # proc_pid_stat(5), "cpu"
_PRESSURE = re.compile(r"^some avg10=([\d.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """Ticks of usable cores since the boot: `busy` with processes, `stolen` by other machines, and all."""

    busy: int = 0
    stolen: int = 0
    total: int = 0


def core_times(machine: Machine) -> CoreTimes:
    """Read them; all 0 where the kernel does not tell."""
    busy = stolen = total = 0
    for line in text(machine.proc / "stat").splitlines():
        name, *fields = line.split()
        if name.removeprefix("cpu") not in map(str, machine.cores):
            continue
        ticks = [int(field) for field in fields[:8]]  # guests' are in user's
        busy += sum(ticks[place] for place in (_USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ))
        stolen += ticks[_STEAL] if len(ticks) > _STEAL else 0
        total += sum(ticks)
    return CoreTimes(busy, stolen, total)


def check_neighbours(before: CoreTimes, after: CoreTimes, own_ticks: float) -> Finding:
    """Return whether others leave the cores alone. `own_ticks`: what this process itself took in between."""
    total = after.total - before.total
    if total <= 0:
        return ok("neighbours", "the kernel does not say what others do")
    others = max(after.busy - before.busy - own_ticks, 0) / total
    stolen = (after.stolen - before.stolen) / total
    if stolen > STOLEN_MAX:
        sentence = f"the hypervisor gave {stolen:.0%} of the cores' time to other machines"
        return warning("neighbours", sentence, "take a machine with cores of its own")
    if others > OTHERS_MAX:
        sentence = f"other processes had {others:.0%} of the cores' time"
        return warning(
            "neighbours", sentence, "move or end them (top shows them), or give slices other cores"
        )
    return ok("neighbours", f"others had {others:.0%} of the cores' time, the hypervisor {stolen:.0%}")


def check_load(machine: Machine) -> Finding:
    """Return whether processes wait for cores."""
    first = text(machine.proc / "loadavg").partition(" ")[0]
    if not re.fullmatch(r"[\d.]+", first):
        return ok("load", "the kernel does not say how many processes wait")
    waiting = float(first)
    sentence = f"{waiting:.1f} processes ran or waited in the last minute, on {len(machine.cores)} cores"
    if waiting > len(machine.cores):
        return warning("load", sentence, "wait until they end, or move them to another machine")
    return ok("load", sentence)


def check_pressure(machine: Machine) -> Finding:
    """Return whether processes stand still for want of a core or of memory."""
    stalls = {name: _stalled_percent(machine.proc / "pressure" / name) for name in ("cpu", "memory")}
    known = {name: percent for name, percent in stalls.items() if percent is not None}
    if not known:
        return ok("pressure", "the kernel does not measure what processes wait for")
    worst = max(known, key=lambda name: known[name])
    sentence = f"some process waited for {worst} in {known[worst]:.0f} % of the last 10 s"
    if known[worst] > STALLED_PERCENT_MAX:
        return warning("pressure", sentence, "wait until others are done, or give this machine less to do")
    return ok("pressure", sentence)


def _stalled_percent(file: Path) -> float | None:
    found = _PRESSURE.search(text(file))
    return float(found[1]) if found else None
