"""One client for each dialect: it asks the sample model `simple`, and reads what an answer says of itself."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final  # neither tritonclient nor grpc carry types

import grpc
import numpy as np
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.harness.wire import post, read_answer

MODEL: Final = "simple"
TIMEOUT_S = 60
_PATH = f"/v2/models/{MODEL}/infer"
_NAMES = ("INPUT0", "INPUT1")
_ROW = np.arange(16, dtype=np.int32).reshape(1, 16)

Ask = Callable[[], str]
"""Asks once, and gives the answer's `Server-Timing`."""


def json_request() -> bytes:
    """Return a question in JSON."""
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1, 16], "data": _ROW[0].tolist()} for name in _NAMES
    ]
    return post(_PATH, json.dumps({"inputs": inputs}).encode())


def binary_request() -> bytes:
    """Return the request as tritonclient writes it."""
    body, size = tritonclient.http.InferenceServerClient.generate_request_body(_inputs())
    return post(_PATH, body, {"Inference-Header-Content-Length": size})


def message() -> Any:
    """Return the same over gRPC."""
    asked = service_pb2.ModelInferRequest(model_name=MODEL, raw_input_contents=[_ROW.tobytes()] * len(_NAMES))
    for name in _NAMES:
        asked.inputs.add(name=name, datatype="INT32", shape=_ROW.shape)
    return asked


def stub(channel: grpc.Channel) -> Any:
    """Return tritonclient's own stub."""
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


@contextmanager
def _rest_json(port: int) -> Iterator[Ask]:
    """Yield a function that asks by a socket: there is hardly a client for this dialect."""
    request = json_request()

    def ask() -> str:
        connection.sendall(request)
        answer = read_answer(stream)
        if answer is None or answer.status != 200:
            raise ConnectionError(f"instead of an answer to '{MODEL}': {answer}")
        return answer.headers["server-timing"]

    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection.makefile("rb") as stream:
            yield ask


class _Client(tritonclient.http.InferenceServerClient):  # type: ignore[misc]  # it carries no types
    """tritonclient's own, which shows the header fields of an answer to its methods only."""

    def _post(self, *args: Any, **more: Any) -> Any:
        self.answer = super()._post(*args, **more)
        return self.answer


@contextmanager
def _rest_binary(port: int) -> Iterator[Ask]:
    """Yield a function that asks by tritonclient."""
    inputs = _inputs()

    def ask() -> str:
        client.infer(MODEL, inputs)
        return str(client.answer.get("server-timing"))

    with _Client(f"127.0.0.1:{port}", network_timeout=TIMEOUT_S) as client:
        yield ask


@contextmanager
def _rpc(port: int) -> Iterator[Ask]:
    """Yield a function that asks by tritonclient's stub, as its client hides the metadata."""

    def ask() -> str:
        _, call = infer.with_call(message(), timeout=TIMEOUT_S)
        return str(dict(call.trailing_metadata())["server-timing"])

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer = stub(channel).ModelInfer
        yield ask


def _inputs() -> list[Any]:
    inputs = [tritonclient.http.InferInput(name, list(_ROW.shape), "INT32") for name in _NAMES]
    return [each.set_data_from_numpy(_ROW) for each in inputs]


REST, GRPC = range(2)
DIALECTS = {"REST, JSON": (_rest_json, REST), "REST, binary": (_rest_binary, REST), "gRPC": (_rpc, GRPC)}
"""What opens a client, and which of a server's two ports it is given."""
