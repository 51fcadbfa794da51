"""Which kinds of shares a GPU can give as it is now: one rule for checks and for actuators."""

from serving.policy.placement.terms.mps import has_partitions
from serving.runtime.slicing.inventory import Gpu


def chunks(gpu: Gpu, cuda: int | None) -> int:
    """Return into how many chunks of multiprocessors MPS can divide a GPU; 0 if it cannot.

    `cuda`: the driver's CUDA version times 1000, None if unknown.
    """
    if not has_partitions(cuda) or gpu.sms is None or gpu.chunk_sms is None:
        return 0
    return gpu.sms // gpu.chunk_sms


def kind_fault(name: str, kind: str, gpu: Gpu, cuda: int | None) -> str:
    """Return why the GPU called `name` gives no shares of that kind, with the cure; "" if it gives them."""
    if kind == "mig" and not gpu.mig:
        cure = f"end all of its processes and run `nvidia-smi -i {gpu.index} -mig 1` as root"
        return f"{name} is not in MIG mode; {cure}, or ask for another share"
    if kind != "mig" and gpu.mig:
        cure = f"expected share: mig:PROFILE, or `nvidia-smi -i {gpu.index} -mig 0` as root"
        return f"{name} is in MIG mode, so its shares are instances; {cure}"
    if kind == "sm" and not chunks(gpu, cuda):
        return f"{name}: sm: shares need CUDA 13.1 and an Ampere or later; expected mps: shares"
    return ""
