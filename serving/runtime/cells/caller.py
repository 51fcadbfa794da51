"""The way to another cell: one connection, on which any number of calls are under way."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from serving.ports import Call, Reply
from serving.runtime.cells.connection import CellConnection, hand_over
from serving.runtime.cells.messages import number_of, pack_call, pack_cancel, unpack_part, unpack_reply
from serving.runtime.clocks.clock import now_us
from serving.runtime.nodes.dialing import CALL_S, Gateway
from serving.runtime.nodes.greeting import NotAdmittedError, call_at
from serving.runtime.nodes.notes import CELL, Ping, Pong, pack_note, unpack_note
from serving.runtime.nodes.stream import READ_BYTES, NoteStream, tune
from serving.worker.frames.wire import Frame, FrameKind, ProtocolError

logger = logging.getLogger(__name__)

PING_S: Final = 1.0
MISSED_MAX: Final = 3
"""Pings without an answer before a cell counts as frozen: as for nodes (`serving.runtime.nodes.session`)."""
WAITS_S: Final = {0.02: 3_000_000, 0.2: 20_000_000}
"""Between two tries to connect, by how long (us) the cell has been away; after that LAST_WAIT_S. A cell that
is upgraded is back in 0.1 s, one that was killed in 1.2 s, and its calls wait."""
LAST_WAIT_S: Final = 2.0
OPEN_MAX: Final = 32_768
"""Calls under way to one cell; more are refused. A cell's own queues are bounded too."""
UNSENT_BYTES_MAX: Final = 256 << 20
"""Of calls that a cell does not take; more are refused."""
SMOOTH: Final = 1 / 8
"""The weight of the latest trip, as of TCP's (RFC 6298)."""


class Flight:
    """A call that another cell answers. `answered`: takes the reply, or None with why there is none.
    `waited_us`: for how long it waited for a cell, which counts for its client's own deadline alone."""

    __slots__ = ("answered", "call", "sent_us", "started", "waited_us")

    def __init__(self, call: Call, answered: Callable[[Reply | None, str], None], waited_us: int = 0) -> None:
        self.call = call
        self.answered = answered
        self.waited_us = waited_us
        self.sent_us = 0
        self.started = False  # it has given answers to its client


class CellCaller:
    """`run` keeps the connection to the cell `name` until it is cancelled. `own`: the name of this cell."""

    def __init__(self, name: str, gateway: Gateway, own: str, token: str) -> None:
        self.name = name
        self.gateway = gateway
        self.reason = "is not connected yet"  # why it is not there; "" if it is
        self.trip_us = 0
        self.on_connected: Callable[[], None] = lambda: None
        self._own = own
        self._token = token
        self._there: _Calls | None = None

    @property
    def connected(self) -> bool:
        """Whether calls can be sent."""
        return self._there is not None

    def send(self, number: int, flight: Flight) -> str:
        """Send a call; return why that cannot be, "" if it is sent."""
        there = self._there
        if there is None or there.transport is None:
            return self.reason
        if len(there.flights) >= OPEN_MAX or there.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return "does not keep up with its calls"
        flight.sent_us = now_us()
        there.flights[number] = flight
        age_us = max(flight.sent_us - flight.call.arrived_us - flight.waited_us, 0) + self.trip_us
        there.write(pack_call(number, flight.call, age_us, flight.waited_us))
        return ""

    def cancel(self, number: int) -> None:
        """Forget a call, as its client is gone."""
        there = self._there
        if there is not None and there.flights.pop(number, None) is not None:
            there.write((pack_cancel(number),))

    async def run(self) -> None:
        """Connect, and connect again whenever the connection ends."""
        lost_us = now_us()
        while True:
            try:
                there = await self._connect()
            except (OSError, NotAdmittedError, ProtocolError) as error:
                self._say(f"cannot be called at {self.gateway}: {error or type(error).__name__}")
            else:
                logger.info("cell %s at %s is connected", self.name, self.gateway)
                self._there, self.reason = there, ""
                self.on_connected()
                self._say(await self._watch(there))
                lost_us = now_us()
            away_us = now_us() - lost_us
            await asyncio.sleep(
                next((wait_s for wait_s, most_us in WAITS_S.items() if away_us < most_us), LAST_WAIT_S)
            )

    def _say(self, reason: str) -> None:
        if reason != self.reason:
            logger.warning("cell %s %s", self.name, reason)
        self.reason = reason

    async def _connect(self) -> "_Calls":
        gateway = self.gateway
        async with asyncio.timeout(CALL_S):
            reader, writer = await asyncio.open_connection(
                gateway.host, gateway.port, ssl=gateway.context, limit=READ_BYTES
            )
            stream = NoteStream(reader, writer)
            try:
                tune(writer.get_extra_info("socket"))
                await call_at(stream, CELL, self._own, self._token)
            except BaseException:
                stream.abort()
                raise
        calls = _Calls(self._lost)
        hand_over(stream, calls, admit=False)
        return calls

    async def _watch(self, there: "_Calls") -> str:
        """Return, once the connection has ended, why it did."""
        try:
            number = 0
            while not there.ended.is_set():
                number += 1
                if number - there.ponged > MISSED_MAX:
                    there.abort("does not answer")
                asked_us = there.ping(number)
                with suppress(TimeoutError):
                    async with asyncio.timeout(PING_S):
                        await there.ended.wait()
                if there.ponged == number:
                    trip_us = there.ponged_us - asked_us
                    self.trip_us += int((trip_us - self.trip_us) * (SMOOTH if self.trip_us else 1))
            return there.why
        finally:  # also where this cell is no longer called
            self._there = None
            there.abort("is gone")

    def _lost(self, flights: Sequence[Flight], reason: str) -> None:
        self._there = None
        for flight in flights:
            flight.answered(None, reason)


class _Calls(CellConnection):
    """The calls on one connection. `lost(flights, reason)`: those that it leaves without a reply."""

    def __init__(self, lost: Callable[[Sequence[Flight], str], None]) -> None:
        super().__init__()
        self.flights: dict[int, Flight] = {}
        self.ended = asyncio.Event()
        self.why = ""
        self.ponged = 0  # the number of the latest answer to a ping
        self.ponged_us = 0
        self._lost = lost

    def ping(self, number: int) -> int:
        """Ask whether the cell is there; return when."""
        self.write((pack_note(Ping(number)),))
        return now_us()

    def take(self, frame: Frame) -> None:
        if frame.kind is FrameKind.REPLY:
            self._answer(frame)
        elif frame.kind is FrameKind.PART:
            flight = self.flights.get(number_of(frame))
            outputs, version = unpack_part(frame)
            if flight is not None and flight.call.on_answer is not None:
                flight.started = True
                flight.call.on_answer(outputs, version)
        elif frame.kind is FrameKind.NOTE:
            note = unpack_note(frame)
            if isinstance(note, Pong):
                self.ponged, self.ponged_us = note.number, now_us()
        else:
            raise ProtocolError(f"sends {frame.kind.name} where a reply was due")

    def _answer(self, frame: Frame) -> None:
        reply, took_us = unpack_reply(frame)  # first: a call with a broken reply is lost with its connection
        flight = self.flights.pop(number_of(frame), None)
        if flight is None:
            return  # its client has left
        now = now_us()
        way_us = max(now - flight.sent_us - took_us, 0)
        if reply.answered_us:
            reply.answered_us = reply.ready_us = now
            reply.input_us += way_us // 2
            reply.output_us += way_us - way_us // 2
        flight.answered(reply, "")

    def lost(self, reason: str) -> None:
        self.why = reason
        flights = [*self.flights.values()]
        self.flights.clear()
        self._lost(flights, reason)
        self.ended.set()
