"""Promises of a keeper's desk: it hears its gateway's end and the next gateway, in whatever order."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from serving.worker.process.orphans import BUSY, DIFFERS, TAKEN, Call, Desk, Waiting, Waits

ADDRESS = f"\0penstock-test-{os.getpid()}".encode()
CALL = Call("same", 0, False)


class Ground:
    """A desk in this process. `read`: the gateway's end of its pipe; `waiting`: its worker's side."""

    def __init__(self) -> None:
        self.read, say = os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.waiting = Waiting(theirs)
        self.signals, self.signal = os.pipe()
        self.desk = Desk(say, ours, Waits(60.0, ADDRESS, "same"), "mark", self.signals)
        self.desk.hear(0)  # it listens
        self._sockets = ours, theirs

    def leave(self) -> None:
        """As a gateway that ends."""
        os.close(self.read)

    def call(self, stack: ExitStack, call: Call = CALL) -> socket.socket:
        """As the next gateway; what is read of its pipe is `read` from then on."""
        caller = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        caller.settimeout(10)
        caller.connect(ADDRESS)
        self.next_read, say = os.pipe()
        mine, given = socket.socketpair()
        stack.enter_context(mine)
        with given:
            socket.send_fds(caller, [call.pack()], [say, given.fileno()])
        os.close(say)
        return caller

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        if self.desk._listener is not None:
            self.desk._listener.close()
        for descriptor in (self.signals, self.signal, self.desk.say):
            os.close(descriptor)


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.close()


def test_ends_and_calls_that_are_seen_at_once_are_each_heard(ground: Ground) -> None:
    with ExitStack() as stack:
        for _ in range(4):
            ground.leave()
            caller = ground.call(stack)  # before the desk has looked
            ground.desk.hear(0)
            ground.desk.hear(0)
            assert caller.recv(100) == TAKEN + b"mark"
            found = ground.waiting.wait()
            assert found is not None
            os.close(found.connection)
            assert not ground.desk.over
            ground.read = ground.next_read
            os.write(ground.signal, b"!")
            ground.desk.hear(None)  # it hears on
        ground.leave()


def test_a_gateway_that_lives_is_not_robbed(ground: Ground) -> None:
    with ExitStack() as stack:
        caller = ground.call(stack)
        ground.desk.hear(0)
        assert caller.recv(100) == BUSY
        ground.leave()
        os.close(ground.next_read)


def test_a_call_of_another_kind_ends_the_wait(ground: Ground) -> None:
    with ExitStack() as stack:
        ground.leave()
        caller = ground.call(stack, Call("other", 0, False))
        ground.desk.hear(0)
        assert caller.recv(100) == DIFFERS
        assert ground.desk.over
        os.close(ground.next_read)


def test_a_caller_that_leaves_at_once_changes_nothing(ground: Ground) -> None:
    ground.leave()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.connect(ADDRESS)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ground.desk.hear(0)
    assert not ground.desk.over
