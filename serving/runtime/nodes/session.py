"""The gateway's side of one node that has joined."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from serving.runtime.clocks.clock import now_us
from serving.runtime.nodes.farlink import FarLink
from serving.runtime.nodes.notes import (
    Chunk,
    End,
    Ended,
    Join,
    Leaving,
    Note,
    Offer,
    Ping,
    Pong,
    Printed,
    Start,
    Stored,
    Want,
)
from serving.runtime.nodes.parcel import Parcel, parcel_of, placed
from serving.runtime.nodes.stream import NoteStream
from serving.runtime.workers.contract import WorkerLog
from serving.values.specs import ModelSpec
from serving.worker.frames.orders import LoadOrder
from serving.worker.frames.wire import ProtocolError

PING_S: Final = 1.0
UNANSWERED_MAX: Final = 3
"""A node that answers none of so many pings in a row is lost: a frozen machine's kernel still takes bytes."""
CHUNK_BYTES: Final = 256 << 10
"""Of a content at once: a ping waits behind it, for 0.2 s on a line of 10 Mbit/s."""
TRIPS_KEPT: Final = 30


class FarProcess:
    """A worker's process on a node, as a link sees a process. `pid`: unknown until the worker's HELLO."""

    def __init__(self, session: "NodeSession", slice_name: str) -> None:
        self.pid = 0
        self._session = session
        self._slice = slice_name

    def kill(self) -> None:
        """Have the node end the process."""
        self._session.send(End(self._slice, "was ended by its gateway"))


class NodeSession:
    """One node, from its Join until its connection ends. `address`: where it called from."""

    def __init__(self, name: str, join: Join, stream: NoteStream, address: str, log: WorkerLog) -> None:
        self.name = name
        self.join = join
        self.address = address
        self.joined_us = now_us()
        self.leaving = ""
        self._log = log
        self._stream = stream
        self._links: dict[int, FarLink] = {}
        self._trips: deque[tuple[int, int]] = deque(maxlen=TRIPS_KEPT)  # trip, by how much its clock is ahead
        self._pings: dict[int, int] = {}  # those without an answer, and when they were sent
        self._lost = ""
        self._shipping = asyncio.Lock()
        self._answers: asyncio.Queue[Want | Stored | None] = asyncio.Queue()
        self._roots: dict[str, Path] = {}  # of the parcels that the node has

    @property
    def trip_us(self) -> int:
        """The shortest way to the node and back of late, 0 before the first."""
        return min(self._trips)[0] if self._trips else 0

    @property
    def ahead_us(self) -> int:
        """By how much the node's monotonic clock is ahead of this machine's."""
        return min(self._trips)[1] if self._trips else 0

    def send(self, note: Note) -> None:
        """Tell the node something; nothing after it is lost."""
        self._stream.send(note)

    def begin(self, number: int, link: FarLink, start: Start) -> None:
        """Have the node start a worker."""
        link.ahead_us = self.ahead_us
        self._links[number] = link
        self.send(start)

    async def run(self, on_leaving: Callable[["NodeSession"], None]) -> str:
        """Hear the node until it is lost, and return why, to follow its name. All of its workers are lost
        then. `on_leaving` hears that it will end soon."""
        pinging = asyncio.create_task(self._ping())
        try:
            while (read := await self._stream.read()) is not None:
                self._take(read[0], on_leaving)
            reason = self.leaving or "has closed its connection"
        except ProtocolError as error:
            reason = f"sent garbage: {error}"
        except OSError as error:
            reason = f"is not reached any more: {error.strerror or error}"
        finally:
            pinging.cancel()
            self._stream.abort()
            self._answers.put_nowait(None)
        reason = self._lost or reason
        for link in [*self._links.values()]:
            link.node_lost(f"was lost: node {self.name} {reason}")
        self._links.clear()
        return reason

    def abort(self, reason: str) -> None:
        """Give the node up; `run` returns."""
        self._lost = self._lost or reason
        self._stream.abort()

    async def _ping(self) -> None:
        number = 0
        while True:
            number += 1
            self._pings[number] = now_us()
            self.send(Ping(number))
            await asyncio.sleep(PING_S)
            # Counted in pings, not in seconds: this process may have stood still itself.
            if len(self._pings) >= UNANSWERED_MAX:
                self.abort(f"has not answered {len(self._pings)} pings")

    def _take(self, note: Note, on_leaving: Callable[["NodeSession"], None]) -> None:
        match note:
            case Pong(number=number, now_us=theirs_us):
                self._take_pong(number, theirs_us)
            case Ended(number=number, how=how, crashed=crashed, overran=overran):
                link = self._links.pop(number, None)
                if link is not None:
                    link.end_heard(how, crashed, overran)
            case Printed(slice=name, stream=stream, model=model, line=line):
                self._log.printed(name, stream, model, line)
            case Want() | Stored():
                self._answers.put_nowait(note)
            case Leaving(reason=reason):
                self.leaving = reason
                on_leaving(self)
            case _:
                raise ProtocolError(f"a node sends no {type(note).__name__}")

    def _take_pong(self, number: int, theirs_us: int) -> None:
        sent_us, now = self._pings.get(number), now_us()
        self._pings.clear()  # an answer to any says that it hears
        if sent_us is None:
            return
        self._trips.append((now - sent_us, theirs_us - (sent_us + now) // 2))
        ahead_us = self.ahead_us
        for link in self._links.values():
            link.ahead_us = ahead_us

    # model files

    async def ship(self, order: LoadOrder, model: ModelSpec) -> LoadOrder:
        """Bring a variant's files to the node, and return the order with its paths there. Raises OSError."""
        async with self._shipping:
            parcel = await asyncio.to_thread(parcel_of, order, model)
            if parcel.digest not in self._roots:
                self._roots[parcel.digest] = await self._bring(parcel)
            return placed(order, self._roots[parcel.digest])

    async def _bring(self, parcel: Parcel) -> Path:
        self.send(Offer(parcel.digest, parcel.files))
        answer = await self._answer()
        if isinstance(answer, Want):
            for blob in answer.blobs:
                await self._send_content(blob, parcel.paths[blob])
            answer = await self._answer()
        if not isinstance(answer, Stored) or answer.digest != parcel.digest:
            raise OSError(f"node {self.name} answered with {type(answer).__name__}")
        if answer.fault:
            raise OSError(answer.fault)
        return Path(answer.root)

    async def _answer(self) -> Want | Stored:
        answer = await self._answers.get()
        if answer is None:
            self._answers.put_nowait(None)
            raise OSError(f"node {self.name} was lost")
        return answer

    async def _send_content(self, blob: str, path: Path) -> None:
        with await asyncio.to_thread(path.open, "rb") as file:
            while True:
                part = await asyncio.to_thread(file.read, CHUNK_BYTES)
                last = len(part) < CHUNK_BYTES
                self._stream.send(Chunk(blob, last), part)
                with suppress(OSError):
                    await self._stream.drain()
                if last:
                    return
