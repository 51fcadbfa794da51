"""How long the controller waits: for a worker to start, load or answer, and between two tries."""

from serving.control.state.replicas import ReplicaStatus, SliceRecord, WorkerStatus
from serving.values.specs import Limits
from serving.values.vocabulary import NEVER_US

BACKOFF_FIRST_US = 100_000
BACKOFF_MAX_US = 10_000_000
HEALTHY_US = 30_000_000  # a worker that lived so long does not fail again and again
ANSWERED_US = 1_000_000
"""A worker that answered for so long, and loaded nothing, ended from a cause that no wait cures.

Such causes are a kill, the OOM killer, or one bad input. So its back-off starts again from the first pause.
"""


def stumbles_after(stumbles: int, lived_us: int, loads: bool) -> int:
    """Return how many failures count toward the back-off of a worker that is lost after it answered so long.

    `stumbles`: how many did at the failure before. `loads`: a replica was loading.
    """
    return 1 if lived_us >= (HEALTHY_US if loads else ANSWERED_US) else stumbles + 1


def backoff_us(failures: int) -> int:
    """Return how long to wait before the next try: from 0.1 s, doubling up to 10 s."""
    return min(BACKOFF_FIRST_US << min(failures - 1, 20), BACKOFF_MAX_US)


def overdue(record: SliceRecord, limits: Limits) -> tuple[str, int]:
    """Return why the controller ends a worker, and when: its present order takes too long."""
    startup_s, stall_us = limits.startup_s, limits.stall_us
    patience_us = int(startup_s * 1e6)
    if record.status is WorkerStatus.STARTING:
        return f"it did not start within {startup_s:g} s", record.heard_us + patience_us
    if record.status is WorkerStatus.STOPPING:
        return f"it did not end within {startup_s:g} s", record.heard_us + patience_us
    if record.status is not WorkerStatus.READY:
        return "", NEVER_US
    if (oldest := record.oldest_load) is not None:  # its time: the worker says more of others meanwhile
        what = f"{oldest.model} {oldest.variant}"
        return f"{what} did not load within {startup_s:g} s", record.loading_us + patience_us
    for replica in record.replicas.values():
        what = f"{replica.model} {replica.variant}"
        if replica.status is ReplicaStatus.UNLOADING:
            return f"{what} was not unloaded within {startup_s:g} s", record.heard_us + patience_us
        if record.measuring == replica.id:
            if replica.status is ReplicaStatus.MEASURING:  # its budget is at most the sweep's
                stall_us += int(limits.sweep_s * 1e6)
            return f"{what} was measured for over {stall_us / 1e6:g} s", record.heard_us + stall_us
    return "", NEVER_US
