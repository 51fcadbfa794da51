"""Who else has a machine's cores: readings of the kernel's counters (proc(5), /proc/stat)."""

import os
import resource
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CoreTime:
    """Seconds of some cores since the machine started: all, those spent idle, those that the hypervisor
    gave to other machines."""

    total: float
    idle: float
    stolen: float

    def since(self, before: "CoreTime", own: float) -> tuple[float, float]:
        """Return (the share of the time that others had, the share that was stolen); `own` seconds do not
        count as others'."""
        total = max(self.total - before.total, 1e-9)
        stolen = self.stolen - before.stolen
        others = total - (self.idle - before.idle) - stolen - own
        return max(others, 0.0) / total, stolen / total


def core_time(cores: Collection[int]) -> CoreTime:
    """Return the counters of `cores` as they are now; () for all."""
    total = idle = stolen = 0.0
    for line in _STAT.read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu" and (not cores or int(name[3:]) in cores):
            # user, nice, system, idle, iowait, irq, softirq, steal
            ticks = [int(field) / _TICKS for field in fields[:8]]
            total += sum(ticks)
            idle += ticks[3] + ticks[4]
            stolen += ticks[7]
    return CoreTime(total, idle, stolen)


def process_seconds(pid: int) -> float:
    """Return the CPU time of a process, with all its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def own_seconds() -> float:
    """Return the CPU time of this process in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
