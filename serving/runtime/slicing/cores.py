"""Core sets of a CPU: a worker stays on its cores and computes with as many threads."""

from serving.runtime.environment import THREAD_POOLS
from serving.runtime.slicing.contract import Setting
from serving.values.slice_specs import SliceSpec


def core_set(spec: SliceSpec) -> Setting:
    """Return the cores and threads that the slice names, whatever else computes there.

    Thread pools are sized when a process starts, so another number of threads needs another process.
    """
    pools = tuple((pool, str(spec.threads)) for pool in THREAD_POOLS)
    return Setting(pools, spec.cores, spec.threads, spec.device)
