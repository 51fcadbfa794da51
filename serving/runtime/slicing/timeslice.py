"""A whole GPU for each worker, in turns with others: needs nothing and promises nothing.

The driver gives the processes that use a GPU its time in turns; nobody can say how much, or keep it from
being taken.
"""

from serving.runtime.slicing.contract import FaultDomain, Guarantee, Resize, Setting
from serving.runtime.slicing.cores import core_set
from serving.values.slice_specs import Share, SliceSpec


def on_device(spec: SliceSpec, visible: str | None, *more: tuple[str, str]) -> Setting:
    """Return the setting of a worker that sees one device, "cuda:0" there; `visible`: its UUID, None where
    another process chooses for it. A name by UUID is the same in every process; an index depends on what it
    sees."""
    cores = core_set(spec)
    environment = (*cores.environment, ("CUDA_VISIBLE_DEVICES", visible), *more)
    return Setting(environment, cores.cores, cores.threads, "cuda:0")


class TimeSlices:
    """Any number of slices on one GPU. `whole:1` is `time:1` without others; the placement makes sure of
    that."""

    guarantee = Guarantee(
        reservation=False,
        granularity=(Share("time", 1.0), Share("whole", 1.0)),
        resize=Resize.NEW_PROCESS,
        fault_domain=FaultDomain.PROCESS,
        tenants_max=None,
    )

    def __init__(self, uuid: str = "") -> None:
        """Take the GPU of that `uuid`, NVML's name for it. With "", if there is no GPU, the slice keeps its
        own name."""
        self._uuid = uuid

    def open(self, spec: SliceSpec) -> Setting:
        self.guarantee.require(spec, {})
        return on_device(spec, self._uuid) if self._uuid else core_set(spec)

    def close(self, name: str) -> None:
        """Do nothing: a slice leaves nothing to close."""

    def stop(self) -> None:
        """Do nothing: nothing was started."""
