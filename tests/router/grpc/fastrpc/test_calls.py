"""Calls on their streams: refused before their message, held back, and what their client does not take."""

import asyncio

import grpc
import ngh2
import pytest
from tritonclient.grpc import service_pb2

from router.grpc.rpc import SERVICE
from router.protocol.account import Account
from serving.values.specs import Limits
from serving.values.vocabulary import MEMORY_FULL, TOO_LARGE
from tests.router.grpc.fastrpc.client import HEAD, client_of
from tests.router.rpc_edge import Core, serve, simple_request
from tests.router.rpc_wire import identity_request

CODES = grpc.StatusCode


def code(status: grpc.StatusCode) -> int:
    found: int = status.value[0]
    return found


async def test_many_calls_at_once_on_a_connection_are_answered_each_with_its_own() -> None:
    async with serve() as edge, client_of(edge) as client:
        requests = [simple_request(id=str(number)).SerializeToString() for number in range(300)]
        streams = [client.call(each) for each in requests]
        for stream in streams:
            assert await client.status(stream) == 0
        answers: dict[int, bytes] = dict.fromkeys(streams, b"")
        for event in client.seen:
            if isinstance(event, ngh2.DataReceived):
                answers[event.stream_id] += event.data
        ids = [service_pb2.ModelInferResponse.FromString(answers[each][5:]).id for each in streams]
        assert ids == [str(number) for number in range(300)]
    assert edge.server.calls.open == 0


@pytest.mark.parametrize("size", [1, 4, 5, 6, 100])
async def test_a_message_may_come_in_any_pieces(size: int) -> None:
    raw = simple_request().SerializeToString()
    framed = b"\0" + len(raw).to_bytes(4) + raw
    async with serve() as edge, client_of(edge) as client:
        stream = client.ask()
        for at in range(0, len(framed), size):
            client.http.send_data(stream, framed[at : at + size], end_stream=at + size >= len(framed))
            client.flush()
        assert await client.status(stream) == 0


@pytest.mark.parametrize(
    ("at", "instead", "status"),
    [
        (0, (b":method", b"GET"), b"405"),
        (5, (b"content-type", b"text/plain"), b"415"),
        (5, (b"content-type", b"application/grpc-web"), b"415"),
    ],
)
async def test_what_is_no_call_of_grpc_gets_a_status_of_http(
    at: int, instead: tuple[bytes, bytes], status: bytes
) -> None:
    head = (*HEAD[:at], instead, *HEAD[at + 1 :])
    async with serve() as edge, client_of(edge) as client:
        stream = client.ask(head=head)
        await client.until(lambda: bool(client.trailers(stream)))
        assert client.trailers(stream)[b":status"] == status
        assert await client.status(client.call(simple_request().SerializeToString())) == 0


async def test_a_prefix_that_says_too_much_ends_the_call_before_its_message() -> None:
    async with serve(limits=Limits(body_bytes=10_000)) as edge, client_of(edge) as client:
        stream = client.ask()
        client.http.send_data(stream, b"\0" + (10_001).to_bytes(4) + b"\x0a\x06simple")
        assert await client.status(stream) == code(CODES.RESOURCE_EXHAUSTED)
        assert b"10001 vs. 10000" in client.trailers(stream)[b"grpc-message"]
        assert edge.core.turned_away == [("simple", TOO_LARGE, "default")]
        await client.until(lambda: any(isinstance(each, ngh2.StreamReset) for each in client.seen))
        (reset,) = [each for each in client.seen if isinstance(each, ngh2.StreamReset)]
        assert reset.error_code == ngh2.ErrorCode.NO_ERROR  # what is left of it need not come


async def test_a_prefix_that_is_none_is_internal() -> None:
    async with serve() as edge, client_of(edge) as client:
        stream = client.ask()
        client.http.send_data(stream, b"\7\0\0\0\1x", end_stream=True)
        assert await client.status(stream) == code(CODES.INTERNAL)


async def test_without_memory_a_large_message_is_refused_at_its_beginning() -> None:
    limits = Limits(held_bytes=1_000_000)
    async with serve(limits=limits) as edge, client_of(edge) as client:
        account = Account(limits)
        account.count("others", lambda: 950_000)
        edge.server.count(account)
        stream = client.ask()
        raw = identity_request(500_000)
        client.http.send_data(stream, b"\0" + len(raw).to_bytes(4) + raw[:4_000])
        assert await client.status(stream) == code(CODES.RESOURCE_EXHAUSTED)
        assert client.trailers(stream)[b"x-penstock-reason"] == b"memory_full"
        assert edge.core.turned_away == [("identity", MEMORY_FULL, "default")]


async def test_an_upload_counts_as_it_comes_and_waits_while_others_hold_too_much() -> None:
    limits, others = Limits(held_bytes=1_000_000), [641_000]
    async with serve(limits=limits) as edge, client_of(edge) as client:
        account = Account(limits)
        account.count("others", lambda: others[0])
        edge.server.count(account)
        client.taking = True
        first, second = (client.ask() for _ in range(2))
        raw = identity_request(200_000)
        framed = b"\0" + len(raw).to_bytes(4) + raw
        for stream in (first, second):
            client.http.send_data(stream, framed[:80_000])
        await client.until(lambda: account.paused_count == 1)  # the last that grows goes on
        assert account.by_kind()["uploads"] == 160_000
        client.http.send_data(second, framed[80_000:], end_stream=True)
        assert await client.status(second) == 0
        others[0] = 0
        account.look()
        client.http.send_data(first, framed[80_000:], end_stream=True)
        assert await client.status(first) == 0
        assert account.by_kind()["uploads"] == 0


async def test_an_answer_that_is_not_taken_counts_and_its_clients_uploads_wait() -> None:
    limits = Limits(write_buffer_bytes=100_000)
    async with serve(limits=limits) as edge, client_of(edge) as client:
        account = Account(limits)
        edge.server.count(account)
        first = client.call(identity_request(240_000))
        await client.until(lambda: account.by_kind()["answers"] > 0)
        held = account.by_kind()["answers"]
        assert 240_000 - 65_535 <= held < 241_000  # HTTP/2's first window has been sent
        second = client.call(identity_request(1_500_000))
        await client.until(lambda: client.http.stream_remote_window_size(second) == 0)  # it stays closed
        assert len(edge.core.calls) == 1
        taken = sum(len(each.data) for each in client.seen if isinstance(each, ngh2.DataReceived))
        client.http.acknowledge_received_data(taken, first)
        client.taking = True
        assert await client.status(first) == 0
        await client.until(lambda: len(edge.core.calls) == 2)
        client.http.reset_stream(second)
        client.flush()
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()
        assert account.held_bytes == 0


async def test_a_client_that_takes_no_answer_is_given_up_in_time() -> None:
    async with serve(limits=Limits(slow_client_s=0.2)) as edge, client_of(edge) as client:
        stream = client.call(identity_request(200_000))
        await client.until(lambda: any(isinstance(each, ngh2.StreamReset) for each in client.seen))
        assert client.trailers(stream) == {}
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()


async def test_many_answers_that_are_not_taken_end_at_the_account() -> None:
    limits = Limits(held_bytes=2_000_000)
    async with serve(limits=limits) as edge, client_of(edge) as client:
        account = Account(limits)
        edge.server.count(account)
        for _ in range(40):
            client.call(identity_request(60_000))
        await client.closed()
        assert account.given_up == 1
        assert account.held_bytes == 0


async def test_a_reset_frees_the_call_in_the_core() -> None:
    async with serve(Core(lambda call: None)) as edge, client_of(edge) as client:
        stream = client.call(simple_request().SerializeToString())
        client.flush()
        await edge.core.change()
        client.http.reset_stream(stream)
        client.flush()
        await edge.core.change()
        assert edge.core.cancelled == [1]
        assert edge.server.calls.open == 0


async def test_a_reset_in_the_same_read_as_its_call_harms_no_other() -> None:
    async with serve() as edge, client_of(edge) as client:
        raw = simple_request().SerializeToString()
        streams = [client.call(raw) for _ in range(10)]
        client.writer.write(client.http.data_to_send())
        for stream in streams[::2]:
            client.http.reset_stream(stream)
        for stream in streams[1::2]:
            assert await client.status(stream) == 0
        assert edge.server.calls.open == 0


async def test_a_client_that_leaves_its_stream_open_is_answered_all_the_same() -> None:
    async with serve(limits=Limits(slow_client_s=0.2)) as edge, client_of(edge) as client:
        stream = client.ask()
        client.say(stream, simple_request().SerializeToString(), end=False)
        assert await client.status(stream) == 0
        await client.until(lambda: any(isinstance(each, ngh2.StreamClosed) for each in client.seen))
        assert edge.server.calls.open == 0


async def test_a_small_method_ends_at_its_deadline() -> None:
    async with serve() as edge, client_of(edge) as client:
        head = (*HEAD[:2], (b":path", f"/{SERVICE}/ModelReady".encode()), *HEAD[3:])
        stream = client.ask((b"grpc-timeout", b"20m"), head=head)  # whose message never comes
        assert await client.status(stream) == code(CODES.DEADLINE_EXCEEDED)
        assert client.trailers(stream)[b"grpc-message"] == b"Deadline Exceeded"


async def test_the_deadline_counts_from_the_head() -> None:
    async with serve() as edge, client_of(edge) as client:
        assert (
            await client.status(client.call(simple_request().SerializeToString(), (b"grpc-timeout", b"5S")))
            == 0
        )
        (call,) = edge.core.calls
    assert call.timeout_us is not None
    assert 4_000_000 < call.timeout_us <= 5_000_000


async def test_metadata_over_the_limit_ends_its_call_and_far_over_it_the_connection() -> None:
    async with serve(limits=Limits(header_bytes=4096)) as edge, client_of(edge) as client:
        raw = simple_request().SerializeToString()
        over = client.call(raw, (b"x-long", b"y" * 5_000))
        assert await client.status(over) == code(CODES.RESOURCE_EXHAUSTED)
        assert b"limits.header_kb" in client.trailers(over)[b"grpc-message"]
        many = client.call(raw, *[(b"x-%d" % number, b"") for number in range(130)])
        assert await client.status(many) == code(CODES.RESOURCE_EXHAUSTED)
        assert await client.status(client.call(raw)) == 0
        for _ in range(20):
            client.call(raw, *[(b"x-%d" % number, b"y" * 4_000) for number in range(15)])
        client.call(raw, *[(b"x-more-%d" % number, b"") for number in range(500)])
        await client.closed()
