"""The status of a gateway: the document, its table, and the command that shows them."""

from router.observing.status.command import fetch, list_events, watch
from router.observing.status.document import (
    EdgeStatus,
    GpuStatus,
    ModelStatus,
    MoveStatus,
    NodeBody,
    ProposalStatus,
    ReplicaBody,
    SliceStatus,
    Status,
    describe,
    gpu_status,
)
from router.observing.status.instances import MigStatus, mig_status
from router.observing.status.table import by_variant, percentile_us, render

__all__ = [
    "EdgeStatus",
    "GpuStatus",
    "MigStatus",
    "ModelStatus",
    "MoveStatus",
    "NodeBody",
    "ProposalStatus",
    "ReplicaBody",
    "SliceStatus",
    "Status",
    "by_variant",
    "describe",
    "fetch",
    "gpu_status",
    "list_events",
    "mig_status",
    "percentile_us",
    "render",
    "watch",
]
