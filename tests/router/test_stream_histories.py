"""Random histories of streams against a small model of what Triton does with them.

The model (triton-inference-server/server, src/grpc/stream_infer_handler.cc): a request of a model with one
answer has one answer, in the order of these requests; one of a decoupled model has its answers as they were
given, then an end if it asked for one or an error; a stream that is half-closed ends OK after all of them,
and one that its client or its deadline ends leaves no request open in the core.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from serving.ports import Reply
from serving.values.specs import Limits
from serving.values.vocabulary import MODEL_ERROR, WORKER_LOST, Outcome
from tests.router.decoupled import StreamingCore, is_final, repeat_request, value_of
from tests.router.grpc.test_rpc_streams import CODES, open_stream
from tests.router.rpc_edge import Edge, completed, serve, simple_request
from tests.seeds import parts

pytestmark = pytest.mark.usefixtures("both_servers")

STREAMS = 3
STEPS = 40
ERRORS: tuple[Outcome, ...] = (MODEL_ERROR, WORKER_LOST)


class Modelled:
    """What one stream has to bring. `by_id`: each request's answers, as (value, last, error); `turns`: the
    requests with one answer, in order; `number`: of each request in the core, once it is there."""

    def __init__(self, name: str, stream: Any) -> None:
        self.name = name
        self.stream = stream
        self.by_id: dict[str, list[tuple[int | None, bool, str]]] = {}
        self.turns: list[str] = []
        self.open: list[str] = []  # sent, and without an end
        self.decoupled: dict[str, bool] = {}  # whether an empty final answer was asked for
        self.is_closed = False  # for sending
        self.is_left = False
        self.got: list[Any] = []
        self.reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            while (answer := await self.stream.read()) is not grpc.aio.EOF:
                self.got.append(answer)

    def check(self) -> None:
        """Everything that came is what the model says; of a stream that was not left, all of it."""
        found: dict[str, list[tuple[int | None, bool, str]]] = {name: [] for name in self.by_id}
        turns = []
        for answer in self.got:
            name = answer.infer_response.id
            value = None
            if answer.infer_response.raw_output_contents:
                value = value_of(answer) if name in self.decoupled else 0
            found[name].append((value, is_final(answer), answer.error_message))
            if name not in self.decoupled:
                turns.append(name)
        assert turns == self.turns[: len(turns)], "out of order"
        for name, answers in found.items():
            expected = self.by_id[name]
            if self.is_left:
                assert answers == expected[: len(answers)], name
            else:
                assert answers == expected, name


class World:
    """Some streams over one core, and dice."""

    def __init__(self, core: StreamingCore, dice: random.Random, streams: list[Modelled]) -> None:
        self.core = core
        self.dice = dice
        self.streams = streams
        self.numbers: dict[str, int] = {}  # of requests in the core, by id
        self.count = 0

    async def step(self) -> None:
        stream = self.dice.choice(self.streams)
        live = not stream.is_left
        kind = self.dice.choices(
            ("send", "say", "end", "fail", "bad", "close", "leave"), (6, 6, 5, 1, 1, 0.5, 0.3)
        )[0]
        if kind in ("send", "bad") and live and not stream.is_closed:
            await self._send(stream, bad=kind == "bad")
        elif kind == "say" and live:
            self._say(stream)
        elif kind in ("end", "fail") and live and stream.open:
            self._end(stream, self.dice.choice(stream.open), fails=kind == "fail")
        elif kind == "close" and live and not stream.is_closed:
            stream.is_closed = True
            await stream.stream.done_writing()
        elif kind == "leave" and live:
            await self._leave(stream)

    async def _send(self, stream: Modelled, *, bad: bool) -> None:
        self.count += 1
        before = len(self.core.calls)
        name = f"{stream.name}{self.count}"
        stream.by_id[name] = []
        if self.dice.random() < 0.5 and not bad:
            stream.decoupled[name] = self.dice.random() < 0.5
            await stream.stream.write(repeat_request(id=name, final=stream.decoupled[name]))
        else:
            request = simple_request(id=name)
            stream.turns.append(name)
            if bad:
                request.inputs[0].datatype = "FP32"
                sentence = "input 'INPUT0': expected datatype INT32, got 'FP32'"
                stream.by_id[name].append((None, True, sentence))
            await stream.stream.write(request.SerializeToString())
        if bad:
            return
        async with asyncio.timeout(60):
            while len(self.core.calls) == before:
                await self.core.change()
        self.numbers[name] = len(self.core.calls)
        stream.open.append(name)

    def _say(self, stream: Modelled) -> None:
        names = [name for name in stream.open if name in stream.decoupled]
        if names:
            name, value = self.dice.choice(names), self.dice.randrange(1000)
            self.core.say(self.numbers[name], value)
            stream.by_id[name].append((value, False, ""))

    def _end(self, stream: Modelled, name: str, *, fails: bool) -> None:
        stream.open.remove(name)
        number = self.numbers[name]
        if fails:
            self.core.end(number, Reply(self.dice.choice(ERRORS), f"{name} failed"))
            stream.by_id[name].append((None, True, f"{name} failed"))
        elif name in stream.decoupled:
            self.core.end(number)
            if stream.decoupled[name]:
                stream.by_id[name].append((None, True, ""))
        else:
            self.core.end(number, completed(self.core.calls[number - 1]))
            stream.by_id[name].append((0, True, ""))

    async def _leave(self, stream: Modelled) -> None:
        stream.is_left = stream.is_closed = True
        stream.stream.cancel()
        left = {self.numbers[name] for name in stream.open}
        async with asyncio.timeout(60):
            while not left <= set(self.core.cancelled):
                await self.core.change()
        stream.open.clear()

    async def finish(self) -> None:
        """End what is open, and hold every stream to the model."""
        for stream in self.streams:
            for name in list(stream.open):
                self._end(stream, name, fails=False)
            if not stream.is_closed:
                await stream.stream.done_writing()
            async with asyncio.timeout(60):
                await stream.reading
            stream.check()
            if not stream.is_left:
                assert await stream.stream.code() == CODES.OK
        assert not self.core.open, "a request was left open in the core"


@contextlib.asynccontextmanager
async def channel_to(edge: Edge) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        yield channel


@pytest.mark.parametrize("seeds", parts(1000, 25), ids=lambda seeds: f"{len(seeds)}")
async def test_every_history_is_one_of_the_models(seeds: range) -> None:
    core = StreamingCore()
    async with serve(core, Limits()) as edge, channel_to(edge) as channel:
        for seed in seeds:
            dice = random.Random(seed)
            core.calls.clear()
            core.cancelled.clear()
            streams = [Modelled(name, open_stream(channel)) for name in "abc"[:STREAMS]]
            world = World(core, dice, streams)
            for _ in range(STEPS):
                await world.step()
            await world.finish()
            async with asyncio.timeout(60):
                await edge.server.calls.answered.wait()
        assert edge.server.streams.count == 0
