"""The status of a gateway: the document, its table, and the command that shows them."""

from router.status.command import fetch, watch
from router.status.document import (
    EdgeStatus,
    ModelStatus,
    MoveStatus,
    ProposalStatus,
    ReplicaBody,
    SliceStatus,
    Status,
    describe,
)
from router.status.table import by_variant, percentile_us, render

__all__ = [
    "EdgeStatus",
    "ModelStatus",
    "MoveStatus",
    "ProposalStatus",
    "ReplicaBody",
    "SliceStatus",
    "Status",
    "by_variant",
    "describe",
    "fetch",
    "percentile_us",
    "render",
    "watch",
]
