"""A program that computes on a GPU, for `loadtests.gpu.gpu_day`: python -m loadtests.gpu.gpu_client WORK
AMOUNT

It prints a line once it can compute, {"cuda": false} where torch cannot, and a line with what it has found.
hold      nothing, until its input ends
rate      products of matrices for AMOUNT seconds: how many a second
allocate  AMOUNT MiB of memory of the GPU: whether it gets them
copies    64 MiB to the GPU and back, AMOUNT times: GiB/s of pageable and of page-locked memory, and both ways
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

SIZE = 2048
COPY_BYTES = 64 << 20
_GIB = 1 << 30

Found = Mapping[str, float | bool]


def main() -> int:
    """Run the work of a GPU client. Return 0; it reports what a GPU refuses instead of failing."""
    work, amount = sys.argv[1], float(sys.argv[2])
    torch = _torch()
    cuda = torch is not None and torch.cuda.is_available()
    if cuda:
        torch.zeros(1, device="cuda:0")  # CUDA makes a context, and MPS a client
    _say({"cuda": cuda})
    if work == "hold":
        sys.stdin.read()
        _say({})
    elif cuda:
        _say(WORKS[work](torch, amount))
    return 0


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _say(found: Found) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def rate(torch: Any, seconds: float) -> Found:
    """Return how many products a second it computes."""
    left = torch.rand(SIZE, SIZE, device="cuda:0")
    (left @ left).sum().item()  # libraries load
    count, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        for _ in range(10):
            left @ left
        torch.cuda.synchronize()
        count += 10
    return {"per_s": count / (time.monotonic() - begun)}


def allocate(torch: Any, mib: float) -> Found:
    """Return whether it gets that memory."""
    try:
        torch.empty(int(mib) << 20, dtype=torch.uint8, device="cuda:0")
    except RuntimeError:  # torch.OutOfMemoryError is one
        return {"allocated": False}
    return {"allocated": True}


def copies(torch: Any, count: float) -> Found:
    """Return the speed of copies in GiB/s."""
    device = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda:0")
    back = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    pageable = torch.empty(COPY_BYTES, dtype=torch.uint8)
    locked = pageable.pin_memory()
    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def both() -> None:
        with torch.cuda.stream(up):
            device.copy_(locked, non_blocking=True)
        with torch.cuda.stream(down):
            back.copy_(device, non_blocking=True)

    return {
        "pageable": _speed(torch, count, lambda: device.copy_(pageable)),
        "locked": _speed(torch, count, lambda: device.copy_(locked, non_blocking=True)),
        "back": _speed(torch, count, lambda: back.copy_(device, non_blocking=True)),
        "both": 2 * _speed(torch, count, both),
    }


def _speed(torch: Any, count: float, copy: Callable[[], object]) -> float:
    copy()
    torch.cuda.synchronize()
    begun = time.monotonic()
    for _ in range(int(count)):
        copy()
    torch.cuda.synchronize()
    return float(count * COPY_BYTES / _GIB / (time.monotonic() - begun))


WORKS: Mapping[str, Callable[[Any, float], Found]] = {"rate": rate, "allocate": allocate, "copies": copies}

if __name__ == "__main__":
    sys.exit(main())
