"""The limits of this process that a gateway meets: open files, processes, and memory that stays in place."""

import re
from math import inf
from typing import Final

from router.settings import Settings
from router.settings.machine.cgroups import groups
from router.settings.machine.descriptors import BESIDES, EDGES
from router.verbs.doctor.finding import Finding, fault, ok, warning
from router.verbs.doctor.machine import Machine, gpu_slices, text
from serving.values.specs import Limits
from serving.worker.frames.shared import SHARED_BYTES_MAX

GATEWAY_TASKS: Final = 64
WORKER_TASKS: Final = 32
"""Threads of the gateway, and of a worker beside those that compute; the kernel counts each as a process."""


def check_open_files(machine: Machine, settings: Settings | None) -> Finding:
    """Return whether as many connections can be open as `limits.connection_count` allows."""
    count = (settings.limits if settings else Limits()).connection_count
    needed = EDGES * count + BESIDES
    hard = _limits(machine, "Max open files")[1]
    if hard < needed:
        sentence = f"this process may open {hard:g} files, and {count} connections need {needed}"
        cure = "raise it (ulimit -Hn, LimitNOFILE=, docker --ulimit nofile), or lower limits.connection_count"
        return fault("open files", sentence, cure)
    return ok("open files", f"{_number(hard)} files may be open, and {needed} are needed")


def check_processes(machine: Machine, settings: Settings | None) -> Finding:
    """Return whether the user and the container may have as many threads as all workers start."""
    slices = settings.slices if settings else ()
    needed = GATEWAY_TASKS + sum(WORKER_TASKS + each.threads for each in slices)
    allowed = min([_limits(machine, "Max processes")[0], *_group_limits(machine)])
    if allowed < needed:
        sentence = f"{allowed:g} processes and threads are allowed, and the workers need about {needed}"
        return warning("processes", sentence, "raise it (ulimit -u, docker --pids-limit, TasksMax=)")
    return ok(
        "processes", f"{_number(allowed)} processes and threads are allowed, and about {needed} are needed"
    )


def check_locked_memory(machine: Machine, settings: Settings | None) -> Finding:
    """Return whether the areas of workers on GPUs may be locked in memory, for copies in the background."""
    allowed = _limits(machine, "Max locked memory")[0]
    workers = len(gpu_slices(settings))
    needed = 2 * SHARED_BYTES_MAX
    if not workers:
        return ok("locked memory", "no slice is on a GPU, so no memory is locked")
    if allowed < needed:
        sentence = f"a process may lock {allowed / (1 << 20):.0f} MB, and a worker's areas have up to "
        sentence += f"{needed >> 20} MB"
        return warning(
            "locked memory", sentence, "raise it (ulimit -l, LimitMEMLOCK=, docker --ulimit memlock=-1)"
        )
    return ok("locked memory", "each worker may lock its areas in memory")


def _limits(machine: Machine, name: str) -> tuple[float, float]:
    """Return the soft and the hard limit of that name; none where the kernel does not tell."""
    found = re.search(rf"^{name}\s+(\S+)\s+(\S+)", text(machine.proc / "self" / "limits"), re.MULTILINE)
    soft, hard = (
        float(value) if value.isdecimal() else inf for value in (found.groups() if found else ("", ""))
    )
    return soft, hard


def _group_limits(machine: Machine) -> list[float]:
    limits = [text(group / "pids.max") for _, group in groups("pids", machine.proc, machine.cgroups)]
    return [float(limit) for limit in limits if limit.isdecimal()]


def _number(limit: float) -> str:
    return "any number of" if limit == inf else f"{limit:.0f}"
