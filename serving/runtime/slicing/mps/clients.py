"""The clients of an MPS daemon: whether a worker is one, and how the work of a stuck one ends.

A client that is killed in the middle of its work may break the server for all others (NVIDIA, MPS,
"Limitations"). So the daemon ends its work first. A daemon that does not is started anew, which ends all
workers of its GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.runtime.slicing.contract import Actuator, SlicingError
from serving.runtime.slicing.mps.mps import MpsPartitions, MpsPercentages
from serving.runtime.slicing.mps.mps_daemon import MpsDaemon


@dataclass(frozen=True, slots=True)
class Ended:
    """How the work of a client ended. `restarted`: why the daemon was started anew, "" if it was not;
    `broken`: why it could not be."""

    restarted: str = ""
    broken: str = ""


def daemon_of(actuator: Actuator | None) -> MpsDaemon | None:
    """Return the daemon through which the slices of an actuator compute, None if there is none."""
    return actuator.daemon if isinstance(actuator, MpsPercentages | MpsPartitions) else None


def check_clients(actuator: Actuator | None, pids: Sequence[int]) -> None:
    """Raise SlicingError if one of these workers computes without its MPS share.

    CUDA goes on without a daemon that it cannot reach, and says nothing.
    """
    daemon = daemon_of(actuator)
    if daemon is None:
        return
    lost = sorted(set(pids) - set(daemon.clients()))
    if lost:
        raise SlicingError(f"worker {', '.join(map(str, lost))} computes without MPS, so it has no share")


def end_client(daemon: MpsDaemon, pid: int) -> Ended:
    """End a worker's outstanding work, by the daemon or with the daemon. Its process lives on."""
    try:
        daemon.terminate(pid)
    except SlicingError as error:
        reason = f"the MPS daemon did not end the work of process {pid}: {error}"
    else:
        return Ended()
    daemon.stop()
    try:
        daemon.start()
    except SlicingError as error:
        return Ended(reason, f"{reason}; it could not be started anew: {error}")
    return Ended(reason)
