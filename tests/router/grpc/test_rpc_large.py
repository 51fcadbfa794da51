"""Large and compressed messages over gRPC: read beside the event loop, and bounded before they are read."""

import contextlib
import gzip
import zlib
from collections.abc import AsyncIterator
from typing import Any  # grpc's clients and messages carry no types

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2

from router.payloads.bulk.pool import Bulk
from serving.values.specs import Limits
from serving.values.vocabulary import BAD_INPUT, TOO_LARGE
from tests.router.rpc_edge import Core, Edge, error_of, raw_infer, serve, simple_inputs, simple_request

pytestmark = pytest.mark.usefixtures("both_servers")

COUNT = 40_000


@contextlib.asynccontextmanager
async def serve_large(limits: Limits | None = None) -> AsyncIterator[Edge]:
    """An edge with a bulk process."""
    limits = limits or Limits()
    bulk = Bulk(limits)
    await bulk.start(1)
    try:
        async with serve(limits=limits, bulk=bulk) as edge:
            yield edge
    finally:
        await bulk.close()


def typed(count: int) -> Any:
    request = service_pb2.ModelInferRequest(model_name="identity", id="mine")
    tensor = request.inputs.add(name="IN", datatype="INT32", shape=[1, count])
    tensor.contents.int_contents.extend(range(1 << 20, (1 << 20) + count))
    return request


async def test_large_typed_contents_are_answered_as_raw_ones_are() -> None:
    async with serve_large() as edge:
        answer = await edge.infer(typed(COUNT))
    expected = np.arange(1 << 20, (1 << 20) + COUNT, dtype=np.int32)
    np.testing.assert_array_equal(np.frombuffer(answer.raw_output_contents[0], np.int32), expected)
    assert answer.id == "mine"


async def test_large_raw_contents_are_answered() -> None:
    request = service_pb2.ModelInferRequest(model_name="identity")
    request.inputs.add(name="IN", datatype="UINT8", shape=[1, 1 << 20])
    request.raw_input_contents.append(bytes(range(256)) * 4096)
    async with serve() as edge:
        answer = await edge.infer(request)
    assert answer.raw_output_contents[0] == request.raw_input_contents[0]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_tritonclient_may_compress_both_ways(coding: str) -> None:
    async with serve() as edge, triton_aio.InferenceServerClient(edge.address) as client:
        inputs = simple_inputs(triton_aio, rows=64)
        result = await client.infer("simple", inputs, compression_algorithm=coding)
    expected = np.arange(1024, dtype=np.int32).reshape(64, 16)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), expected + 1)


async def test_compressed_large_typed_contents_are_answered() -> None:
    async with serve_large() as edge:
        answer = await edge.infer(typed(COUNT), compression=grpc.Compression.Gzip)
    assert len(answer.raw_output_contents[0]) == 4 * COUNT


@pytest.mark.parametrize(
    ("message", "outcome", "code", "sentence"),
    [
        (gzip.compress(bytes(5 << 20)), TOO_LARGE, "RESOURCE_EXHAUSTED", "limits.inflation"),
        (zlib.compress(bytes(5 << 20)), TOO_LARGE, "RESOURCE_EXHAUSTED", "limits.inflation"),
        (gzip.compress(b"") * 40, TOO_LARGE, "RESOURCE_EXHAUSTED", "more than 16 members"),
        (gzip.compress(b"x" * 99)[:-4], BAD_INPUT, "INVALID_ARGUMENT", "ends too early"),
        (b"\x2a\x00" * 100_000, TOO_LARGE, "RESOURCE_EXHAUSTED", "more than 320 fields"),
    ],
)
async def test_what_would_cost_much_is_refused_before_it_does(
    message: bytes, outcome: object, code: str, sentence: str
) -> None:
    core = Core()
    async with serve(core) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        found, said = await error_of(raw_infer(channel)(message))
        assert (await raw_infer(channel)(simple_request().SerializeToString())).model_name == "simple"
    assert (found.name, [each[1] for each in core.turned_away]) == (code, [outcome])
    assert sentence in said


async def test_more_typed_elements_than_allowed_are_refused() -> None:
    async with serve_large(Limits(element_count=COUNT - 1)) as edge:
        code, said = await error_of(edge.infer(typed(COUNT)))
    assert (code.name, "send raw_input_contents" in said) == ("RESOURCE_EXHAUSTED", True)


async def test_a_small_method_reads_a_compressed_request() -> None:
    async with serve() as edge, grpc.aio.insecure_channel(edge.address) as channel:
        ready = channel.unary_unary("/inference.GRPCInferenceService/ModelReady", None, None)
        name = service_pb2.ModelReadyRequest(name="x" * 5000).SerializeToString()
        answer = await ready(name, compression=grpc.Compression.Gzip)
    assert not service_pb2.ModelReadyResponse.FromString(answer).ready
