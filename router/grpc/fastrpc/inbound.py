"""A call on its stream, as far as its one message: its prefix, its size, the memory that it takes.

What becomes of a whole message is its subclass's. The message is refused as soon as its prefix says that it
is too large, and as soon as there is no memory for it; what its client still sends is dropped.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import grpc
from mypy_extensions import mypyc_attr

from router.grpc.fastrpc.edge import RpcEdge
from router.grpc.fastrpc.framing import PREFIX_BYTES, Header, status, status_of
from router.grpc.rpc.calls import ending, reply_of
from router.logs.access import NO_IDS, say_access
from router.protocol.outcomes import ANSWERS
from router.tensors.messages import NAME, early_text
from router.tensors.parts.errors import RequestError, memory_full, too_large
from serving.policy.limits.memory import SMALL_BYTES
from serving.ports import Reply
from serving.values.vocabulary import BAD_INPUT, Outcome

UNKNOWN_SIZE: Final = -1
STATUS_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}
EARLY_BYTES: Final = 2048
"""Of a large message: once they are there, its model's name is."""


class Carrier:
    """The connection of a call. `reading`: calls without a whole message, by stream; `now_s`: when the input
    in hand was read, on the event loop's clock."""

    def __init__(self, edge: RpcEdge) -> None:
        self.edge = edge
        self.loop = asyncio.get_running_loop()
        self.now_s = self.loop.time()
        self.reading: dict[int, Inbound] = {}
        self.certificate: tuple[str, ...] = ()  # names of the client's

    def clock_us(self) -> int:
        """Return the same on the core's clock."""
        raise NotImplementedError

    def peer(self) -> str:
        """Return the client's address as grpc writes it."""
        raise NotImplementedError

    def address(self) -> str:
        """Return the client's address."""
        raise NotImplementedError

    def answer(self, call: "Inbound", wire: bytes, fields: Sequence[Header]) -> None:
        """Send its one answer, and its status."""
        raise NotImplementedError

    def add(self, call: "Inbound", wire: bytes, *, first: bool) -> None:
        """Send one of its answers."""
        raise NotImplementedError

    def finish(self, call: "Inbound", fields: Sequence[Header]) -> None:
        """Send its status, after its answers."""
        raise NotImplementedError

    def refuse(self, call: "Inbound", fields: list[Header]) -> None:
        """Send its status, and nothing else."""
        raise NotImplementedError

    def give_back(self, call: "Inbound") -> None:
        """Let the client send as much again as was taken of the call."""
        raise NotImplementedError

    def queued_bytes(self, call: "Inbound") -> int:
        """Return how much of its answers is not sent."""
        raise NotImplementedError

    async def room(self) -> None:
        """Return once some of what is queued was sent."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Inbound:
    """`ended`: the client sends no more; `done`: the call has its answer; `gone`: its stream is closed."""

    __slots__ = (
        "began_us",
        "begun_s",
        "body",
        "connection",
        "counted",
        "done",
        "edge",
        "ended",
        "gone",
        "headed",
        "held_back",
        "id",
        "left_bytes",
        "logged",
        "moved_s",
        "path",
        "reading",
        "size",
        "unread_bytes",
    )
    body: bytes | bytearray

    def __init__(self, connection: Carrier, stream_id: int, path: str) -> None:
        self.path = path
        self.began_us = connection.clock_us()  # when its head came
        self.connection = connection
        self.edge = connection.edge
        self.id = stream_id
        self.begun_s = connection.now_s
        self.body = b""
        self.size = UNKNOWN_SIZE  # of the message with its prefix
        self.reading = True  # the message is not whole
        self.ended = False
        self.done = False
        self.gone = False
        self.logged = True  # it has a line in the access log
        self.headed = False  # the head of its answer is sent: only trailers can follow
        self.counted = False  # by the account, as an upload
        self.held_back = False  # by the account: its window is not opened again
        self.unread_bytes = 0  # taken, and not given back to the client's windows
        self.left_bytes = 0  # of its answer, when the sweep saw it last
        self.moved_s = 0.0  # when the sweep saw less of it left

    # what the client sends

    def take(self, data: bytes, end: bool) -> None:
        """Take the next piece of the stream. A message that comes whole is copied once."""
        if end:
            self.ended = True
        if not self.reading:
            return
        if not self.body:
            self.body = data
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += data
        have = len(self.body)
        if have >= PREFIX_BYTES and (self.size >= 0 or self._read_prefix()):
            if self.size > SMALL_BYTES:
                self._count(have)
            if not self.reading:
                return
            if have >= self.size:
                self._complete()
                return
        if end and self.reading:
            self.cut_off()

    def _read_prefix(self) -> bool:
        """Return whether the message may come."""
        if self.body[0] > 1:
            self.end(status(grpc.StatusCode.INTERNAL, "a message begins with neither 0 nor 1"))
            return False
        length = int.from_bytes(self.body[1:PREFIX_BYTES])
        self.size = PREFIX_BYTES + length
        limit = self.edge.limits.body_bytes
        if length > limit:
            sentence = f"Received message larger than max ({length} vs. {limit}) (limits.body_mb)"
            self.refuse(too_large(sentence))
            return False
        return True

    def _count(self, have: int) -> None:
        account = self.edge.calls.account
        if not self.counted:
            if have < min(self.size, EARLY_BYTES):
                return  # who is refused, is still to come
            refusal = account.refusal()
            if refusal is not None:
                self.refuse(refusal)
                return
            self.counted = True
        account.hold(self, have)

    def _complete(self) -> None:
        body = self.body
        if isinstance(body, bytes):
            message = body[PREFIX_BYTES : self.size]
        else:
            message = bytes(memoryview(body)[PREFIX_BYTES : self.size])
        self.stop_reading()
        self.whole(message)

    def stop_reading(self) -> None:
        """Stop reading, as nothing more is expected of the client."""
        self.reading = False
        self.body = b""
        self.connection.reading.pop(self.id, None)
        if self.counted:
            self.counted = False
            self.edge.calls.account.release(self)
        if self.unread_bytes:
            self.connection.give_back(self)

    def whole(self, message: bytes) -> None:
        """Handle the message, which is now whole."""
        raise NotImplementedError

    def cut_off(self) -> None:
        """Refuse the call: the client ended its stream without a whole message."""
        self.refuse(RequestError(BAD_INPUT, "the call ended without a whole message"))

    def refused(self, outcome: Outcome, model: str) -> None:
        """Count a call that ends before it is one of the core, where its method is counted."""

    def refuse(self, error: RequestError) -> None:
        """End it, and count it."""
        self.refused(error.outcome, early_text(bytes(self.body[PREFIX_BYTES:EARLY_BYTES]), NAME))
        self.fail(reply_of(error))

    # how it ends

    def fail(self, reply: Reply, due_us: int = 0) -> None:
        """End it with the status of an outcome."""
        self.end(status_of(ending(reply, due_us)))

    def end(self, fields: list[Header]) -> None:
        """End it with that status; once it is done this does nothing."""
        if not self.done:
            self.done = True
            self.connection.refuse(self, fields)
            self.log(int(fields[0][1]))
            self.settle()

    def settle(self) -> None:
        """Let go of what it holds: it has its answer, or needs none."""
        if self.reading:
            self.stop_reading()

    def expire(self) -> None:
        """End the call, as its message has not arrived in time."""
        limit = f"within {self.edge.limits.slow_client_s:g} s (limits.slow_client_s)"
        self.end(status(grpc.StatusCode.DEADLINE_EXCEEDED, f"the message did not arrive whole {limit}"))

    def drain(self, outcome: Outcome) -> None:
        """Refuse the call if it still waits for its message, as the gateway ends."""
        if self.reading:
            self.refuse(RequestError(outcome, ANSWERS[outcome].sentence))

    def close(self) -> None:
        """Settle the call, as its stream is closed: all is sent, or the client has left."""
        self.gone = True
        if not self.done:
            self.log(grpc.StatusCode.CANCELLED.value[0])
        self.settle()

    def log(self, code: int, answer_bytes: int = 0) -> None:
        """Write its line in the access log, where there is one."""
        if self.edge.access and self.logged:
            took_us = self.edge.serving.now_us() - self.began_us
            say_access(
                self.connection.peer(), self.path, STATUS_NAMES[code], answer_bytes, took_us, self.ids()
            )

    def ids(self) -> Mapping[str, str]:
        """Return what its client calls it, for the access log."""
        return NO_IDS

    # what the account asks of it: see `router.protocol.account.Upload`

    def held_bytes(self) -> int:
        return len(self.body)

    def address(self) -> str:
        return self.connection.address()

    def is_growing(self) -> bool:
        return self.reading and not self.held_back

    def hold_back(self) -> None:
        self.held_back = True

    def go_on(self) -> None:
        self.held_back = False
        self.connection.give_back(self)

    def give_up(self, _sentence: str) -> None:
        self.counted = False  # the account has let go of it
        self.refuse(memory_full(_sentence))
