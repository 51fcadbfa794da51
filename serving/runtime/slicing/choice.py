"""Which GPU a device name means, and which actuator makes a kind of share real there."""

import re
from typing import Final

from serving.runtime.slicing.contract import Actuator, SlicingError
from serving.runtime.slicing.inventory import Gpu, Inventory, take_inventory
from serving.runtime.slicing.mig import MigGpu, MigInstances
from serving.runtime.slicing.mps import CLIENTS_MAX, MpsPartitions, MpsPercentages
from serving.runtime.slicing.timeslice import TimeSlices

_CUDA_13_1: Final = 13010
_CLIENTS_MAX_SINCE_13_1: Final = 60  # NVIDIA, MPS, "Limitations"


def gpu_named(device: str, inventory: Inventory, visible: str | None = None) -> Gpu:
    """Return the GPU that "cuda:N" means: the N-th of `visible` (CUDA_VISIBLE_DEVICES: indices by PCI bus, or
    UUIDs), of all where that is None. SlicingError where there is none."""
    by_name = {str(gpu.index): gpu for gpu in inventory.gpus} | {gpu.uuid: gpu for gpu in inventory.gpus}
    names = [str(gpu.index) for gpu in inventory.gpus]
    if visible is not None:
        names = [name.strip() for name in visible.split(",") if name.strip()]
    number = re.fullmatch(r"cuda:(\d{1,3})", device, re.ASCII)
    if number is None or int(number[1]) >= len(names) or names[int(number[1])] not in by_name:
        there = ", ".join(f"cuda:{n}" for n, name in enumerate(names) if name in by_name) or "no GPU"
        why = "".join(f" ({reason})" for reason in (inventory.reason,) if reason)
        raise SlicingError(f"there is no {device} here; there is {there}{why}")
    return by_name[names[int(number[1])]]


def gpu_actuator(kind: str, gpu: Gpu, inventory: Inventory, recut: bool = False) -> Actuator:
    """Return the actuator of that kind of share ("whole", "time", "mps", "sm", "mig") on a GPU.

    MIG instances are created and destroyed only with `recut`; otherwise those that exist are given out.
    Raises SlicingError if the GPU, its driver or its mode has no such shares.
    """
    if (kind == "mig") != bool(gpu.mig):
        mode = "in MIG mode: its shares are mig" if gpu.mig else "not in MIG mode, which its operator sets"
        raise SlicingError(f"GPU {gpu.index} is {mode}")
    newer = (inventory.cuda or 0) >= _CUDA_13_1
    clients_max = _CLIENTS_MAX_SINCE_13_1 if newer else CLIENTS_MAX
    match kind:
        case "whole" | "time":
            return TimeSlices(gpu.uuid)
        case "mps":
            return MpsPercentages(gpu.uuid, clients_max=clients_max)
        case "sm":
            if not newer or gpu.sms is None or gpu.chunk_sms is None:
                raise SlicingError(
                    f"GPU {gpu.index}: static MPS partitions need CUDA 13.1 and an Ampere or later"
                )
            return MpsPartitions(gpu.uuid, gpu.sms // gpu.chunk_sms, clients_max=clients_max)
        case "mig":
            return MigInstances(MigGpu(gpu.index, dry_run=not recut), lambda: _mig_uuids(gpu.uuid))
    raise SlicingError(f"{kind} is no kind of share that a GPU's actuators give")


def _mig_uuids(uuid: str) -> dict[int, str]:
    gpus = take_inventory().gpus
    return {each.gpu_instance: each.uuid for gpu in gpus if gpu.uuid == uuid for each in gpu.mig_devices}
