"""What the replicas of workers on GPUs hold there, with contexts and libraries.

A worker knows what its models allocate by torch. The driver knows what its process holds: also the context,
some hundred MB, and what other libraries allocate. What the driver sees beside the replicas that are known
counts for the replica that was loaded last, so the first one bears the context.
"""


class GpuMemory:
    """An account for each worker process, by its pid."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, int]] = {}  # by pid, then by replica

    def loaded(self, pid: int, replica: int, own_bytes: int, process_bytes: int) -> int:
        """Return what a replica counts for. `own_bytes`: by its worker; `process_bytes`: of the process, by
        the driver, 0 if unknown."""
        held = self._held.setdefault(pid, {})
        others = sum(each for number, each in held.items() if number != replica)
        held[replica] = max(own_bytes, process_bytes - others)
        return held[replica]

    def unloaded(self, pid: int, replica: int) -> None:
        """Forget a replica. What it leaves behind counts for the next one."""
        self._held.get(pid, {}).pop(replica, None)

    def ended(self, pid: int) -> None:
        """Forget a process."""
        self._held.pop(pid, None)
