"""The clients that people have: tritonclient's two REST clients and Python's own, on a real port."""

import http.client
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from serving.values.vocabulary import OVERLOAD, QUEUE_FULL
from tests.router.http.fastpath.wire import LIMITS, PATIENCE_S, SIMPLE_INFER, Running, body_of

A = np.arange(32, dtype=np.int32).reshape(2, 16)
B = np.ones((2, 16), dtype=np.int32)


@pytest.fixture(params=[True, False], ids=["fast path", "ASGI"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    running = Running(LIMITS, direct=request.param)
    yield running
    running.stop()


def inputs(binary: bool) -> list[triton.InferInput]:
    made = []
    for name, values in (("INPUT0", A), ("INPUT1", B)):
        made.append(triton.InferInput(name, list(values.shape), "INT32"))
        made[-1].set_data_from_numpy(values, binary_data=binary)
    return made


def outputs(binary: bool) -> list[triton.InferRequestedOutput]:
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in ("OUTPUT1", "OUTPUT0")]


@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
def test_triton_http_infers(running: Running, binary: bool, packed: str | None) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("simple", "1")
        result = client.infer(
            "simple",
            inputs(binary),
            outputs=outputs(binary),
            request_id="7",
            request_compression_algorithm=packed,
            response_compression_algorithm=packed,
            query_params={"test": 1},
        )
        assert np.array_equal(result.as_numpy("OUTPUT0"), A + B)
        assert np.array_equal(result.as_numpy("OUTPUT1"), A - B)
        assert result.get_response()["id"] == "7"
        assert np.array_equal(client.infer("simple", inputs(binary)).as_numpy("OUTPUT0"), A + B)


def test_triton_http_reads_metadata_and_errors(running: Running) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        assert client.get_server_metadata()["name"] == "penstock"
        assert client.get_model_metadata("simple")["inputs"][0]["shape"] == [-1, 16]
        with pytest.raises(
            InferenceServerException, match="Request for unknown model: 'nobody' is not found"
        ):
            client.infer("nobody", inputs(True))
        running.serving.outcome = QUEUE_FULL
        with pytest.raises(InferenceServerException, match="Exceeds maximum queue size") as raised:
            client.infer("simple", inputs(True))
        assert raised.value.status() == "503"


def test_pythons_own_client_reads_what_an_answer_says_of_itself(running: Running) -> None:
    """tritonclient keeps the header fields of an answer to itself."""
    running.serving.waited_us = (60_500_000, 0, 1_000)
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE_S)
    connection.request("POST", SIMPLE_INFER, body_of(1), {"X-Tenant": "gold"})
    answer = connection.getresponse()
    answer.read()
    assert answer.headers["Server-Timing"] == (
        "request;dur=0.000, queue;dur=60500.000, batch;dur=0.000, input;dur=0.000, infer;dur=1.000, "
        "output;dur=0.000, answer;dur=0.000"
    )
    assert (answer.headers["X-Penstock-Variant"], answer.headers["X-Penstock-Batch-Rows"]) == ("exact", "1")
    running.serving.outcome, running.serving.retry_us = OVERLOAD, 1_500_000
    connection.request("POST", SIMPLE_INFER, body_of(1))
    answer = connection.getresponse()
    answer.read()
    assert (answer.headers["X-Penstock-Reason"], answer.headers["Retry-After"]) == ("overload", "2")
    connection.close()


@pytest.mark.slow
def test_triton_http_infers_many_at_once(running: Running) -> None:
    running.serving.later_s = 0.005
    with triton.InferenceServerClient(f"127.0.0.1:{running.port}", concurrency=8) as client:
        waiting = [client.async_infer("simple", inputs(True)) for _ in range(32)]
        for result in waiting:
            assert np.array_equal(result.get_result().as_numpy("OUTPUT0"), A + B)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
async def test_triton_http_aio_infers(running: Running, binary: bool) -> None:
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        assert await client.is_server_ready()
        result = await client.infer("simple", inputs(binary), outputs=outputs(binary), request_id="7")
        assert np.array_equal(result.as_numpy("OUTPUT0"), A + B)
        with pytest.raises(InferenceServerException, match="not found"):
            await client.infer("nobody", inputs(binary))


async def test_triton_http_aio_reads_a_compressed_answer(running: Running) -> None:
    """aiohttp names gzip and deflate in every request."""
    values = np.zeros((1, 5000), dtype=np.float32)
    tensor = triton.InferInput("IN", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        result = await client.infer("identity", [tensor])
        assert np.array_equal(result.as_numpy("OUT"), values)
