"""What all connections of the gRPC edge share: its services, limits, places, and the sweep."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any  # Any: grpc's handlers carry no types

from ngh2 import Configuration, Setting

from router.grpc.fastrpc.door import RestDoor
from router.grpc.fastrpc.sweep import RpcSweep, SweptConnection
from router.grpc.rpc.service import DIALOGUES, RpcService
from router.http.fastpath.places import Places
from router.http.fastpath.turns import READS_A_TURN, Turns

STREAM_WINDOW_BYTES = 1 << 18
CONNECTION_WINDOW_BYTES = 1 << 20
"""What a client may send before it is taken, on a stream and on all streams of a connection."""
FRAME_BYTES = 1 << 16
"""Of one frame: a large message comes in fewer."""

RESETS = (10_000, 1_000)
"""Calls that a client may give up at once, and each second: deadlines make good clients do so."""
GLITCHES = (1_000, 100)
CONTINUATIONS_MAX = 32
"""libnghttp2 counts parts of one that come alone, too."""
HARD_HEADS = (1 << 16, 256)
"""A head that is over the limits by so many bytes or fields is not even read: its connection ends. By less,
its call ends."""


class RpcEdge:
    """One per server. `closed` is set while it has no connection; `methods`: handlers by path. `rest`: what
    answers requests that are no gRPC calls; None where nothing does."""

    def __init__(self, service: RpcService) -> None:
        self.serving = service.serving
        self.limits = service.limits
        self.calls = service.calls
        self.inferences = service.inferences
        self.service = service
        self.access = False
        self.methods: Mapping[bytes, Any] = {}
        self.dialogues: frozenset[bytes] = frozenset()  # of them those with many messages from the client
        self.rest: RestDoor | None = None
        self.connections: set[SweptConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.draining = False
        self.closed = asyncio.Event()
        self.closed.set()
        # Probes over gRPC come on connections of clients: none is held back for them.
        regular = replace(service.limits, reserved_connection_count=0)
        self.places = Places(regular, lambda: asyncio.get_running_loop().time())
        self._sweep = RpcSweep(self.connections, service.limits, self._on_sweep)
        self.reads = Turns(READS_A_TURN)
        limits = service.limits
        self.http = Configuration(
            auto_window_update=False,
            stream_reset_rate_limit=RESETS,
            glitch_rate_limit=GLITCHES,
            max_continuations=CONTINUATIONS_MAX,
            max_inbound_header_list_size=HARD_HEADS[0] + limits.header_bytes,
            max_inbound_header_count=HARD_HEADS[1] + limits.header_count,
        )
        self.settings = {
            Setting.MAX_CONCURRENT_STREAMS: limits.grpc_stream_count,
            Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
            Setting.MAX_FRAME_SIZE: FRAME_BYTES,
            Setting.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }

    def sweep(self) -> None:
        """Start the sweep, as there is a connection to look after."""
        self._sweep.start()

    def _on_sweep(self) -> None:
        self.calls.account.refresh()
        if self.rest is not None:
            self.rest.refresh()

    def close(self) -> None:
        """Stop the sweep: no connection is left, and none will come."""
        self._sweep.stop()

    def open(self) -> None:
        """Take the services as they are offered now."""
        self.access = self.service.access
        self.methods = {path.encode(): handler for path, handler in self.service.handlers().items()}
        self.dialogues = frozenset(path.encode() for path in DIALOGUES)
