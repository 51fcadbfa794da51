"""ModelStreamInfer on both servers, against tritonclient and plain grpc: order, errors, ends, bounds."""

import asyncio
import contextlib
import gzip
import queue
from collections.abc import AsyncIterator
from typing import Any  # grpc's clients and messages carry no types

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from router.grpc.rpc import SERVICE
from router.protocol.account import Account
from serving.ports import Call, Reply
from serving.values.specs import Limits
from serving.values.vocabulary import BAD_INPUT, DEADLINE_QUEUED, MODEL_ERROR, QUEUE_FULL, UNKNOWN_MODEL
from tests.router.rpc_edge import Core, completed, error_of, refused, serve, simple_inputs, simple_request
from tests.router.rpc_wire import identity_request

pytestmark = pytest.mark.usefixtures("both_servers")

STREAM = f"/{SERVICE}/ModelStreamInfer"
CODES = grpc.StatusCode


def open_stream(channel: Any, **options: Any) -> Any:
    """A stream with requests as bytes."""
    return channel.stream_stream(STREAM, None, service_pb2.ModelStreamInferResponse.FromString)(**options)


async def ask(stream: Any, *ids: str, **fields: Any) -> None:
    for each in ids:
        await stream.write(simple_request(id=each, **fields).SerializeToString())


async def rest(stream: Any) -> list[Any]:
    """What still comes, to the end."""
    found = []
    while (answer := await stream.read()) is not grpc.aio.EOF:
        found.append(answer)
    return found


def ids(answers: list[Any]) -> list[str]:
    return [each.infer_response.id for each in answers]


@contextlib.asynccontextmanager
async def streaming(
    core: Core | None = None, limits: Limits | None = None, **options: Any
) -> AsyncIterator[tuple[Any, Any]]:
    """A running server, and a stream on it."""
    async with serve(core, limits) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        yield edge, open_stream(channel, **options)


async def until(core: Core, count: int) -> None:
    """Until the core has got so many calls."""
    while len(core.calls) < count:
        await core.change()


async def test_the_blocking_triton_client_streams_in_order() -> None:
    def talk(address: str) -> list[Any]:
        came: queue.Queue[Any] = queue.Queue()
        with triton.InferenceServerClient(address) as client:
            client.start_stream(lambda result, error: came.put((result, error)))
            for number in range(20):
                client.async_stream_infer("simple", simple_inputs(triton), request_id=str(number))
            client.stop_stream()  # waits for what was asked
        return [came.get_nowait() for _ in range(20)]

    async with serve() as edge:
        found = await asyncio.to_thread(talk, edge.address)
    assert [error for _, error in found] == [None] * 20
    assert [result.get_response().id for result, _ in found] == [str(number) for number in range(20)]
    np.testing.assert_array_equal(found[7][0].as_numpy("OUTPUT0"), np.arange(16)[None] + 1)


async def test_the_asyncio_triton_client_streams_and_a_bad_request_ends_nothing() -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for name in ("simple", "nothing", "simple"):
            yield {"model_name": name, "inputs": simple_inputs(triton_aio), "request_id": name}

    async with serve() as edge, triton_aio.InferenceServerClient(edge.address) as client:
        found = [each async for each in client.stream_infer(requests())]
    assert [result is None for result, _ in found] == [False, True, False]
    error = found[1][1]
    assert isinstance(error, InferenceServerException)
    assert "Request for unknown model: 'nothing' is not found" in str(error)
    assert edge.core.turned_away == [("nothing", UNKNOWN_MODEL, "default")]


async def test_answers_come_in_the_order_of_their_requests_and_say_that_they_are_the_last() -> None:
    core = Core(lambda call: None)
    async with streaming(core) as (_, stream):
        await ask(stream, "a", "b", "c")
        await until(core, 3)
        for number in (3, 1, 2):
            core.open.pop(number)(completed(core.calls[number - 1]))
        await stream.done_writing()
        answers = await rest(stream)
        assert await stream.code() == CODES.OK
    assert ids(answers) == ["a", "b", "c"]
    assert all(each.infer_response.parameters["triton_final_response"].bool_param for each in answers)


async def test_an_error_is_the_answer_of_its_request_and_names_it() -> None:
    def answer(call: Call) -> Reply:
        return Reply(MODEL_ERROR, "the model said no") if call.rows == 2 else completed(call)

    async with streaming(Core(answer)) as (edge, stream):
        await ask(stream, "good")
        two = simple_request(id="two")
        for place, tensor in enumerate(two.inputs):
            tensor.shape[0] = 2
            two.raw_input_contents[place] = bytes(128)
        await stream.write(two.SerializeToString())
        await stream.write(b"\xff\xff")
        bad = simple_request(id="short")
        bad.raw_input_contents[0] = b"1234"
        await stream.write(bad.SerializeToString())
        await ask(stream, "last")
        await stream.done_writing()
        answers = await rest(stream)
        assert await stream.code() == CODES.OK
    assert ids(answers) == ["good", "two", "", "short", "last"]
    told = [each.error_message for each in answers]
    assert (told[0], told[1], told[4]) == ("", "the model said no", "")
    assert "is no ModelInferRequest" in told[2]
    assert "INPUT0" in told[3]
    assert answers[1].infer_response.model_name == "simple"
    assert edge.core.turned_away == [("", BAD_INPUT, "default"), ("simple", BAD_INPUT, "default")]
    assert edge.server.calls.open == 0


async def test_with_triton_grpc_error_the_first_error_is_the_streams_status() -> None:
    core = Core(lambda call: None)
    async with streaming(core, metadata=(("triton_grpc_error", "true"),)) as (_, stream):
        await ask(stream, "a", "b")
        await until(core, 2)
        core.open.pop(2)(refused(QUEUE_FULL, retry_us=2_000_000))
        code, _ = await error_of(stream.read())
        fields = dict(await stream.trailing_metadata())
        await core.change()
    assert (code, core.cancelled) == (CODES.RESOURCE_EXHAUSTED, [1])
    assert (fields["x-penstock-reason"], fields["retry-pushback-ms"]) == ("queue_full", "2000")


async def test_a_half_closed_stream_gets_what_is_still_computed() -> None:
    core = Core(lambda call: None)
    async with streaming(core) as (_, stream):
        await ask(stream, "a")
        await stream.done_writing()
        await until(core, 1)
        core.open.pop(1)(completed(core.calls[0]))
        assert ids(await rest(stream)) == ["a"]
        assert await stream.code() == CODES.OK


async def test_a_stream_without_requests_ends_well() -> None:
    async with streaming() as (_, stream):
        await stream.done_writing()
        assert await rest(stream) == []
        assert await stream.code() == CODES.OK


async def test_a_cancelled_stream_cancels_its_requests() -> None:
    core = Core(lambda call: None)
    async with streaming(core) as (edge, stream):
        await ask(stream, "a", "b")
        await until(core, 2)
        stream.cancel()
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()
    assert sorted(core.cancelled) == [1, 2]


async def test_stop_stream_with_cancel_requests_frees_the_work() -> None:
    core = Core(lambda call: None)
    came: queue.Queue[Any] = queue.Queue()
    async with serve(core) as edge:
        client = triton.InferenceServerClient(edge.address)
        client.start_stream(lambda result, error: came.put((result, error)))
        client.async_stream_infer("simple", simple_inputs(triton))
        await until(core, 1)
        await asyncio.to_thread(client.stop_stream, cancel_requests=True)
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()
        client.close()
    result, error = came.get_nowait()
    assert (result, error.status()) == (None, "StatusCode.CANCELLED")
    assert core.cancelled == [1]


async def test_the_deadline_of_a_stream_ends_it_and_is_that_of_its_requests() -> None:
    core = Core(lambda call: None)
    async with streaming(core, timeout=0.3) as (edge, stream):
        await ask(stream, "a")
        assert (await error_of(stream.read()))[0] == CODES.DEADLINE_EXCEEDED
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()
        timeout_us = core.calls[0].timeout_us
        assert timeout_us is not None
        assert timeout_us <= 301_000  # grpcio tells what is left by a coarse clock


async def test_a_request_has_its_own_timeout() -> None:
    async with streaming(Core(lambda call: refused(DEADLINE_QUEUED))) as (edge, stream):
        request = simple_request(id="a")
        request.parameters["timeout"].int64_param = 5000
        await stream.write(request.SerializeToString())
        (answer,) = [await stream.read()]
        assert "Deadline Exceeded" in answer.error_message
        assert edge.core.calls[0].timeout_us == 5000


async def test_a_draining_gateway_answers_what_it_has_and_ends_the_stream() -> None:
    core = Core(lambda call: None)
    async with streaming(core) as (edge, stream):
        await ask(stream, "a")
        await until(core, 1)
        stopping = asyncio.ensure_future(edge.server.stop(60))
        async with asyncio.timeout(60):
            await edge.server.calls.stopping.wait()
        core.open.pop(1)(completed(core.calls[0]))
        assert ids([await stream.read()]) == ["a"]
        code, sentence = await error_of(stream.read())
        assert (code, sentence) == (CODES.UNAVAILABLE, "the gateway is shutting down")
        await stopping


async def test_no_more_requests_are_read_than_may_be_under_way() -> None:
    core = Core(lambda call: None)
    async with streaming(core, Limits(infer_stream_requests=2)) as (_, stream):
        await ask(stream, "a", "b", "c", "d")
        await stream.done_writing()
        await until(core, 2)
        core.open.pop(2)(completed(core.calls[1]))  # it waits for its turn: still under way
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(core.calls) == 2
        core.open.pop(1)(completed(core.calls[0]))
        await until(core, 4)
        for number in (3, 4):
            core.open.pop(number)(completed(core.calls[number - 1]))
        assert ids(await rest(stream)) == ["a", "b", "c", "d"]


@pytest.mark.slow
async def test_a_client_that_takes_no_answers_is_not_read_on() -> None:
    limits = Limits(infer_stream_bytes=100_000)
    options = (("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0))
    raw, count = identity_request(50_000), 200
    async with serve(limits=limits) as edge, grpc.aio.insecure_channel(edge.address, options) as channel:
        account = Account(limits)
        edge.server.count(account)
        stream = open_stream(channel)

        async def send() -> None:
            for _ in range(count):
                await stream.write(raw)
            await stream.done_writing()

        sending = asyncio.ensure_future(send())
        seen, still = 0, 0
        while still < 50:  # until nothing moves any more
            await asyncio.sleep(0.01)
            still = still + 1 if len(edge.core.calls) == seen else 0
            seen = len(edge.core.calls)
        assert seen < count // 2
        assert account.held_bytes < 3_000_000
        answers = await rest(stream)
        await sending
        assert len(answers) == count
        assert await stream.code() == CODES.OK
    assert account.held_bytes == 0


async def test_a_client_that_takes_nothing_for_too_long_loses_its_stream() -> None:
    limits = Limits(slow_client_s=0.3, infer_stream_bytes=100_000)
    options = (("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0))
    async with serve(limits=limits) as edge, grpc.aio.insecure_channel(edge.address, options) as channel:
        stream = open_stream(channel)

        async def send() -> None:
            for _ in range(4):
                await stream.write(identity_request(500_000))

        sending = asyncio.ensure_future(send())
        async with asyncio.timeout(60):
            await until(edge.core, 1)
            while edge.server.streams.count:  # noqa: ASYNC110  # until it was given up
                await asyncio.sleep(0.01)
        sending.cancel()
        stream.cancel()


async def test_streams_over_the_count_are_refused() -> None:
    limits = Limits(infer_stream_count=1)
    async with serve(limits=limits) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        first = open_stream(channel)
        await ask(first, "a")
        assert ids([await first.read()]) == ["a"]
        code, sentence = await error_of(open_stream(channel).read())
        assert code == CODES.RESOURCE_EXHAUSTED
        assert "limits.infer_stream_count" in sentence
        assert edge.core.turned_away == [("", QUEUE_FULL, "default")]
        await first.done_writing()
        assert await first.code() == CODES.OK
        second = open_stream(channel)
        await ask(second, "b")
        assert ids([await second.read()]) == ["b"]


async def test_a_compressed_request_is_read_and_keeps_its_place() -> None:
    async with streaming() as (_, stream):
        await ask(stream, "a")
        await stream.write(gzip.compress(simple_request(id="b").SerializeToString()))
        await ask(stream, "c")
        await stream.done_writing()
        assert ids(await rest(stream)) == ["a", "b", "c"]


async def test_without_memory_a_large_request_gets_its_error_and_small_ones_are_answered() -> None:
    limits = Limits(held_bytes=1_000_000)
    async with serve(limits=limits) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        account = Account(limits)
        account.count("others", lambda: 900_000)
        edge.server.count(account)
        stream = open_stream(channel)
        await stream.write(identity_request(70_000))
        await ask(stream, "small")
        large, small = await stream.read(), await stream.read()
        assert "limits.held_mb" in large.error_message
        assert (small.error_message, small.infer_response.id) == ("", "small")


async def test_a_bug_in_the_core_is_an_error_of_one_request() -> None:
    def answer(call: Call) -> Reply:
        if len(call.inputs) == 1:
            raise ZeroDivisionError("a bug")
        return completed(call)

    async with streaming(Core(answer)) as (_, stream):
        await stream.write(identity_request(4))
        await ask(stream, "good")
        first, second = await stream.read(), await stream.read()
    assert first.error_message == "internal error of the gateway; its log has the cause"
    assert second.infer_response.id == "good"
