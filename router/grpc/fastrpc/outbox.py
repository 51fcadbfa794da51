"""What a connection of the gRPC edge sends: answers and statuses, as far as its client takes them.

ngh2 keeps what the client's windows do not take yet. Beyond `limits.write_buffer_kb` of that, the client's
uploads wait: their windows are not opened again. Reading must go on, as it brings the client's windows.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import cast

from ngh2 import Connection, ErrorCode, Event, NGH2Error, Role, StreamUnavailableError

from router.grpc.fastrpc.edge import RpcEdge
from router.grpc.fastrpc.framing import CONTENT, HEAD, Header, prefix
from router.grpc.fastrpc.inbound import Carrier, Inbound
from serving.policy.limits.memory import SMALL_BYTES
from serving.values.tensor import Buffer


class Outbox(Carrier):
    """The sending half of a connection.

    `calls`: the calls with an open stream, by stream number. `ended`: nothing more is read or answered.
    `queued`: bytes of answers that the client's windows or its socket do not take; `crowded`: `queued` is so
    large that the client's uploads wait. `paused`: the socket takes no more. `feeding`: what is to be sent is
    sent after all that was read.
    """

    def __init__(self, edge: RpcEdge) -> None:
        super().__init__(edge)
        self.http = Connection(Role.SERVER, edge.http)
        self.transport = cast(asyncio.Transport, None)  # until it is made
        self.calls: dict[int, Inbound] = {}
        self.ended = False
        self.queued = 0
        self.crowded = False
        self.paused = False
        self.feeding = False
        self.written_bytes = 0
        self._due = False  # what is to be sent is sent in the loop's next turn
        self._unended: list[int] = []  # streams that were answered before their client has ended
        self._waiters: list[asyncio.Future[None]] = []

    def handle(self, events: Sequence[Event]) -> None:
        """Do what events ask for."""
        raise NotImplementedError

    def broken(self, error: NGH2Error | None) -> None:
        """End the connection, which cannot go on."""
        raise NotImplementedError

    def give_up(self, _sentence: str) -> None:
        """See `router.protocol.account.Holder`."""
        raise NotImplementedError

    def answer(self, call: Inbound, wire: bytes, fields: Sequence[Header]) -> None:
        """Send the call's only answer, and its status."""
        http, stream_id = self.http, call.id
        try:
            http.send_response(stream_id, HEAD)
            call.headed = True
            if len(wire) <= SMALL_BYTES:
                http.send_data(stream_id, prefix(len(wire)) + wire)
            else:
                http.send_data(stream_id, prefix(len(wire)))
                http.send_data(stream_id, wire)
            http.send_trailers(stream_id, fields)
        except NGH2Error:
            return  # the client has left: its event is still to come
        self._touch()

    def add(self, call: Inbound, wire: bytes, *, first: bool) -> None:
        """Send the next answer of the call."""
        try:
            if first:
                self.http.send_response(call.id, HEAD)
                call.headed = True
            if len(wire) <= SMALL_BYTES:
                self.http.send_data(call.id, prefix(len(wire)) + wire)
            else:
                self.http.send_data(call.id, prefix(len(wire)))
                self.http.send_data(call.id, wire)
        except NGH2Error:
            return  # the client has left: its event is still to come
        self._touch()

    def finish(self, call: Inbound, fields: Sequence[Header]) -> None:
        """Send the call's status, after its answers."""
        try:
            self.http.send_trailers(call.id, fields)
        except NGH2Error:
            return
        self._touch()

    def refuse(self, call: Inbound, fields: list[Header]) -> None:
        """Send the call's status, and nothing else."""
        if call.headed:
            self.finish(call, fields)
        else:
            self.turn_down(call.id, [HEAD[0], CONTENT, *fields], call.ended)

    def turn_down(self, stream_id: int, head: Sequence[Header], ended: bool) -> None:
        """Answer a stream with only a head. `ended`: the client sends no more; else the client is asked to
        stop sending (RFC 9113, 8.1)."""
        try:
            self.http.send_response(stream_id, head, end_stream=True)
        except NGH2Error:
            return
        if not ended:
            self._unended.append(stream_id)
        self._touch()

    # what REST sends

    def reply(self, call: Inbound, head: Sequence[Header], pieces: Sequence[Buffer]) -> None:
        """Send a whole answer of HTTP."""
        self.send_head(call, head, end=not pieces)
        for place, piece in enumerate(pieces, 1):
            self.send_piece(call, piece, end=place == len(pieces))
        self.cut_short(call)

    def send_head(self, call: Inbound, head: Sequence[Header], *, end: bool) -> None:
        """Send the head of an answer; `end`: there is no body."""
        try:
            self.http.send_response(call.id, head, end_stream=end)
        except NGH2Error:
            return  # the client has left: its event is still to come
        self._touch()

    def send_piece(self, call: Inbound, piece: Buffer, *, end: bool) -> None:
        """Send the next piece of a body; `end`: it is the last."""
        try:
            self.http.send_data(call.id, piece if isinstance(piece, bytes) else bytes(piece), end_stream=end)
        except NGH2Error:
            return
        self._touch()

    def cut_short(self, call: Inbound) -> None:
        """Ask the client to send no more of a call that is answered."""
        if not call.ended:
            self._unended.append(call.id)
            self._touch()

    def invite(self, call: Inbound) -> None:
        """Tell a client that waits to send the body."""
        try:
            self.http.send_informational_response(call.id, ((b":status", b"100"),))
        except NGH2Error:
            return
        self._touch()

    def reset(self, call: Inbound, code: ErrorCode) -> None:
        """End a stream in mid-answer, as something has failed."""
        try:
            self.http.reset_stream(call.id, code)
        except NGH2Error:
            return
        self._touch()

    def _touch(self) -> None:
        """Schedule the sending of what is queued, at the end of this turn of the event loop."""
        if not (self.feeding or self._due):
            self._due = True
            self.loop.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._due = False
        self.flush()

    def flush(self) -> None:
        """Send what the client's windows and its socket take."""
        if self.ended:
            return
        http, transport, most = self.http, self.transport, self.edge.limits.write_buffer_bytes
        try:
            while not (self.paused or transport.is_closing()):
                data = http.data_to_send(most)
                if data:
                    self.written_bytes += len(data)
                    transport.write(data)
                events = http.events()
                if events:
                    self.handle(events)
                if len(data) >= most or (self._unended and self._cut_short()):
                    continue
                if not (events and http.want_write):
                    break
        except NGH2Error as error:
            self.broken(error)
            return
        queued = http.queued_body_size()
        if queued or self.queued:
            self._weigh(queued)

    def _cut_short(self) -> bool:
        """Ask clients to send no more of calls that are answered; return whether any was asked.

        This must follow the sending: ngh2 drops what is queued for a stream that is reset.
        """
        unended, self._unended = self._unended, []
        asked = False
        for stream_id in unended:
            with contextlib.suppress(StreamUnavailableError):
                self.http.stream_remote_window_size(stream_id)
                if self.http.queued_body_size(stream_id):
                    self._unended.append(stream_id)
                else:
                    self.http.reset_stream(stream_id, ErrorCode.NO_ERROR)
                    asked = True
        return asked

    def _weigh(self, queued: int) -> None:
        """Note that `queued` bytes of answers wait: beyond the limit, the same client's uploads wait too."""
        account, self.queued = self.edge.calls.account, queued
        if queued > SMALL_BYTES:
            account.fall_behind(self)
        else:
            account.catch_up(self)
        crowded = queued > self.edge.limits.write_buffer_bytes
        if self.crowded and not crowded:
            self.crowded = False
            for call in tuple(self.calls.values()):
                self.give_back(call)
        self.crowded = crowded
        self.let_in()

    def let_in(self) -> None:
        waiters, self._waiters = self._waiters, []
        for each in waiters:
            if not each.done():
                each.set_result(None)

    async def room(self) -> None:
        """Return once some of what is queued was sent, or the connection is gone."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def held_bytes(self) -> int:
        """See `router.protocol.account.Holder`: its unsent answers."""
        return self.queued + self.transport.get_write_buffer_size()

    def queued_bytes(self, call: Inbound) -> int:
        """Return how much of the call's answers is not sent."""
        return self.unsent_bytes(call.id)

    def unsent_bytes(self, stream_id: int) -> int:
        """Return the same, by its stream."""
        return 0 if self.ended else self.http.queued_body_size(stream_id)

    def give_back(self, call: Inbound) -> None:
        """Let the client send as much again as was taken of the call, unless the call should wait."""
        if self.ended or not call.unread_bytes or (call.reading and (self.crowded or call.held_back)):
            return
        size, call.unread_bytes = call.unread_bytes, 0
        try:
            self.http.acknowledge_received_data(size, call.id)
        except NGH2Error:
            return
        self._touch()
