"""What a GPU cannot give to the slices that ask for shares of it, and the cure; and what may fail later."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from router.settings.values.problems import one_of
from serving.policy.placement.terms.geometry import Geometry, arrangements, known_geometry
from serving.policy.placement.terms.mps import NEWEST_CUDA, clients_max
from serving.profile.device import gpu_kind
from serving.runtime.slicing.inventory import ComputeMode, Gpu, Inventory
from serving.runtime.slicing.kinds import chunks, kind_fault
from serving.values.slice_specs import Share

_BY_MPS: Final = ("mps", "sm")
_ALONE: Final = ("whole", "time")
_FREE_LEAST: Final = 0.1
"""Of a GPU's memory: below that models hardly find room."""
_MIB: Final = 1 << 20


def clients_fault(name: str, shares: Sequence[Share], inventory: Inventory, gpu: Gpu | None) -> str:
    """Return why a device has too many slices by MPS, "" if it has not."""
    most = clients_max(NEWEST_CUDA if gpu is None else inventory.cuda)
    if shares[0].kind in _BY_MPS and len(shares) > most:
        return f"{name}: {len(shares)} slices by MPS; expected at most {most}"
    return ""


def faults(name: str, gpu: Gpu, shares: Sequence[Share], inventory: Inventory, recut: bool) -> Iterator[str]:
    """Yield why a GPU cannot give these shares of one kind, a sentence each with its cure.

    `name`: of the GPU in the settings; `recut`: whether MIG instances may be made.
    """
    kind = shares[0].kind
    if problem := kind_fault(name, kind, gpu, inventory.cuda):
        yield problem
    elif kind == "mig":
        yield from _instance_faults(name, gpu, [share.profile for share in shares], recut)
    elif kind == "sm":
        there, wanted = chunks(gpu, inventory.cuda), sum(share.amount for share in shares)
        if wanted > there:
            yield f"{name} has {there} chunks of multiprocessors; the slices ask for {wanted:g}"
    yield from _mode_faults(name, gpu, kind, len(shares))


def doubts(name: str, gpu: Gpu, shares: Sequence[Share], pipes: Path) -> Iterator[str]:
    """Yield what may be slow or fail later. `pipes`: where an MPS daemon is by default."""
    if gpu.memory_bytes and gpu.memory_used_bytes is not None:
        free = gpu.memory_bytes - gpu.memory_used_bytes
        if free < _FREE_LEAST * gpu.memory_bytes:
            what = f"{name} has {free // _MIB} MiB of {gpu.memory_bytes // _MIB} MiB free now"
            yield f"{what}, so models may find no room; `nvidia-smi -i {gpu.index}` lists what uses it"
    if gpu.compute_mode in _EXCLUSIVE and shares[0].kind in _ALONE:
        cure = f"`nvidia-smi -i {gpu.index} -c 0` as root lifts that"
        yield f"{name} takes one process at a time, so a worker starts only after the last has ended; {cure}"
    if shares[0].kind in _BY_MPS and (pipes / "control").exists():
        cure = "`echo quit | nvidia-cuda-mps-control` ends it"
        yield f"another MPS daemon may run, with pipes in {pipes}, and Penstock starts its own; {cure}"


_EXCLUSIVE: Final = (ComputeMode.EXCLUSIVE_THREAD, ComputeMode.EXCLUSIVE_PROCESS)


def _mode_faults(name: str, gpu: Gpu, kind: str, count: int) -> Iterator[str]:
    cure = f"run `nvidia-smi -i {gpu.index} -c 0` as root"
    if gpu.compute_mode is ComputeMode.PROHIBITED:
        yield f"{name} has the compute mode `prohibited`, so no worker may use it; {cure}"
    elif gpu.compute_mode in _EXCLUSIVE and kind in _ALONE and count > 1:
        what = (
            f"{name} has an exclusive compute mode, so one worker may use it, and {count} slices ask for it"
        )
        yield f"{what}; {cure}, or ask for mps: shares"


def _instance_faults(name: str, gpu: Gpu, wanted: Sequence[str], recut: bool) -> Iterator[str]:
    geometry: Geometry = gpu.geometry or known_geometry(gpu_kind(gpu.name)) or ()
    profiles = [each.name for each in geometry]
    unknown = sorted({each for each in wanted if each not in profiles})
    if unknown and profiles:
        yield f"{name} has no MIG profile {', '.join(unknown)}; expected {one_of(profiles)}"
    elif profiles and not arrangements(geometry, wanted):
        most = "; expected fewer or smaller ones (docs/slices.md)"
        yield f"{name} has no room for the MIG instances {', '.join(sorted(wanted))} at once{most}"
    elif not recut:
        missing = Counter(wanted) - Counter(each.profile for each in gpu.mig_devices)
        if missing:
            made = ",".join(missing.elements())
            by_hand = f"`nvidia-smi mig -i {gpu.index} -cgi {made} -C` as root"
            what = f"{name} has no free MIG instance for {', '.join(missing.elements())}"
            yield f"{what}; make it by {by_hand}, or let the gateway do it: `mig: {{recut: true}}`"
