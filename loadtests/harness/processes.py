"""What Linux tells of a running process: its CPU time, memory, children; and where and when it may run."""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from serving.control.sparing import SPARE

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_us(pid: int) -> float:
    """Return user and system time of the process, all its threads, in microseconds (a tick is 10 ms)."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S * 1e6  # utime and stime, proc(5)


def tree_us(pid: int) -> float:
    """Return the same of the process and all its children, those too that have ended and were waited for."""
    fields = _stat(pid)
    ended_us = (int(fields[13]) + int(fields[14])) / _TICKS_PER_S * 1e6  # cutime and cstime, proc(5)
    found = cpu_us(pid) + ended_us
    for child in children(pid):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found += tree_us(child)
    return found


def core_us(core: int) -> float:
    """Return the time that all processes, and the machine's other guests (steal), have taken of a core since
    the start."""
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name == f"cpu{core}":
            user, nice, system, steal = (int(ticks[place]) for place in (0, 1, 2, 7))  # proc(5)
            return (user + nice + system + steal) / _TICKS_PER_S * 1e6
    raise ValueError(f"core {core} is not there")


def resident_bytes(pid: int) -> int:
    """Return the anonymous and file-backed memory that the process has in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def children(pid: int) -> list[int]:
    """Return the direct children of the process, in order of their ids."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if int(_stat(int(folder.name))[1]) == pid:
                found.append(int(folder.name))
    return sorted(found)


def workers_of(gateway: int) -> list[int]:
    """Return the worker processes of a gateway, without spares. The keepers of its workers are its children,
    or were taken over, and then name its settings."""
    _, _, config = command_line(gateway).partition(" --config ")
    owner = f"--owner {os.path.abspath(config.split(' ')[0])} "
    pids = (
        sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*")) if config else children(gateway)
    )
    lines = {pid: command_line(pid) for pid in pids}
    keepers = [
        pid
        for pid, line in lines.items()
        if "serving.worker" in line and (owner in line or not config) and f"+{SPARE} " not in line
    ]
    return [pid for keeper in keepers for pid in children(keeper) if "serving.worker" in command_line(pid)]


def command_line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it ended after it was listed
        return ""
    return words.replace(b"\0", b" ").decode(errors="replace").strip()


def pin(pid: int, cores: Collection[int]) -> None:
    """Keep every thread that the process has now on the cores; its children stay where they are."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cores)


@contextlib.contextmanager
def undisturbed(core: int | None, realtime: bool) -> Iterator[None]:
    """Run this process on a core of its own, and before everything else on it, if asked for.

    Raises OSError if it may not: going before others needs root or CAP_SYS_NICE.
    """
    cores, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    try:
        if core is not None:
            os.sched_setaffinity(0, {core})
        if realtime:
            # Not what is started meanwhile: commands, and gateways.
            alone = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(0, alone, os.sched_param(1))
        yield
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        os.sched_setaffinity(0, cores)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command's name, which may hold spaces: state, parent,
    ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
