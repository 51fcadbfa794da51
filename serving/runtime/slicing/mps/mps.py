"""Shares of a GPU by CUDA MPS: per cent of its multiprocessors at most, or static partitions of them.

The processes of all slices compute at once through one server, so a fault of one reaches all (NVIDIA, MPS,
"Limitations"), memory bandwidth and caches are nobody's, and a share is read when a process starts. Drain a
worker before it ends: one that is killed in the middle of its work may break the server.
"""

from contextlib import suppress
from typing import Final

from serving.policy.placement.terms.mps import CLIENTS_MAX
from serving.runtime.slicing.contract import FaultDomain, Guarantee, Resize, Setting, SlicingError
from serving.runtime.slicing.mps import mps_text
from serving.runtime.slicing.mps.mps_daemon import CONTROL, MpsDaemon
from serving.runtime.slicing.timeslice import on_device
from serving.values.slice_specs import Share, SliceSpec

_MIB: Final = 1 << 20


class MpsPercentages:
    """Caps: kernels of a slice run on at most the slice's per cent of the multiprocessors, on any that are
    free."""

    def __init__(self, uuid: str, control: str = CONTROL, clients_max: int = CLIENTS_MAX) -> None:
        self.daemon = MpsDaemon(uuid, control)
        self._open: dict[str, Share] = {}
        shares = tuple(Share("mps", float(percent)) for percent in range(1, 101))
        self.guarantee = Guarantee(False, shares, Resize.NEW_PROCESS, FaultDomain.DEVICE, clients_max)

    def open(self, spec: SliceSpec) -> Setting:
        """Return a place at the daemon, which the first slice starts."""
        self.guarantee.require(spec, self._open)
        self.daemon.start()
        self._open[spec.name] = spec.share
        percent = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", f"{spec.share.amount:g}")
        return _client(self.daemon, spec, percent)

    def close(self, name: str) -> None:
        """Close the slice; the daemon stays for the next slice."""
        self._open.pop(name, None)

    def stop(self) -> None:
        self._open.clear()
        self.daemon.stop()


class MpsPartitions:
    """Reservations: multiprocessors in chunks, each a slice's own. CUDA 13.1 and later; untested on a GPU."""

    def __init__(
        self, uuid: str, chunks: int, control: str = CONTROL, clients_max: int = CLIENTS_MAX
    ) -> None:
        """Divide the device into `chunks`: 8 multiprocessors each since Hopper, 4 on Ampere."""
        self.daemon = MpsDaemon(uuid, control, ("-S",))
        self._open: dict[str, Share] = {}
        self._partitions: dict[str, str] = {}
        shares = tuple(Share("sm", float(count)) for count in range(1, chunks + 1))
        tenants = min(chunks, clients_max)
        self.guarantee = Guarantee(True, shares, Resize.NEW_PROCESS, FaultDomain.DEVICE, tenants)

    def open(self, spec: SliceSpec) -> Setting:
        """Return a partition of the slice's number of chunks, as listed. Raises SlicingError if the free
        chunks do not hold it."""
        if not self.daemon.answers():  # what it had divided is gone with it
            self._open.clear()
        self.guarantee.require(spec, self._open)
        if spec.name not in self._open:
            self.daemon.start()
            self._partitions[spec.name] = self._add(spec)
            self._open[spec.name] = spec.share
        return _client(self.daemon, spec, ("CUDA_MPS_SM_PARTITION", self._partitions[spec.name]))

    def close(self, name: str) -> None:
        """Remove the slice's partition. Raises SlicingError if it still has clients."""
        if name in self._open and self.daemon.answers():
            self._remove(self._partitions[name])
        self._open.pop(name, None)

    def stop(self) -> None:
        self._open.clear()
        self.daemon.stop()

    def _add(self, spec: SliceSpec) -> str:
        chunks = int(spec.share.amount)
        made = mps_text.partition_made(self.daemon.ask(f"sm_partition add {self.daemon.visible} {chunks}"))
        listed = self._listed(made)
        if listed is None or listed.chunks != chunks:
            with suppress(SlicingError):  # the first failure tells more
                self._remove(made)
            there = f"of {listed.chunks} chunks" if listed else "nowhere"
            raise SlicingError(f"slice {spec.name}: the partition of {chunks} chunks is listed {there}")
        return made

    def _remove(self, partition: str) -> None:
        self.daemon.ask(f"sm_partition rm {partition.replace('/', ' ', 1)}")
        if self._listed(partition) is not None:
            raise SlicingError(f"the partition {partition} is still listed after its removal")

    def _listed(self, partition: str) -> mps_text.Partition | None:
        own = partition.partition("/")[2]
        rows = mps_text.partitions(self.daemon.ask("lspart"))
        return next((row for row in rows if row.partition == own), None)


def _client(daemon: MpsDaemon, spec: SliceSpec, share: tuple[str, str]) -> Setting:
    # The daemon shows its clients one device; one that chooses for itself would not find it (NVIDIA, MPS).
    more = [("CUDA_MPS_PIPE_DIRECTORY", daemon.folder), share]
    if spec.memory_bytes:
        more.append(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", f"0={spec.memory_bytes // _MIB}M"))
    return on_device(spec, None, *more)
