"""The gateway's end of a worker on a node: as of any worker, but that a model's files go there first."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from serving.runtime.workers.contract import WorkerProcess
from serving.runtime.workers.link import Link, LinkEvents
from serving.values.specs import ModelSpec
from serving.worker.frames.orders import LoadOrder, pack_load

CANNOT_SHIP: Final = "the model's files could not be brought to its node: "

Ship = Callable[[LoadOrder, ModelSpec], Awaitable[LoadOrder]]
"""Bring the files to the node, and return the order with its paths. Raises OSError if that cannot be done."""


class FarLink(Link):
    """One worker on a node. Loads, unloads and measurements wait, in order, while files are on their way."""

    def __init__(self, slice_name: str, events: LinkEvents, process: WorkerProcess, ship: Ship) -> None:
        super().__init__(slice_name, events, process, None)
        self.kept: object = None  # what would close the connection once nothing refers to it
        self._ship = ship
        self._orders: deque[tuple[bytes, LoadOrder | None, ModelSpec | None]] = deque()
        self._going_on: asyncio.Task[None] | None = None

    def end_heard(self, how: str, crashed: bool, overran: bool) -> None:
        """Note that the node has reaped the worker."""
        self.overran = overran
        self.exited(how, crashed)
        if self._transport is None:  # it may never have been connected
            self.connection_lost(None)

    def node_lost(self, reason: str) -> None:
        """Note that nothing more will be heard of the worker."""
        self.blame(reason)
        self.exited(reason)
        if self._transport is None:
            self.connection_lost(None)
        else:
            self._transport.abort()

    def _send_load(self, order: LoadOrder, model: ModelSpec) -> None:
        self._orders.append((b"", order, model))
        if self._going_on is None:
            self._going_on = self._loop.create_task(self._go_on())

    def _send(self, frame: bytes) -> None:
        if self._orders:
            self._orders.append((frame, None, None))
        else:
            super()._send(frame)

    async def _go_on(self) -> None:
        """Send what waits, in order."""
        while self._orders:
            frame, order, model = self._orders[0]
            if order is not None and model is not None and order.replica in self._replicas:
                try:
                    frame = pack_load(await self._ship(order, model))
                except OSError as error:
                    self._cannot_load(order.replica, CANNOT_SHIP + str(error))
            self._orders.popleft()
            if frame and self._outgoing is not None:
                self._put([frame])
        self._going_on = None

    def _cannot_load(self, replica: int, message: str) -> None:
        if self._replicas.pop(replica, None) is not None and not self.ended.is_set():
            self._events.replica_failed(self, replica, message)
