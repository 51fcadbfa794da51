"""Which targets there are, and how many of a run's inputs each gets."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from loadtests.harness.gateway import Gateway
from loadtests.hostile.fuzz import files, frames, http, served_edges, tensors
from loadtests.hostile.fuzz.playing import Target

IN_PROCESS: Final[Mapping[str, tuple[float, Callable[[], AbstractContextManager[Target]]]]] = {
    "http": (26, http.target),
    "json": (26, tensors.json_target),
    "protobuf": (18, tensors.protobuf_target),
    "compression": (6, tensors.compression_target),
    "redis": (8, frames.redis_target),
    "worker": (8, frames.worker_target),
    "orders": (4, frames.orders_target),
    "notes": (4, frames.notes_target),
    "settings": (0.2, files.settings_target),
    "model": (0.4, files.model_target),
    "placement": (1, files.placement_target),
    "profile": (3, files.profile_target),
    "capacities": (0.1, files.capacities_target),
    "recording": (1.5, files.recording_target),
}
"""By name: the share of the inputs, and the target."""

SERVER: Final[Mapping[str, tuple[float, Callable[[Gateway], AbstractContextManager[Target]]]]] = {
    "rest": (3, served_edges.rest_target),
    "h2": (1, served_edges.rpc_target),
}
"""The same of those that need a gateway that runs."""
