"""A connection: turns, half-close, refusals and time limits, for answers from either way.

uvicorn's protocol keeps the answers of a connection in order through its `pipeline`; this adds what
it leaves out: a client that has finished sending still gets its answer, one that has left is noticed,
an error of HTTP itself is JSON and waits for its turn, reading pauses until a slow reader has caught up.
"""

import asyncio
from collections import deque
from typing import cast

from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from router.http.fastpath.edge import FastEdge
from router.http.fastpath.exchange import Exchange, HttpRefusal, Inference
from router.http.fastpath.hangups import PROBE
from router.http.fastpath.places import NONE, RESERVED
from router.http.fastpath.sweep import WaitsFor
from router.protocol.rest import Rendered, plain_error
from router.security.tls.names import NAMES
from router.tensors.rest import JOIN_MAX_BYTES, Body, size_of
from serving.policy.limits.crowding import BUSY

Cycle = Exchange | RequestResponseCycle

BETWEEN, HEAD, BODY = range(3)
"""What the parser is in the middle of: nothing, a request's head, its body."""

_UNDER_WAY = (WaitsFor.ANSWER, WaitsFor.READER, WaitsFor.ROOM)
"""What a connection that has a request under way waits for."""

_SURPLUS_CONNECTIONS = 64
"""Connections over the limit that are told so; those beyond are dropped without a word."""


class _Flow(FlowControl):
    """Reads on only while no pipelined request waits, the client takes its answers, and there is memory."""

    def __init__(
        self, transport: asyncio.Transport, backlog: "deque[tuple[object, ASGI3Application]]"
    ) -> None:
        super().__init__(transport)
        self._backlog = backlog
        self.held_back = False  # by the account of memory
        self.behind = False  # what was read is not parsed yet
        self.resting = False  # others are read first

    def hold(self) -> None:
        """Read no more until what was read is parsed."""
        self.behind = True
        self.pause_reading()

    def let_go(self) -> None:
        """Resume reading, as all that was read is parsed."""
        if self.behind:
            self.behind = False
            self.resume_reading()

    def rest(self) -> None:
        """Read no more until others were read."""
        self.resting = True
        self.pause_reading()

    def read_on(self) -> None:
        """Read again, as other connections were read meanwhile."""
        self.resting = False
        self.resume_reading()

    def resume_reading(self) -> None:
        waits = self._backlog or self.write_paused or self.held_back or self.behind or self.resting
        if self.read_paused and not (waits or self._transport.is_closing()):
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """`cycle` is its newest request (uvicorn's name), `active` the request that is to be answered now."""

    def __init__(self, config: Config, edge: FastEdge) -> None:
        super().__init__(config, edge.state, {})
        self.edge = edge
        self.active: Cycle | None = None
        self.parsing = BETWEEN
        self.answers = 0
        self.swept = (-1, WaitsFor.REQUEST, 0.0)
        self.refused = False
        self.stopped = False  # nothing more is parsed
        self.lingering = False
        self.advancing = False
        self.ended = False  # the client sends no more
        self.behind = bytearray()  # read, and not parsed yet
        self.parked = False  # what is behind waits until the requests before it had their turns
        self.unsent: Body = b""  # the large answer that was written last, until the client took it
        self.ended_behind = False  # and then it ended
        self.watched_fd = -1
        self.made_s = 0.0
        self.reserved = False  # it has a place of the reserve
        self.certificate: tuple[str, ...] = ()  # names of the client's

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self.edge.limits.write_buffer_bytes)
        self.reading = _Flow(transport, self.pipeline)  # type: ignore[arg-type]  # only its length is read
        self.flow = self.reading
        self.made_s = self.loop.time()
        self.certificate = transport.get_extra_info(NAMES, ())
        self.edge.closed.clear()
        self.edge.sweep.start()
        if self.edge.draining:
            transport.close()
            return
        place = self.edge.places.enter(self)
        self.reserved = place == RESERVED
        if place == NONE:
            if len(self.connections) - sum(self.edge.places.counts()) > _SURPLUS_CONNECTIONS:
                transport.abort()
            else:
                self.refuse(503, f"{self._full()}; try again later")

    def _full(self) -> str:
        limit = self.edge.limits.connection_count
        return f"the server holds its limit of {limit} connections (limits.connection_count)"

    def refuse_regular(self) -> None:
        """Refuse requests on this connection, other than those that the reserve is for."""
        self.refuse(503, f"{self._full()}; the others are for probes, status and operators: try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        self.behind.clear()
        self.ended_behind = False
        active = self.active
        if active is not None and not active.response_complete:
            active.disconnected = True
            active.message_event.set()  # uvicorn tells only the newest cycle
        for cycle in {active, self.cycle, *(each for each, _ in self.pipeline)}:
            if isinstance(cycle, Inference):
                self.edge.ends.let_go(cycle.memory())
            if isinstance(cycle, Exchange):
                cycle.leave()
        self.edge.ends.let_go(self.unsent)
        self.unsent = b""
        self.edge.account.catch_up(self)
        self.edge.places.leave(self)
        self.pipeline.clear()
        if self.watched_fd >= 0:
            self.edge.hangups.forget(self.watched_fd, self._reset)
        super().connection_lost(exc)
        if not self.connections:
            self.edge.closed.set()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's always closes
        """Note that the client has finished sending; the connection stays until its requests are answered."""
        if self.behind:
            self.ended_behind = True
        else:
            newest: object = self.cycle
            size = newest.held_bytes() if isinstance(newest, Inference) else 0
            self.edge.ends.put_off(self._end, 1 + (size >> 20))  # thousands may end at once
        return True

    def _end(self) -> None:
        """Note that all that the client has sent is read."""
        if self.transport.is_closing():
            return
        self.ended = True
        if self.parsing and not self.refused:
            self.refuse(400, "the connection ended in the middle of a request")
        newest: Cycle | None = self.cycle
        active = self.active
        if self.lingering or newest is None or newest.response_complete or active is None:
            self.transport.close()
            return
        newest.keep_alive = False
        if not active.response_started and self.parser.get_http_version() == "1.1":
            self.transport.write(PROBE)
        self.watched_fd = self.transport.get_extra_info("socket").fileno()
        self.edge.hangups.watch(self.watched_fd, self._reset)

    def _reset(self) -> None:
        self.watched_fd = -1
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()
        self.edge.account.fall_behind(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unsent = b""
        self.edge.account.catch_up(self)
        self._advance()

    def on_response_complete(self) -> None:
        """Note that the active request is answered, on either way."""
        self.server_state.total_requests += 1
        self.answers += 1
        if self.pipeline or self.flow.read_paused:
            self._advance()

    def _enqueue(self, exchange: Exchange) -> None:
        self.cycle = cast(RequestResponseCycle, exchange)
        if self._turn_is_free():
            self.active = exchange
            exchange.start()
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _turn_is_free(self) -> bool:
        active = self.active
        return (active is None or active.response_complete) and not (self.pipeline or self.flow.write_paused)

    def _advance(self) -> None:
        if self.advancing:  # an answer given at once, within the loop below
            return
        self.advancing = True
        try:
            while self.pipeline and not self.flow.write_paused and not self.transport.is_closing():
                active = self.active
                if active is not None and not active.response_complete:
                    break
                cycle: object
                cycle, app = self.pipeline.pop()
                if isinstance(cycle, Exchange):
                    self.active = cycle
                    cycle.start()
                else:
                    self._start_asgi_task(cycle, app)
        finally:
            self.advancing = False
        if self.parked and not self.pipeline:
            self.parked = False
            self.loop.call_soon(self._go_on)
        self.flow.resume_reading()

    def _go_on(self) -> None:
        """Parse what is behind."""
        raise NotImplementedError

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.active = cycle
        super()._start_asgi_task(cycle, app)

    def respond(self, inference: Inference, rendered: Rendered) -> None:
        """See `router.http.fastpath.exchange.Connected`."""
        transport, edge = self.transport, self.edge
        if transport.is_closing():
            return
        status, body, json_length, more = rendered
        size = size_of(body)
        if edge.access is not None:
            inference.log(status, size)
        if status != 200:
            head = edge.head(status, b"application/json") + b"content-length: "
        elif json_length is None:
            head = edge.json_head
        else:
            head = b"%b%d\r\ncontent-length: " % (edge.binary_head, json_length)
        request_id = inference.fields.get(b"x-request-id")
        if request_id is not None:
            more += b"\r\nx-request-id: " + request_id
        if not inference.keep_alive:
            more += b"\r\nconnection: close"
        if not isinstance(body, bytes):
            transport.writelines((b"%b%d%b\r\n\r\n" % (head, size, more), *body))
        elif size <= JOIN_MAX_BYTES:
            transport.write(b"%b%d%b\r\n\r\n%b" % (head, size, more, body))
        else:
            transport.writelines((b"%b%d%b\r\n\r\n" % (head, size, more), body))
        if size > JOIN_MAX_BYTES and transport.get_write_buffer_size():
            self.unsent = body
        if not inference.keep_alive:
            transport.close()
        self.on_response_complete()

    def refuse(self, status: int, message: str) -> None:
        """Answer with an error that has no outcome, in turn, and close."""
        self.refuse_with((status, plain_error(message), None, b""))

    def refuse_with(self, rendered: Rendered) -> None:
        """Answer with an error, in turn, and close; nothing more is read from the connection.

        A request that is being received is the one refused; if it is answered already (an early 404),
        there is nothing left to say.
        """
        if self.refused:
            return
        self.refused = True
        self.reading.held_back = False
        parsing, self.parsing = self.parsing, BETWEEN
        if parsing != BODY or self._withdraw_newest():
            self._enqueue(HttpRefusal(self, rendered))
        elif self.cycle.response_complete:
            self.linger()
        else:
            self.transport.close()

    def _withdraw_newest(self) -> bool:
        newest: Cycle = self.cycle
        if newest.response_started or newest.response_complete:
            return False
        newest.disconnected = True
        if isinstance(newest, Exchange):
            newest.leave()
        if self.pipeline and self.pipeline[0][0] is newest:
            self.pipeline.popleft()
        else:
            newest.response_complete = True
            newest.message_event.set()
        return True

    def linger(self) -> None:
        """Finish sending, and discard what the client still sends: a close now could reset the
        connection before the client has read why."""
        self.answers += 1
        if self.ended:
            self.transport.close()
            return
        self.lingering = True
        self.transport.write_eof()
        self.flow.resume_reading()

    def held_bytes(self) -> int:
        """See `router.protocol.account.Holder`: its unsent answers."""
        return self.transport.get_write_buffer_size()

    def address(self) -> str:
        """See `router.protocol.account.Holder` and `router.http.fastpath.places.PlacedConnection`."""
        client = self.client
        return "" if client is None else client[0]

    def give_up(self, _sentence: str) -> None:
        """See `router.protocol.account.Holder`: nothing can be said to a client that does not read."""
        self.transport.abort()

    def hold_back(self) -> None:
        """See `router.http.fastpath.exchange.Connected`."""
        self.reading.held_back = True
        self.reading.pause_reading()

    def go_on(self) -> None:
        """See `router.http.fastpath.exchange.Connected`."""
        self.reading.held_back = False
        self.edge.reads.put_off(self.reading.resume_reading)  # many may go on at once

    def idle_s(self, now_s: float) -> float:
        """See `router.http.fastpath.places.PlacedConnection`: a head that does not come on is no request
        yet."""
        answers, waiting = self.waiting()
        if waiting in _UNDER_WAY or (waiting is WaitsFor.UPLOAD and self.parsing == BODY):
            return BUSY
        seen_answers, seen_waiting, since_s = self.swept
        if answers == seen_answers and waiting is seen_waiting:
            return now_s - since_s
        return 0.0 if answers else now_s - self.made_s

    @property
    def at_rest(self) -> bool:
        """Whether all that the client has sent is answered, and it may send more."""
        going = self.refused or self.ended or self.behind or self.pipeline or self.transport.is_closing()
        return not (going or self.parsing) and self.waiting()[1] is WaitsFor.REQUEST

    def push_out(self) -> None:
        """See `router.http.fastpath.places.PlacedConnection`."""
        self.transport.close()

    def waiting(self) -> tuple[int, WaitsFor]:
        """See `router.http.fastpath.sweep.Sweepable`."""
        if self.lingering:
            return self.answers, WaitsFor.GOODBYE
        if self.transport.get_write_buffer_size():
            return self.answers, WaitsFor.READER
        if self.reading.held_back:
            return self.answers, WaitsFor.ROOM
        if self.reserved and (self.parsing or self.active is None or self.active.response_complete):
            return self.answers, WaitsFor.RESERVE
        if self.parsing and (self.reading.resting or not self.flow.read_paused):
            return self.answers, WaitsFor.UPLOAD
        if self.active is not None and not self.active.response_complete:
            return self.answers, WaitsFor.ANSWER
        return self.answers, WaitsFor.REQUEST

    def expire(self, waiting: WaitsFor) -> None:
        """See `router.http.fastpath.sweep.Sweepable`."""
        if waiting is WaitsFor.UPLOAD:
            limit_s = self.edge.limits.slow_client_s
            self.refuse(408, f"the request did not arrive whole within {limit_s:g} s (limits.slow_client_s)")
        elif waiting is WaitsFor.ROOM:
            self._expire_upload()
        elif waiting in (WaitsFor.REQUEST, WaitsFor.RESERVE):
            self.transport.close()
        else:
            self.transport.abort()

    def _expire_upload(self) -> None:
        """Give up an upload that was held back for as long as a client may take."""
        cycle: object = self.cycle
        if isinstance(cycle, Inference):
            limit_s = self.edge.limits.slow_client_s
            cycle.give_up(
                f"there was no memory for the rest of the request for {limit_s:g} s (limits.held_mb): "
                "its clients make the gateway hold too much"
            )
