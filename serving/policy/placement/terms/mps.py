"""What CUDA MPS bounds on a GPU, by the driver's CUDA version (NVIDIA, MPS, "Limitations")."""

from typing import Final

CLIENTS_MAX: Final = 48
"""Processes that share a GPU by MPS, with any driver."""
_CLIENTS_MAX_13_1: Final = 60
_CUDA_13_1: Final = 13010
NEWEST_CUDA: Final = _CUDA_13_1
"""The version that a rehearsed GPU has: all that MPS can do."""


def has_partitions(cuda: int | None) -> bool:
    """Return whether the driver knows static partitions. `cuda`: its version times 1000, None if unknown."""
    return (cuda or 0) >= _CUDA_13_1


def clients_max(cuda: int | None) -> int:
    """Return how many processes may share a GPU by MPS. `cuda`: as of `has_partitions`."""
    return _CLIENTS_MAX_13_1 if has_partitions(cuda) else CLIENTS_MAX
