"""Whether all that is wanted is there, and what keeps workers and replicas from being ready."""

from collections.abc import Mapping

from serving.control.state.replicas import ReplicaStatus, SliceRecord, WorkerStatus

_DONE = frozenset((ReplicaStatus.READY, ReplicaStatus.STANDING, ReplicaStatus.FAILED))


def settled(slices: Mapping[str, SliceRecord]) -> bool:
    """Return whether no variant is still being loaded or measured, but for those that wait to be asked for,
    and those whose device is lost."""
    return all(
        each.status in _DONE or (each.status is ReplicaStatus.ABSENT and record.spec.memory_bytes > 0)
        for record in slices.values()
        if record.status is not WorkerStatus.LOST
        for each in record.replicas.values()
    )


def troubles(slices: Mapping[str, SliceRecord]) -> dict[str, str]:
    """Return what keeps workers and replicas from being ready, a sentence each, by where."""
    found = {}
    for name, record in slices.items():
        if record.status is WorkerStatus.WAITING:
            found[name] = f"the worker of slice {name} {record.reason}; it is started again"
        if record.status is WorkerStatus.LOST and record.spec.node:
            found[name] = f"slice {name} waits for its node: {record.reason}"
        for replica in record.replicas.values():
            if replica.status is ReplicaStatus.FAILED:
                found[f"{name} {replica.id}"] = f"slice {name}: {replica.reason}"
    return found
