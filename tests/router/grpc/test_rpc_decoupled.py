"""Decoupled models over ModelStreamInfer: any number of answers, their end, and what bounds them."""

import asyncio

import grpc
import pytest
from tritonclient.grpc import service_pb2

from serving.ports import Reply
from serving.values.specs import Limits
from serving.values.vocabulary import BAD_INPUT, WORKER_LOST
from tests.router.decoupled import StreamingCore, is_final, repeat_request, value_of
from tests.router.grpc.test_rpc_streams import CODES, ask, ids, open_stream, rest, streaming, until
from tests.router.rpc_edge import completed, error_of, raw_infer, serve

pytestmark = pytest.mark.usefixtures("both_servers")


async def test_answers_come_as_the_model_gives_them_and_the_end_only_on_request() -> None:
    core = StreamingCore()
    async with streaming(core) as (_, stream):
        await stream.write(repeat_request(id="silent"))
        await stream.write(repeat_request(id="told", final=True))
        await stream.done_writing()
        await until(core, 2)
        core.say(2, 7)
        assert value_of(await stream.read()) == 7
        core.say(1, 1, 2)
        core.end(1)
        core.say(2, 8)
        core.end(2)
        answers = await rest(stream)
        assert await stream.code() == CODES.OK
    assert ids(answers) == ["silent", "silent", "told", "told"]
    assert [is_final(each) for each in answers] == [False, False, False, True]
    assert [value_of(each) for each in answers[:3]] == [1, 2, 8]
    assert answers[3].infer_response.model_name == "repeat"
    assert not answers[3].infer_response.outputs


async def test_a_request_may_have_no_answers() -> None:
    core = StreamingCore()
    async with streaming(core) as (_, stream):
        await stream.write(repeat_request())
        await stream.write(repeat_request(final=True, id="told"))
        await stream.done_writing()
        await until(core, 2)
        core.end(1)
        core.end(2)
        answers = await rest(stream)
    assert [(each.infer_response.id, is_final(each)) for each in answers] == [("told", True)]


async def test_an_error_in_the_middle_ends_one_request_and_no_other() -> None:
    core = StreamingCore()
    async with streaming(core) as (_, stream):
        await stream.write(repeat_request(id="lost"))
        await ask(stream, "plain")
        await stream.done_writing()
        await until(core, 2)
        core.say(1, 5)
        core.end(1, Reply(WORKER_LOST, "the worker was killed"))
        core.end(2, completed(core.calls[1]))
        answers = await rest(stream)
        assert await stream.code() == CODES.OK
    assert ids(answers) == ["lost", "lost", "plain"]
    assert [each.error_message for each in answers] == ["", "the worker was killed", ""]


async def test_a_decoupled_request_holds_up_no_answer_behind_it() -> None:
    core = StreamingCore()
    async with streaming(core) as (_, stream):
        await stream.write(repeat_request(id="long"))
        await ask(stream, "short")
        await until(core, 2)
        core.end(2, completed(core.calls[1]))
        assert ids([await stream.read()]) == ["short"]
        core.end(1)


async def test_a_client_that_leaves_cancels_the_model_that_still_answers() -> None:
    core = StreamingCore()
    async with streaming(core) as (edge, stream):
        await stream.write(repeat_request())
        await until(core, 1)
        core.say(1, 1)
        assert value_of(await stream.read()) == 1
        stream.cancel()
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()
    assert core.cancelled == [1]


async def test_answers_that_nobody_takes_end_their_request_within_the_bound() -> None:
    core, limits = StreamingCore(), Limits(infer_stream_bytes=10_000)
    async with serve(core, limits) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        stream = open_stream(channel)
        await stream.write(repeat_request(id="fast"))
        await stream.write(repeat_request(id="calm"))
        await stream.done_writing()
        await until(core, 2)
        core.say(1, *range(1000))  # in one turn of the loop: none can be taken
        assert core.cancelled == [1]
        core.end(2)
        answers = await rest(stream)
        assert await stream.code() == CODES.OK
    assert "limits.infer_stream_mb" in answers[-1].error_message
    assert [value_of(each) for each in answers[:-1]] == list(range(len(answers) - 1))
    assert 100 < len(answers) < 300


async def test_model_infer_of_a_decoupled_model_is_refused_in_tritons_words() -> None:
    core = StreamingCore()
    async with serve(core) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        code, sentence = await error_of(raw_infer(channel)(repeat_request()))
    assert code == CODES.INVALID_ARGUMENT
    assert "ModelInfer RPC doesn't support models with decoupled transaction policy" in sentence
    assert core.turned_away == [("repeat", BAD_INPUT, "default")]


async def test_a_request_of_several_rows_is_refused_by_name() -> None:
    core = StreamingCore()
    async with streaming(core) as (_, stream):
        request = service_pb2.ModelInferRequest(model_name="repeat", id="two")
        request.inputs.add(name="IN", datatype="INT32", shape=[2, 1]).contents.int_contents.extend((1, 2))
        await stream.write(request.SerializeToString())
        answer = await stream.read()
    assert answer.infer_response.id == "two"
    assert "has one row, got 2" in answer.error_message
