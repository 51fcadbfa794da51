"""However many connections want something at once, each turn of the event loop does a bounded part of it."""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from router.http.fastpath import create_server
from router.http.fastpath.sweep import LOOKS_A_TURN, IdleSweep, WaitsFor
from router.http.fastpath.turns import ENDS_A_TURN, LARGE_BYTES, READS_A_TURN, Turns
from serving.values.specs import Limits
from tests.router.http.fastpath.wire import Running, Wire, get, request

READ_BYTES = 256 << 10  # of uvloop, at most


async def by_turn(done: Callable[[], int], until: int) -> list[int]:
    """How much more was done in each turn of the loop, until so much is."""
    found, before = [], done()
    while before < until:
        await asyncio.sleep(0)
        found.append(done() - before)
        before += found[-1]
    return found


async def test_what_was_put_off_is_done_in_order_so_much_a_turn() -> None:
    turns, done = Turns(4), list[int]()
    for number in range(10):
        turns.put_off(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == []
    assert await by_turn(lambda: len(done), 10) == [4, 4, 2]
    turns.put_off(lambda: done.append(10))
    assert await by_turn(lambda: len(done), 11) == [1]
    assert done == [*range(11)]


async def test_what_counts_for_more_has_fewer_beside_it_or_none() -> None:
    turns, done = Turns(4), list[int]()
    for weight in (1, 2, 2, 9, 1, 3, 1):
        turns.put_off(lambda weight=weight: done.append(weight), weight)  # type: ignore[misc]
    assert await by_turn(lambda: len(done), 7) == [2, 1, 1, 2, 1]


async def test_an_action_that_fails_holds_up_none_behind_it() -> None:
    turns, done = Turns(4), list[int]()
    asyncio.get_running_loop().set_exception_handler(lambda *_: done.append(0))
    turns.put_off(lambda: 1 // 0)  # type: ignore[arg-type]
    turns.put_off(lambda: done.append(1))
    assert await by_turn(lambda: len(done), 2) == [1, 1]


class Memory(bytearray):
    """That can be watched."""


async def test_what_is_large_is_freed_by_itself_and_what_is_small_at_once() -> None:
    turns = Turns(ENDS_A_TURN)
    large = [Memory(LARGE_BYTES * ENDS_A_TURN) for _ in range(5)]
    freed = [weakref.ref(each) for each in large]
    while large:
        turns.let_go((large.pop(),))
    turns.let_go((small := Memory(9),))
    gone = weakref.ref(small)
    del small
    assert gone() is None
    assert await by_turn(lambda: sum(each() is None for each in freed), 5) == [1] * 5


class Idle:
    """A connection that only waits, and counts the looks at it."""

    def __init__(self) -> None:
        self.swept = (-1, WaitsFor.REQUEST, 0.0)
        self.looks = 0

    def waiting(self) -> tuple[int, WaitsFor]:
        self.looks += 1
        return 0, WaitsFor.REQUEST

    def expire(self, waiting: WaitsFor) -> None:
        raise AssertionError(f"it has waited too long for {waiting}")


async def test_a_sweep_looks_at_so_many_connections_a_turn_and_at_each_once() -> None:
    connections = [Idle() for _ in range(1000)]
    swept = set[object](connections)
    sweep = IdleSweep(swept, Limits(), lambda: None)
    sweep.start()
    looks = sum(each.looks for each in connections)
    assert looks == LOOKS_A_TURN
    gone = next(each for each in connections if not each.looks)
    swept.remove(gone)
    later = await by_turn(lambda: sum(each.looks for each in connections), 999)
    sweep.stop()
    assert max(later) <= LOOKS_A_TURN
    assert gone.looks == 0
    assert all(each.looks == 1 for each in connections if each is not gone)


@pytest.fixture
def running() -> Iterator[Running]:
    found = Running(Limits(body_bytes=64 << 20, held_bytes=1 << 30))
    yield found
    found.stop()


def test_connections_that_end_at_once_are_closed_in_portions(running: Running) -> None:
    count = 8 * ENDS_A_TURN
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(running.connect()) for _ in range(count)]
        while sum(running.server.connection_counts) < count:
            running.settle()

        async def ended() -> list[int]:
            for wire in wires:
                wire.close()
            return await by_turn(lambda: count - sum(running.server.connection_counts), count)

        closed = running.run(ended())
    assert sum(closed) == count
    assert max(closed) <= ENDS_A_TURN
    assert running.ask(get("/livez")).status == 200


@pytest.mark.parametrize("uploads", [1, 3 * READS_A_TURN])
def test_large_uploads_are_read_in_turns(running: Running, uploads: int) -> None:
    size = 8 << 20
    head, _, _ = request(content_length=str(size + 1)).partition(b"\r\n\r\n")
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(running.connect()) for _ in range(uploads)]
        senders = [threading.Thread(target=_send, args=(wire, head, size)) for wire in wires]
        held = running.server.account

        async def read() -> list[int]:
            for each in senders:
                each.start()
            return await by_turn(lambda: held.held_bytes, uploads * size)

        grown = running.run(read())
        for each in senders:
            each.join()
    # Its first read has no turn to wait for.
    assert max(grown) <= READ_BYTES * (1 if uploads == 1 else READS_A_TURN + uploads)
    assert sum(each > READ_BYTES * READS_A_TURN for each in grown) <= uploads
    running.wait_left()


def _send(wire: Wire, head: bytes, size: int) -> None:
    wire.send(head + b"\r\n\r\n" + bytes(size))


def test_an_upload_that_its_application_does_not_take_is_not_read_on(running: Running) -> None:
    size = 16 << 20
    takes = asyncio.Event()

    async def application(_scope: object, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        await takes.wait()
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def held_and_answered() -> tuple[int, bytes]:
        server = create_server(running.serving, application, "127.0.0.1", 0, Limits())
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(request("/", content_length=str(size)) + bytes(size))
        for _ in range(500):  # unhindered, there is a read in each
            await asyncio.sleep(0)
        (connection,) = server._edge.state.connections
        held = len(connection.cycle.body)  # type: ignore[union-attr]  # ours are all of one kind
        takes.set()
        answer = await reader.readline()
        writer.close()
        await server.drain(1.0)
        return held, answer

    held, answer = running.run(held_and_answered())
    assert 0 < held <= 2 * READ_BYTES
    assert answer == b"HTTP/1.1 200 OK\r\n"


def test_a_request_behind_a_large_body_is_answered(running: Running) -> None:
    with running.connect() as wire:
        wire.send(request("/v2/nowhere", bytes(1 << 20)) + get("/livez"))
        assert [wire.read().status, wire.read().status] == [404, 200]
