"""Promises of models of another server: which trace a call to it takes along."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from serving.values.traces import NO_TRACE, TraceContext
from serving.worker.backends.contract import LoadedModel
from serving.worker.backends.signature import Signature, Tensor
from serving.worker.process.batch_trace import BATCH_TRACE
from tests.worker.backends.orders import loaded, order_of

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
FIELDS = ("traceparent", "tracestate")


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """A server that answers what it gets, and keeps what its calls say of their trace."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        if details.method.endswith("/ModelMetadata"):
            return grpc.unary_unary_rpc_method_handler(self.describe)
        self.asked.append({key: value for key, value in details.invocation_metadata if key in FIELDS})
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def describe(self, _request: bytes, _context: object) -> bytes:
        told = service_pb2.ModelMetadataResponse(name="echo")
        told.inputs.add(name="X", datatype="FP32", shape=[-1, 2])
        told.outputs.add(name="X", datatype="FP32", shape=[-1, 2])
        return bytes(told.SerializeToString())

    def answer(self, request: bytes, _context: object) -> bytes:
        asked = service_pb2.ModelInferRequest.FromString(request)
        told = service_pb2.ModelInferResponse(model_name="echo", raw_output_contents=asked.raw_input_contents)
        told.outputs.add(name="X", datatype="FP32", shape=asked.inputs[0].shape)
        return bytes(told.SerializeToString())


@pytest.fixture
def echo() -> Iterator[tuple[Echo, LoadedModel]]:
    """A server, and the model that asks it."""
    handler = Echo()
    server = grpc.server(ThreadPoolExecutor(1), [handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    tensors = (Tensor("X", "FP32", ("batch", 2)),)
    options = {"url": f"127.0.0.1:{port}", "model": "echo"}
    yield handler, loaded(order_of("remote", Path("nowhere"), Signature(tensors, tensors), options))
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("trace", "fields"),
    [
        (NO_TRACE, {}),
        (TraceContext(PARENT, ""), {"traceparent": PARENT}),
        (TraceContext(PARENT, "rojo=1,congo=2"), {"traceparent": PARENT, "tracestate": "rojo=1,congo=2"}),
    ],
)
def test_a_batch_takes_its_own_trace_along(
    echo: tuple[Echo, LoadedModel], trace: TraceContext, fields: dict[str, str]
) -> None:
    server, model = echo
    BATCH_TRACE.context = trace
    try:
        found = model.predict({"X": np.ones((3, 2), np.float32)}, {})
    finally:
        BATCH_TRACE.context = NO_TRACE
    answered = found["X"]
    assert isinstance(answered, np.ndarray)
    assert answered.tolist() == [[1, 1]] * 3
    assert server.asked == [fields]
