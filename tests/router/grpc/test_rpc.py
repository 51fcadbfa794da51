"""The gRPC edge against real clients: tritonclient (blocking and asyncio) and plain grpc."""

import asyncio
import gc
import logging
from typing import Any  # grpc's clients and messages carry no types

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from router.grpc.rpc import SERVICE, RpcServer
from router.logs.logs import ACCESS
from router.tensors.request.decoded import Decoded
from serving.ports import Call, Reply
from serving.values.specs import Limits
from serving.values.vocabulary import (
    BAD_INPUT,
    COMPLETED,
    DEADLINE_QUEUED,
    MODEL_ERROR,
    QUEUE_FULL,
    UNKNOWN_MODEL,
    WORKER_LOST,
    Outcome,
)
from tests.router.rpc_edge import (
    Core,
    completed,
    error_of,
    raw_infer,
    serve,
    simple_inputs,
    simple_request,
)

pytestmark = pytest.mark.usefixtures("both_servers")


async def test_the_asyncio_triton_client_gets_every_row_and_its_request_id() -> None:
    async with serve() as edge, triton_aio.InferenceServerClient(edge.address) as client:
        result = await client.infer("simple", simple_inputs(triton_aio, rows=3), request_id="mine")
    expected = np.arange(48, dtype=np.int32).reshape(3, 16)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), expected + 1)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), expected - 1)
    assert (result.get_response().id, result.get_response().model_version) == ("mine", "1")


async def test_the_blocking_triton_client_gets_the_outputs_that_it_asked_for() -> None:
    def ask(address: str) -> Any:
        with triton.InferenceServerClient(address) as client:
            return client.infer(
                "simple",
                simple_inputs(triton),
                model_version="1",
                outputs=[triton.InferRequestedOutput("OUTPUT1")],
            )

    async with serve() as edge:
        result = await asyncio.to_thread(ask, edge.address)
    assert [output.name for output in result.get_response().outputs] == ["OUTPUT1"]
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), np.arange(16)[None] - 1)


async def test_typed_contents_answer_as_raw_ones_do() -> None:
    request = service_pb2.ModelInferRequest(model_name="simple")
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16]).contents.int_contents.extend(range(16))
    async with serve() as edge:
        response = await edge.infer(request)
    assert np.frombuffer(response.raw_output_contents[0], "<i4").tolist() == list(range(0, 32, 2))


async def test_bytes_travel_unchanged() -> None:
    words = np.array([["żółw".encode()], [b""], [b"\x00\xff"]], dtype=np.object_)
    text = triton_aio.InferInput("IN", [3, 1], "BYTES")
    text.set_data_from_numpy(words)
    async with serve() as edge, triton_aio.InferenceServerClient(edge.address) as client:
        result = await client.infer("identity", [text])
    assert result.as_numpy("OUT").tolist() == words.tolist()


async def test_readiness_is_that_of_the_core() -> None:
    async with serve() as edge, triton_aio.InferenceServerClient(edge.address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("simple")
        assert await client.is_model_ready("simple", "1")
        assert not await client.is_model_ready("simple", "2")
        assert not await client.is_model_ready("absent")
        edge.core.ready = False
        edge.core.down.add("simple")
        assert await client.is_server_live()
        assert not await client.is_server_ready()
        assert not await client.is_model_ready("simple")


async def test_metadata_names_server_and_tensors() -> None:
    async with serve() as edge, triton_aio.InferenceServerClient(edge.address) as client:
        server = await client.get_server_metadata()
        model = await client.get_model_metadata("simple")
        with pytest.raises(InferenceServerException, match=r"NOT_FOUND.*'simpel' is not found.*'simple'"):
            await client.get_model_metadata("simpel")
    assert (server.name, server.version) == ("penstock", "1.2.3")
    assert (model.name, list(model.versions)) == ("simple", ["1"])
    assert [(t.name, t.datatype, list(t.shape)) for t in model.inputs] == [
        ("INPUT0", "INT32", [-1, 16]),
        ("INPUT1", "INT32", [-1, 16]),
    ]
    assert [t.name for t in model.outputs] == ["OUTPUT0", "OUTPUT1"]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (QUEUE_FULL, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (WORKER_LOST, grpc.StatusCode.UNAVAILABLE),
        (MODEL_ERROR, grpc.StatusCode.INTERNAL),
    ],
)
async def test_an_outcome_becomes_its_code_with_the_cores_sentence(
    outcome: Outcome, code: grpc.StatusCode
) -> None:
    async with serve(Core(lambda call: Reply(outcome, "because of a test"))) as edge:
        assert await error_of(edge.infer(simple_request())) == (code, "because of a test")
        assert edge.core.turned_away == []  # the core counted it


async def test_an_outcome_without_a_sentence_gets_that_of_the_table() -> None:
    async with serve(Core(lambda call: Reply(QUEUE_FULL))) as edge:
        _, details = await error_of(edge.infer(simple_request()))
    assert "queue" in details


@pytest.mark.parametrize("rows", [b"\0" * 64, b"\0" * 60], ids=["late", "bad input"])
async def test_a_call_that_ends_in_an_error_does_not_keep_its_request(rows: bytes) -> None:
    def requests() -> int:
        return sum(type(each) in (Decoded, service_pb2.ModelInferRequest) for each in gc.get_objects())

    gc.freeze()  # what is there by now is not looked through
    gc.disable()  # what grpc keeps of an aborted call is a cycle, which waits for the collector
    try:
        async with serve(Core(lambda _: Reply(DEADLINE_QUEUED))) as edge:
            request = simple_request()
            request.raw_input_contents[0] = rows
            with pytest.raises(grpc.aio.AioRpcError):
                await edge.infer(request)
            del request
            await edge.server.calls.answered.wait()  # the client is told before the handler's end
            assert requests() == 0
    finally:
        gc.enable()
        gc.unfreeze()


async def test_a_bug_is_an_internal_error_that_only_the_log_explains(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def crash(call: Call) -> Reply:
        raise ZeroDivisionError("secret")

    async with serve(Core(crash)) as edge:
        code, details = await error_of(edge.infer(simple_request()))
    assert code == grpc.StatusCode.INTERNAL
    assert details == "internal error of the gateway; its log has the cause"
    assert "secret" in caplog.text


async def test_what_is_refused_before_the_core_is_reported_and_the_next_call_answered() -> None:
    bad = simple_request()
    bad.inputs[0].shape[1] = 15
    wrong_version, unknown = simple_request(model_version="3"), simple_request(model_name="absent")
    codes = grpc.StatusCode
    async with serve() as edge, grpc.aio.insecure_channel(edge.address) as channel:
        infer = raw_infer(channel)
        for raw, code, part in (
            (bad.SerializeToString(), codes.INVALID_ARGUMENT, "INPUT0"),
            (b"\xff\xff\xff", codes.INVALID_ARGUMENT, "no ModelInferRequest"),
            (unknown.SerializeToString(), codes.NOT_FOUND, "unknown model: 'absent'"),
            (wrong_version.SerializeToString(), codes.NOT_FOUND, "only version is 1"),
        ):
            got, details = await error_of(infer(raw))
            assert got == code
            assert part in details
        assert edge.core.turned_away == [
            ("simple", BAD_INPUT, "default"),
            ("", BAD_INPUT, "default"),
            ("absent", UNKNOWN_MODEL, "default"),
            ("simple", UNKNOWN_MODEL, "default"),
        ]
        assert edge.core.calls == []
        assert (await infer(simple_request().SerializeToString())).model_name == "simple"


@pytest.mark.parametrize(
    ("deadline_s", "metadata_ms", "parameter_us", "lowest_us", "highest_us"),
    [
        (None, None, None, None, None),
        (20, None, None, 10_000_000, 20_300_000),  # on the way it lost some and was rounded up
        (None, "1500.5", None, 1_500_500, 1_500_500),
        (None, None, 7_000, 7_000, 7_000),
        (20, "9000", 8_000_000, 8_000_000, 8_000_000),
        (20, "8000", 9_000_000, 8_000_000, 8_000_000),
        (7, "8000", 9_000_000, 3_000_000, 7_100_000),
        (None, "1e308", None, 1 << 61, 1 << 61),
    ],
)
async def test_the_tightest_timeout_counts(
    deadline_s: float | None,
    metadata_ms: str | None,
    parameter_us: int | None,
    lowest_us: int | None,
    highest_us: int | None,
) -> None:
    request = simple_request()
    if parameter_us is not None:
        request.parameters["timeout"].int64_param = parameter_us
    metadata = None if metadata_ms is None else (("x-request-timeout-ms", metadata_ms),)
    async with serve() as edge:
        await edge.infer(request, timeout=deadline_s, metadata=metadata)
        (call,) = edge.core.calls
    assert call.arrived_us == edge.core.clock_us
    if lowest_us is None or highest_us is None:
        assert call.timeout_us is None
    else:
        assert call.timeout_us is not None
        assert lowest_us <= call.timeout_us <= highest_us


@pytest.mark.parametrize("stated", ["soon", "0", "-1", "nan", "inf"])
async def test_a_senseless_timeout_field_is_bad_input(stated: str) -> None:
    async with serve() as edge:
        answer = edge.infer(simple_request(), metadata=(("x-request-timeout-ms", stated),))
        code, details = await error_of(answer)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert f"x-request-timeout-ms must be a positive number of milliseconds, got '{stated}'" in details


async def test_a_cancelled_call_is_cancelled_in_the_core() -> None:
    async with serve(Core(lambda call: None)) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        call = raw_infer(channel)(simple_request().SerializeToString())
        await edge.core.change()
        call.cancel()
        await edge.core.change()
        assert edge.core.cancelled == [1]
        edge.core.answer = completed
        assert await raw_infer(channel)(simple_request().SerializeToString())


async def test_a_client_that_disconnects_is_cancelled_in_the_core() -> None:
    async with serve(Core(lambda call: None)) as edge:
        channel = grpc.aio.insecure_channel(edge.address)
        call = raw_infer(channel)(simple_request().SerializeToString(), timeout=60)
        await edge.core.change()
        await channel.close()
        await edge.core.change()
        assert edge.core.cancelled == [1]
        assert call.done()


async def test_at_its_deadline_a_call_is_left_to_the_core_which_counts_it_as_late() -> None:
    def expire(call: Call) -> None:
        assert call.timeout_us is not None
        edge.core.clock_us += call.timeout_us

    async with serve(Core(expire)) as edge:
        timeout_s = 0.1
        while not edge.core.calls:  # where the machine stood still, the deadline passed on the way
            told = await error_of(edge.infer(simple_request(), timeout=timeout_s))
            assert told == (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
            timeout_s *= 2
        await edge.server.stop(60)  # ends when the server, too, has seen the deadline
        assert edge.core.cancelled == []
        edge.core.open[1](Reply(COMPLETED))  # a late reply finds nobody and harms nobody


async def test_a_message_over_the_body_limit_is_refused_with_both_figures() -> None:
    request = simple_request(id="x" * 20_000)
    async with serve(limits=Limits(body_bytes=10_000)) as edge:
        code, details = await error_of(edge.infer(request))
        assert await edge.infer(simple_request())
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"larger than max ({request.ByteSize()} vs. 10000)" in details


async def test_metadata_over_the_header_limit_is_refused() -> None:
    async with serve(limits=Limits(header_bytes=4096)) as edge:
        code, _ = await error_of(edge.infer(simple_request(), metadata=(("x-long", "y" * 10_000),)))
        assert await edge.infer(simple_request(), metadata=(("x-short", "y" * 1_000),))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_second_server_on_the_port_fails_and_says_where() -> None:
    async with serve() as edge:
        port = int(edge.address.rpartition(":")[2])
        second = RpcServer(Core(), "penstock", "1", Limits(), "127.0.0.1", edge.core.telemetry.statistics)
        with pytest.raises(OSError, match=f"cannot serve gRPC on 127.0.0.1:{port}: the port is taken"):
            await second.start(port)
        await second.stop(1)
        assert await edge.infer(simple_request())


async def test_stopping_answers_what_was_accepted_and_takes_nothing_new() -> None:
    async with serve(Core(lambda call: None)) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        answer = asyncio.create_task(edge.infer(simple_request()))
        await edge.core.change()
        stop = asyncio.create_task(edge.server.stop(60))
        code, _ = await error_of(raw_infer(channel)(simple_request().SerializeToString()))
        # grpc answers CANCELLED where the call was already on its way when the listener closed.
        assert code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert not stop.done()
        reply = completed(edge.core.calls[0])
        edge.core.open[1](reply)
        assert (await answer).model_name == "simple"
        await stop
    assert len(edge.core.calls) == 1


async def test_a_silent_connection_does_not_delay_the_stop() -> None:
    async with serve() as edge:
        host, port = edge.address.split(":")
        async with grpc.aio.insecure_channel(edge.address) as channel:
            await raw_infer(channel)(simple_request().SerializeToString())
            _, writer = await asyncio.open_connection(host, int(port))
            await raw_infer(channel)(simple_request().SerializeToString())
        async with asyncio.timeout(15):  # grpc by itself would wait for 20
            await edge.server.stop(60)
        writer.close()


async def test_what_is_unanswered_when_the_grace_ends_is_cancelled_in_the_core() -> None:
    async with serve(Core(lambda call: None)) as edge:
        answer = asyncio.create_task(edge.infer(simple_request()))
        await edge.core.change()
        await edge.server.stop(0.05)
        await error_of(answer)
        await edge.core.change()
        assert edge.core.cancelled == [1]


async def test_other_calls_of_the_service_are_unimplemented_and_say_what_is() -> None:
    async with serve() as edge, triton_aio.InferenceServerClient(edge.address) as client:
        with pytest.raises(
            InferenceServerException, match=r"UNIMPLEMENTED.*LogSettings is not served.*ModelInfer"
        ):
            await client.get_log_settings()
        async with grpc.aio.insecure_channel(edge.address) as channel:
            code, details = await error_of(channel.stream_stream(f"/{SERVICE}/TraceSetting")().read())
        assert code == grpc.StatusCode.UNIMPLEMENTED
        assert "TraceSetting is not served" in details


class Lines(logging.Handler):
    """The fields of each access line, as it is written: grpc tells a client of an error before the handler's
    end, which is where the line comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.written: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.written.put_nowait(vars(record)["fields"])


async def test_the_access_log_has_a_line_for_each_call(caplog: pytest.LogCaptureFixture) -> None:
    lines = Lines()
    caplog.set_level(logging.INFO)
    logging.getLogger(ACCESS).addHandler(lines)
    try:
        async with serve(access=True) as edge, asyncio.timeout(60):
            await edge.infer(simple_request())
            with pytest.raises(grpc.aio.AioRpcError):
                await edge.infer(simple_request(model_name="nothing"))
            async with grpc.aio.insecure_channel(edge.address) as channel:
                stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")()
                for name in ("simple", "nothing"):
                    await stream.write(simple_request(model_name=name).SerializeToString())
                    await stream.read()
            found = [await lines.written.get() for _ in range(4)]
    finally:
        logging.getLogger(ACCESS).removeHandler(lines)
    assert [(each["request"].rpartition("/")[2], each["status"]) for each in found] == [
        ("ModelInfer", "OK"),
        ("ModelInfer", "NOT_FOUND"),
        ("ModelStreamInfer", "OK"),
        ("ModelStreamInfer", "NOT_FOUND"),
    ]
    assert all(each["client"].startswith("ipv4:127.0.0.1:") for each in found)
    assert found[0]["answer_bytes"] > 0
    assert lines.written.empty()
