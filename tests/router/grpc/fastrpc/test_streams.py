"""ModelStreamInfer as bytes on libnghttp2: pieces of messages, their time, their end, and closed windows."""

import asyncio
from typing import Any

import ngh2
import pytest
from tritonclient.grpc import service_pb2

from router.protocol.account import Account
from serving.values.specs import Limits
from tests.router.grpc.fastrpc.client import HEAD, Client, client_of
from tests.router.grpc.fastrpc.test_calls import CODES, code
from tests.router.grpc.test_rpc_streams import STREAM, until
from tests.router.rpc_edge import Core, completed, serve, simple_request
from tests.router.rpc_wire import identity_request

STREAM_HEAD = tuple((name, STREAM.encode() if name == b":path" else value) for name, value in HEAD)


def framed(*messages: bytes) -> bytes:
    return b"".join(b"\0" + len(each).to_bytes(4) + each for each in messages)


def named(*names: str) -> list[bytes]:
    return [simple_request(id=name).SerializeToString() for name in names]


def answers(client: Client, stream: int) -> list[Any]:
    """The whole answers that came on a stream."""
    data = b"".join(
        each.data for each in client.seen if isinstance(each, ngh2.DataReceived) and each.stream_id == stream
    )
    found = []
    while len(data) >= 5 and len(data) >= 5 + int.from_bytes(data[1:5]):
        end = 5 + int.from_bytes(data[1:5])
        found.append(service_pb2.ModelStreamInferResponse.FromString(data[5:end]))
        data = data[end:]
    return found


def ids(client: Client, stream: int) -> list[str]:
    return [each.infer_response.id for each in answers(client, stream)]


@pytest.mark.parametrize("size", [1, 5, 6, 100, 100_000])
async def test_messages_may_come_in_any_pieces(size: int) -> None:
    names = [str(number) for number in range(20)]
    data = framed(*named(*names))
    async with serve() as edge, client_of(edge) as client:
        stream = client.ask(head=STREAM_HEAD)
        for at in range(0, len(data), size):
            client.http.send_data(stream, data[at : at + size], end_stream=at + size >= len(data))
            client.flush()
        assert await client.status(stream) == 0
        assert ids(client, stream) == names
    assert edge.server.calls.open == 0


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\0\0\0\0\5abc", CODES.INVALID_ARGUMENT),
        (b"\0\0", CODES.INVALID_ARGUMENT),
        (b"\7\0\0\0\0", CODES.INTERNAL),
        (b"\0\0\0\xff\xff", CODES.RESOURCE_EXHAUSTED),
    ],
    ids=["cut off", "cut off in its prefix", "no prefix", "too large"],
)
async def test_what_is_no_message_ends_the_stream_and_what_it_had(data: bytes, status: Any) -> None:
    core = Core(lambda call: None)
    async with serve(core, Limits(body_bytes=10_000)) as edge, client_of(edge) as client:
        stream = client.ask(head=STREAM_HEAD)
        client.http.send_data(stream, framed(*named("a")) + data, end_stream=True)
        assert await client.status(stream) == code(status)
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()
    assert core.cancelled == ([1] if core.calls else [])


async def test_a_message_has_its_time_but_a_stream_may_be_idle() -> None:
    async with serve(limits=Limits(slow_client_s=0.4)) as edge, client_of(edge) as client:
        idle, half = client.ask(head=STREAM_HEAD), client.ask(head=STREAM_HEAD)
        client.http.send_data(idle, framed(*named("a")))
        client.http.send_data(half, framed(*named("b"))[:-1])
        assert await client.status(half) == code(CODES.DEADLINE_EXCEEDED)
        assert b"limits.slow_client_s" in client.trailers(half)[b"grpc-message"]
        client.http.send_data(idle, framed(*named("c")), end_stream=True)
        assert await client.status(idle) == 0
        assert ids(client, idle) == ["a", "c"]


async def test_what_is_not_read_stays_with_the_client() -> None:
    core, raw = Core(lambda call: None), identity_request(20_000)
    async with serve(core, Limits(infer_stream_requests=1)) as edge, client_of(edge) as client:
        account = Account(edge.server.limits)
        edge.server.count(account)
        await client.until(lambda: any(isinstance(each, ngh2.SettingsReceived) for each in client.seen))
        stream = client.ask(head=STREAM_HEAD)
        client.http.send_data(stream, framed(*[raw] * 60), end_stream=True)
        client.flush()
        assert client.http.stream_remote_window_size(stream) == 0
        async with asyncio.timeout(60):
            while account.by_kind()["uploads"] < 200_000:  # noqa: ASYNC110  # until all of it is there
                await asyncio.sleep(0)
        assert account.by_kind()["uploads"] <= 262_144
        await until(core, 1)
        other = client.call(simple_request().SerializeToString())  # others go on
        client.flush()
        await until(core, 2)
        core.open.pop(2)(completed(core.calls[1]))
        assert await client.status(other) == 0
        core.answer = completed
        core.open.pop(1)(completed(core.calls[0]))
        client.taking = True
        for each in client.seen:
            if isinstance(each, ngh2.DataReceived):
                client.http.acknowledge_received_data(len(each.data), each.stream_id)
        assert await client.status(stream) == 0
        assert len(answers(client, stream)) == 60
        assert account.by_kind()["uploads"] == 0


async def test_an_empty_message_is_a_bad_request_and_no_more() -> None:
    async with serve() as edge, client_of(edge) as client:
        stream = client.ask(head=STREAM_HEAD)
        client.http.send_data(stream, framed(b"", *named("a")), end_stream=True)
        assert await client.status(stream) == 0
        first, second = answers(client, stream)
        assert "unknown model" in first.error_message
        assert second.infer_response.id == "a"
