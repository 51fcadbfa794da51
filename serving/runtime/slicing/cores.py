"""Core sets of a CPU: a worker stays on its cores and computes with as many threads."""

import os
from collections.abc import Collection, Sequence

from serving.runtime.environment import THREAD_POOLS
from serving.runtime.slicing.contract import FaultDomain, Guarantee, Resize, Setting, SlicingError
from serving.specs import Share, SliceSpec


def core_set(spec: SliceSpec) -> Setting:
    """The cores and threads that the slice names, whoever else computes there.

    Thread pools are sized when a process starts, so another number of threads is another process.
    """
    pools = tuple((pool, str(spec.threads)) for pool in THREAD_POOLS)
    return Setting(pools, spec.cores, spec.threads, spec.device)


class CoreSets:
    """Cores that no two slices share. Other programs may compute there unless the system keeps them away."""

    def __init__(self, cores: Collection[int] | None = None) -> None:
        """`cores`: those to divide; None for all that this process may use."""
        self._cores = tuple(sorted(os.sched_getaffinity(0) if cores is None else cores))
        self._open: dict[str, SliceSpec] = {}
        shares = tuple(Share("cores", float(count)) for count in range(1, len(self._cores) + 1))
        self.guarantee = Guarantee(True, shares, Resize.NEW_PROCESS, FaultDomain.PROCESS, len(self._cores))

    def open(self, spec: SliceSpec) -> Setting:
        """Cores for the slice's threads: those that it names, else the first that are free."""
        self.guarantee.require(spec, {name: each.share for name, each in self._open.items()})
        opened = self._open.get(spec.name)
        if opened is not None and spec.cores in ((), opened.cores):
            return core_set(opened)
        others = [each for each in self._open.values() if each.name != spec.name]
        free = [core for core in self._cores if not any(core in each.cores for each in others)]
        cores = spec.cores or tuple(free[: spec.threads])
        if len(cores) < spec.threads or not set(cores) <= set(free):
            wanted = f"the cores {_listed(spec.cores)}" if spec.cores else f"{spec.threads} cores"
            raise SlicingError(f"slice {spec.name}: {wanted} are not free; free are {_listed(free)}")
        self._open[spec.name] = SliceSpec(spec.name, cores, spec.threads)
        return core_set(self._open[spec.name])

    def close(self, name: str) -> None:
        self._open.pop(name, None)

    def stop(self) -> None:
        self._open.clear()


def _listed(cores: Sequence[int]) -> str:
    return ", ".join(map(str, cores)) or "none"
