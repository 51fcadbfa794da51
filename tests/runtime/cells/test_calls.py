"""Promises of calls between cells, over real connections: each gets one reply, however a connection ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from serving.cache.spec import RedisSpec
from serving.ports import Call, Reply
from serving.runtime.cells.caller import CellCaller, Flight
from serving.runtime.cells.door import CellDoor
from serving.runtime.cells.spec import CellsSpec
from serving.runtime.nodes.dialing import Gateway
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, NO_REPLICA
from serving.worker.frames.wire import FrameKind, pack_frame
from tests.builders import model_spec, served
from tests.runtime.cells.cores import Core

pytestmark = pytest.mark.live

MODEL = served()
SPEC = CellsSpec("b", RedisSpec("redis://nowhere"), token="0123456789abcdef", port=0)  # noqa: S106
WAIT_S = 20


class Pair:
    """A caller, and a door with a core behind it."""

    def __init__(self, core: Core, door: CellDoor, caller: CellCaller) -> None:
        self.core = core
        self.door = door
        self.caller = caller
        self.count = 0

    @property
    def open(self) -> int:
        """The caller's calls under way."""
        return 0 if self.caller._there is None else len(self.caller._there.flights)

    def ask(self, rows: int = 1) -> "asyncio.Future[tuple[Reply | None, str]]":
        """The reply to a call, or why there is none."""
        self.count += 1
        future: asyncio.Future[tuple[Reply | None, str]] = asyncio.get_running_loop().create_future()
        call = Call(MODEL, [Tensor("X", "FP32", (rows, 4), bytes(16 * rows))], rows)
        call.arrived_us = self.core.now_us()
        assert not self.caller.send(self.count, Flight(call, lambda *said: future.set_result(said)))
        return future


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@asynccontextmanager
async def calling(caller: CellCaller) -> AsyncIterator[CellCaller]:
    task = asyncio.create_task(caller.run())
    try:
        yield caller
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def pair(core: Core, token: str = SPEC.token) -> AsyncIterator[Pair]:
    door = CellDoor(SPEC, core)
    port = await door.start(None)
    async with calling(CellCaller("b", Gateway("127.0.0.1", port), "a", token)) as caller:
        try:
            yield Pair(core, door, caller)
        finally:
            await door.close()


@asynccontextmanager
async def connected(core: Core) -> AsyncIterator[Pair]:
    async with pair(core) as made:
        await until(lambda: made.caller.connected)
        yield made


async def test_a_call_is_answered_by_the_other_cell() -> None:
    async with connected(Core([MODEL])) as made:
        reply, why = await made.ask(3)
        assert reply is not None
        assert (reply.outcome, why) == (COMPLETED, "")
        assert bytes(reply.outputs[0].data) == bytes(48)
        (call,) = made.core.calls
        assert call.rows == 3
        assert call.arrived_us <= made.core.now_us()
        assert reply.answered_us > call.arrived_us


async def test_many_calls_are_under_way_at_once_and_answered_in_any_order() -> None:
    core = Core([MODEL])
    core.held = True
    async with connected(core) as made:
        asked = [made.ask() for _ in range(200)]
        await until(lambda: len(core.calls) == 200)
        assert made.open == made.door.open == 200
        core.release()
        replies = await asyncio.gather(*asked)
        assert all(reply is not None and reply.outcome is COMPLETED for reply, _ in replies)
        assert made.open == made.door.open == 0


async def test_a_large_call_arrives_whole() -> None:
    async with connected(Core([MODEL])) as made:
        reply, _ = await made.ask(200_000)
        assert reply is not None
        assert len(reply.outputs[0].data) == 3_200_000


async def test_a_client_that_leaves_cancels_the_call_there() -> None:
    core = Core([MODEL])
    core.held = True
    async with connected(core) as made:
        future = made.ask()
        await until(lambda: core.calls)
        made.caller.cancel(1)
        await until(lambda: core.cancelled)
        assert not future.done()
        assert made.open == 0


async def test_answers_of_a_decoupled_model_come_before_its_reply() -> None:
    model = served(replace(model_spec(), decoupled=True))
    core = Core([model])
    core.parts = 3
    heard: list[bytes] = []

    def hear(outputs: Sequence[Tensor], _version: int) -> None:
        heard.append(bytes(outputs[0].data))

    async with connected(core) as made:
        done = asyncio.Event()
        call = Call(model, [Tensor("X", "FP32", (1, 4), bytes(16))], 1)
        call.on_answer = hear
        flight = Flight(call, lambda *_: done.set())
        assert not made.caller.send(1, flight)
        await asyncio.wait_for(done.wait(), WAIT_S)
        assert heard == [bytes([number, 0, 0, 0]) for number in range(3)]
        assert flight.started


async def test_a_model_that_is_not_there_is_said() -> None:
    async with connected(Core([])) as made:
        reply, _ = await made.ask()
        assert reply is not None
        assert (reply.outcome, reply.detail) == (NO_REPLICA, "it is not served there")


async def test_a_connection_that_ends_leaves_no_call_without_a_word() -> None:
    core = Core([MODEL])
    core.held = True
    async with connected(core) as made:
        asked = [made.ask() for _ in range(5)]
        await until(lambda: len(core.calls) == 5)
        await made.door.close()
        assert await asyncio.gather(*asked) == [(None, "has ended the connection")] * 5
        assert sorted(core.cancelled) == [1, 2, 3, 4, 5]
        await until(lambda: "cannot be called" in made.caller.reason)


async def test_a_cell_that_is_no_longer_called_leaves_no_call_without_a_word() -> None:
    core = Core([MODEL])
    core.held = True
    door = CellDoor(SPEC, core)
    caller = CellCaller("b", Gateway("127.0.0.1", await door.start(None)), "a", SPEC.token)
    task = asyncio.create_task(caller.run())
    await until(lambda: caller.connected)
    asked = Pair(core, door, caller).ask()
    await until(lambda: core.calls)
    task.cancel()
    assert await asyncio.wait_for(asked, WAIT_S) == (None, "is gone")
    await door.close()


async def test_another_token_is_turned_away() -> None:
    async with pair(Core([MODEL]), token="another-token-of-16") as made:  # noqa: S106
        await until(lambda: "another token" in made.caller.reason)
        assert not made.caller.connected


async def test_garbage_ends_only_its_own_connection() -> None:
    core = Core([MODEL])
    async with (
        connected(core) as made,
        calling(CellCaller("b", made.caller.gateway, "c", SPEC.token)) as other,
    ):
        await until(lambda: other.connected)
        assert other._there is not None
        other._there.write((pack_frame(FrameKind.HELLO, b""),))
        await until(lambda: not other.connected)
        reply, _ = await made.ask()
        assert reply is not None


async def test_a_broken_reply_leaves_no_call_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    core = Core([MODEL])
    core.held = True
    async with connected(core) as made:
        asked = made.ask()
        await until(lambda: core.calls)
        (answers,) = made.door._callers
        answers.write((pack_frame(FrameKind.REPLY, (1).to_bytes(8, "little") + b"[]"),))
        reply, why = await asyncio.wait_for(asked, WAIT_S)
        assert reply is None
        assert "sends a reply that cannot be read" in why
        await until(lambda: "cell b sends a reply that cannot be read" in caplog.text)


async def test_the_trip_is_measured() -> None:
    async with connected(Core([MODEL])) as made:
        await until(lambda: made.caller.trip_us)
