"""REST over HTTP/2, on the port of REST and on gRPC's: the answers are those over HTTP/1.1."""

import asyncio
import gzip
import json
from typing import Any  # ASGI's arguments are of any kind

import grpc
import ngh2
import pytest

from loadtests.hostile import h2wire
from router.security.auth.guard import KeyGuard
from router.security.auth.keys import KeyFile
from serving.values.specs import Limits
from serving.values.vocabulary import TOO_LARGE
from tests.router.grpc.fastrpc.client import Client
from tests.router.grpc.fastrpc.rest_edge import (
    Asked,
    answer,
    begin,
    edges,
    http2,
    over_http1,
    over_http2,
    said,
)
from tests.router.http.fastpath.wire import SIMPLE_INFER, body_of
from tests.router.rpc_edge import INFER, raw_infer, simple_request

RAW = simple_request().SerializeToString()
BODY = body_of(4)
LONG = (("x-long", "y" * 20_000),)
GRPC = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", INFER.encode()),
    (b":authority", b"test"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)

QUESTIONS = {
    "inference": Asked("POST", SIMPLE_INFER, BODY, (("x-request-id", "7"),)),
    "inference with a query": Asked("POST", SIMPLE_INFER + "?a=b", BODY),
    "an escaped path": Asked("POST", "/v2/models/s%69mple/versions/1/infer", BODY),
    "no JSON": Asked("POST", SIMPLE_INFER, b"{"),
    "no body": Asked("POST", SIMPLE_INFER),
    "packed": Asked("POST", SIMPLE_INFER, gzip.compress(BODY, mtime=0), (("content-encoding", "gzip"),)),
    "an unknown model": Asked("POST", "/v2/models/nobody/infer", BODY),
    "metadata": Asked("GET", "/v2/models/simple"),
    "a wrong method": Asked("DELETE", SIMPLE_INFER),
    "a head alone": Asked("HEAD", "/livez"),
    "a path that is none": Asked("GET", "/nothing?x=1"),
    "statistics": Asked("GET", "/v2/models/stats"),
    "the document": Asked("GET", "/openapi.json"),
    "too long a head": Asked("POST", SIMPLE_INFER, BODY, LONG),
    "too long a head for the application": Asked("GET", "/v2", b"", LONG),
    "too many fields": Asked("GET", "/v2", b"", tuple((f"x-{n}", "") for n in range(130))),
    "too large a body": Asked("POST", SIMPLE_INFER, bytes(20_001)),
    "too large a body for the application": Asked("POST", "/v2/models/nobody/infer", bytes(20_001)),
    "a bug in the core": Asked("POST", "/v2/models/crash/infer", b"{}"),
}
SMALL = Limits(body_bytes=20_000, header_bytes=16_000)


BOTH_WAYS = pytest.mark.parametrize("direct", [True, False], ids=["fast path", "ASGI"])
UNSIZED = tuple(
    (name.encode(), value.encode())
    for name, value in (
        (":method", "POST"), (":scheme", "http"), (":path", SIMPLE_INFER), (":authority", "a")
    )
)  # fmt: skip


@BOTH_WAYS
@pytest.mark.parametrize("name", QUESTIONS)
async def test_each_question_gets_the_same_answer_over_both_versions_on_both_ports(
    name: str, direct: bool
) -> None:
    asked = QUESTIONS[name]
    async with edges(SMALL, direct=direct) as found:
        first = await over_http1(found.ports[0], asked)
        for port in found.ports:
            second = await over_http2(port, asked)
            assert said(second) == said(first)
            assert second.fields["date"]
        assert said(await over_http1(found.ports[0], asked)) == said(first)


async def test_rest_and_grpc_share_a_connection() -> None:
    async with edges() as found:
        for port in found.ports:
            async with http2(port) as client:
                streams = [begin(client, Asked("POST", SIMPLE_INFER, body_of(n))) for n in range(20)]
                call = client.http.send_request(GRPC)
                client.say(call, RAW)
                streams += [begin(client, Asked("GET", "/v2/models")) for _ in range(20)]
                for number, stream in enumerate(streams[:20]):
                    whole = await answer(client, stream)
                    assert json.loads(whole.body)["outputs"][0]["data"][0] == number + 1
                assert await client.status(call) == 0
                for stream in streams[20:]:
                    assert (await answer(client, stream)).status == 200


async def test_grpcs_own_client_calls_at_the_port_of_rest() -> None:
    async with edges() as found:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{found.ports[0]}") as channel:
            assert (await raw_infer(channel)(RAW, timeout=60)).model_name == "simple"
        assert (await over_http1(found.ports[0], QUESTIONS["metadata"])).status == 200


@pytest.mark.parametrize("size", [1, 3, 23, 24, 25])
async def test_the_preface_may_come_in_any_pieces(size: int) -> None:
    sent = h2wire.start() + h2wire.call(1, INFER.encode()) + h2wire.message(1, RAW)
    async with edges() as found:
        reader, writer = await asyncio.open_connection("127.0.0.1", found.ports[0])
        for at in range(0, len(sent), size):
            writer.write(sent[at : at + size])
            await asyncio.sleep(0)
        received = b""
        async with asyncio.timeout(60):
            while h2wire.status(received, 1) is None:
                received += await reader.read(65536)
        assert h2wire.status(received, 1) == 0
        writer.close()


@pytest.mark.parametrize("sent", [b"PRI * HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"PRI"])
async def test_what_is_no_preface_is_refused_as_http1(sent: bytes) -> None:
    async with edges() as found:
        reader, writer = await asyncio.open_connection("127.0.0.1", found.ports[0])
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(60):
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()


async def test_a_put_that_begins_as_the_preface_does_is_http1() -> None:
    async with edges() as found:
        reader, writer = await asyncio.open_connection("127.0.0.1", found.ports[0])
        for piece in (b"P", b"UT /v2 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"):
            writer.write(piece)
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert (await reader.read()).startswith(b"HTTP/1.1 405 ")
        writer.close()


@BOTH_WAYS
async def test_a_body_of_unknown_length_ends_at_the_limit(direct: bool) -> None:
    async with edges(SMALL, direct=direct) as found, http2(found.ports[0]) as client:
        stream = client.http.send_request(UNSIZED)
        client.http.send_data(stream, bytes(20_001))
        whole = await answer(client, stream)
        assert whole.status == 413
        assert "limits.body_mb" in whole.error
        await client.until(lambda: any(isinstance(each, ngh2.StreamReset) for each in client.seen))
        assert (await answer(client, begin(client, QUESTIONS["inference"]))).status == 200
        assert [each[1] for each in found.serving.turned_away] == [TOO_LARGE] * direct


@BOTH_WAYS
async def test_a_client_that_waits_is_told_to_continue(direct: bool) -> None:
    async with edges(direct=direct) as found, http2(found.ports[1]) as client:
        stream = client.http.send_request((*UNSIZED, (b"expect", b"100-continue")))
        await client.until(
            lambda: any(isinstance(e, ngh2.InformationalResponseReceived) for e in client.seen)
        )
        client.http.send_data(stream, BODY, end_stream=True)
        assert (await answer(client, stream)).status == 200


async def test_a_reset_cancels_its_request_in_the_core() -> None:
    async with edges() as found, http2(found.ports[0]) as client:
        found.serving.held = True
        stream = begin(client, QUESTIONS["inference"])
        other = begin(client, QUESTIONS["inference"])
        await _handled(client)
        assert len(found.serving.calls) == 2
        client.http.reset_stream(stream)
        await _handled(client)
        found.serving.release()
        assert (await answer(client, other)).status == 200
        assert len(found.serving.cancelled) == 1


async def test_requests_that_are_reset_at_once_never_reach_the_application() -> None:
    async with edges() as found, http2(found.ports[0]) as hostile, http2(found.ports[1]) as client:
        door = found.rpc._edge.rest
        assert door is not None
        asked, app = 0, door.app

        async def counting(*way: Any) -> None:
            nonlocal asked
            asked += 1
            await app(*way)

        door.app = counting
        for _ in range(20):
            streams = [begin(hostile, QUESTIONS["statistics"]) for _ in range(20)]
            sent = hostile.http.data_to_send()
            for stream in streams:
                hostile.http.reset_stream(stream)
            hostile.writer.write(sent + hostile.http.data_to_send())
        await _handled(hostile)
        assert (await answer(client, begin(client, QUESTIONS["metadata"]))).status == 200
        assert asked < 200  # of 400: a read may end between a request and its reset
        await _handled(client)
        assert door.open == 0


@BOTH_WAYS
async def test_a_body_that_does_not_come_is_408_and_harms_no_other(direct: bool) -> None:
    limits = Limits(slow_client_s=0.2)
    async with edges(limits, direct=direct) as found, http2(found.ports[0]) as client:
        whole = await answer(client, client.http.send_request(UNSIZED))
        assert whole.status == 408
        assert "limits.slow_client_s" in whole.error
        assert (await answer(client, begin(client, QUESTIONS["metadata"]))).status == 200


async def test_requests_beyond_the_limit_are_503_and_probes_have_a_reserve() -> None:
    limits = Limits(connection_count=2, reserved_connection_count=1)
    async with edges(limits) as found, http2(found.ports[1]) as client:
        found.serving.held = True
        held = [begin(client, QUESTIONS["inference"]) for _ in range(2)]
        await _handled(client)
        assert len(found.serving.calls) == 2
        whole = await answer(client, begin(client, QUESTIONS["metadata"]))
        assert whole.status == 503
        assert "limits.connection_count" in whole.error
        assert (await answer(client, begin(client, Asked("GET", "/livez")))).status == 200
        found.serving.release()
        for stream in held:
            assert (await answer(client, stream)).status == 200
        assert (await answer(client, begin(client, QUESTIONS["metadata"]))).status == 200


def large(row: bytes) -> Asked:
    """Inference whose answer is as large, and binary."""
    tensor = {"name": "IN", "shape": [1, len(row)], "datatype": "UINT8"}
    sized = {**tensor, "parameters": {"binary_data_size": len(row)}}
    head = json.dumps({"inputs": [sized], "parameters": {"binary_data_output": True}}).encode()
    fields = (("inference-header-content-length", str(len(head))),)
    return Asked("POST", "/v2/models/identity/infer", head + row, fields)


@BOTH_WAYS
async def test_a_large_answer_waits_for_its_reader_and_is_right(direct: bool) -> None:
    row = b"x" * 300_000
    async with edges(direct=direct) as found, http2(found.ports[0]) as client:
        client.taking = False
        stream = begin(client, large(row))
        await client.until(lambda: any(isinstance(each, ngh2.ResponseReceived) for each in client.seen))
        small = await answer(client, begin(client, Asked("HEAD", "/livez")))
        assert small.status == 200
        taken = sum(len(each.data) for each in client.seen if isinstance(each, ngh2.DataReceived))
        assert taken < 65_536
        client.http.acknowledge_received_data(taken, stream)
        client.taking = True
        whole = await answer(client, stream)
        length = int(whole.fields["inference-header-content-length"])
        assert whole.body[length:] == row
        assert len(whole.body) == int(whole.fields["content-length"])


@BOTH_WAYS
async def test_a_reader_that_takes_nothing_is_given_up_in_time(direct: bool) -> None:
    limits = Limits(slow_client_s=0.2)
    async with edges(limits, direct=direct) as found, http2(found.ports[0]) as client:
        client.taking = False
        begin(client, large(bytes(300_000)))
        await client.until(lambda: any(isinstance(each, ngh2.StreamReset) for each in client.seen))
        await _handled(client)
        assert found.rpc._edge.rest is not None
        assert found.rpc._edge.rest.open == 0


async def test_an_accepted_request_is_answered_while_the_gateway_drains() -> None:
    async with edges() as found, http2(found.ports[0]) as client:
        found.serving.held = True
        stream = begin(client, QUESTIONS["inference"])
        await _handled(client)
        assert len(found.serving.calls) == 1
        draining = asyncio.gather(found.rest.drain(60), found.rpc.stop(60))
        await client.until(lambda: client.goaway is not None)
        found.serving.release()
        assert (await answer(client, stream)).status == 200
        async with asyncio.timeout(60):
            await client.closed()
            await draining


async def test_a_caller_without_a_key_is_refused_as_over_http1() -> None:
    async with edges(guard=KeyGuard(KeyFile(()))) as found:
        for asked in (QUESTIONS["inference"], QUESTIONS["metadata"]):
            first = await over_http1(found.ports[0], asked)
            assert first.status == 401
            assert said(await over_http2(found.ports[0], asked)) == said(first)


async def test_without_rest_the_port_of_grpc_answers_nothing_else() -> None:
    async with edges() as found:
        found.rpc._edge.rest = None
        whole = await over_http2(found.ports[1], QUESTIONS["metadata"])
        assert whole.status == 405


async def _handled(client: Client) -> None:
    """Until the edge has handled all that was sent before."""
    seen = len(client.seen)
    client.http.ping()
    await client.until(lambda: any(isinstance(each, ngh2.PingAcknowledged) for each in client.seen[seen:]))
