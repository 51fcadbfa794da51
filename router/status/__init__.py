"""The status of a gateway: the document, its table, and the command that shows them."""

from router.status.command import fetch, watch
from router.status.document import (
    EdgeStatus,
    GpuStatus,
    ModelStatus,
    MoveStatus,
    ProposalStatus,
    ReplicaBody,
    SliceStatus,
    Status,
    describe,
    gpu_status,
)
from router.status.table import by_variant, percentile_us, render

__all__ = [
    "EdgeStatus",
    "GpuStatus",
    "ModelStatus",
    "MoveStatus",
    "ProposalStatus",
    "ReplicaBody",
    "SliceStatus",
    "Status",
    "by_variant",
    "describe",
    "fetch",
    "gpu_status",
    "percentile_us",
    "render",
    "watch",
]
