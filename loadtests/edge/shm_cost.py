"""What a picture costs the gateway over REST, over gRPC, and in shared memory of the client, in us of CPU.

python -m loadtests.edge.shm_cost [--rounds 20]

The servers are the gateway's own edges in this process, under uvloop. The core writes each picture into a
worker's memory, as the gateway does, and answers at once. The client is another process; over gRPC it is
grpc's own library. A figure is the CPU time of this process, all its threads, by a call. The cases take
turns, so that a noisy machine changes ratios little.
"""

import argparse
import json
import os
import socket
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Final
from uuid import uuid4

import grpc
import uvloop
from tritonclient.grpc import service_pb2

from loadtests.edge.cpu_rounds import measured_us
from loadtests.edge.key_cost import Core as SmallCore
from loadtests.hostile.abuse.bombs import INFER
from router.grpc.servers import RPC_SERVERS
from router.http.fastpath import create_server
from router.payloads.bulk.pool import Bulk
from router.payloads.regions.region import FOLDER
from router.payloads.regions.registry import open_registry
from router.settings.values.client_shm import ClientShm
from serving.compiled import is_compiled
from serving.ports import Call, Reply
from serving.values.specs import (
    DEFAULT_TENANT,
    Limits,
    ModelSpec,
    ServedModel,
    TenantSpec,
    TensorSpec,
    VariantSpec,
)
from serving.values.tensor import Tensor
from serving.worker.frames.shared import SharedArea

HOST: Final = "127.0.0.1"
ROUND: Final = 200
"""Calls."""
REST, RPC = "REST", "gRPC"
PICTURES: Final[Mapping[str, int]] = {"150 KB": 224 * 224 * 3, "600 KB": 224 * 224 * 3 * 4}
"""Bytes: a picture of 224 x 224 points as bytes, and as FP32."""
CLASSES: Final = 1_000
REGION: Final = "region"
ANSWER_BYTES: Final = 4 * CLASSES

Case = tuple[str, int, str, bool]
"""REST or gRPC, port, model, whether the tensors are in shared memory."""


class Core(SmallCore):
    """A `Serving` that writes inputs into a worker's memory, and answers at once."""

    def __init__(self) -> None:
        self.models: Mapping[str, ServedModel] = {
            name: _served(name, size) for name, size in PICTURES.items()
        }
        self.tenants = {DEFAULT_TENANT: TenantSpec(DEFAULT_TENANT)}
        self.outputs = [Tensor("SCORES", "FP32", (1, CLASSES), bytes(ANSWER_BYTES))]
        self.completed = 0
        self._area = SharedArea.create("shm-cost")

    def submit(self, call: Call, deliver: Callable[[Reply], None]) -> int:
        """Hand the inputs on and deliver a completed reply (part of Serving)."""
        data = [each.data for each in call.inputs]
        self._area.write(data, sum(map(len, data)))
        return super().submit(call, deliver)


def _served(name: str, size: int) -> ServedModel:
    inputs = (TensorSpec("PICTURE", "UINT8", (-1, size)),)
    outputs = (TensorSpec("SCORES", "FP32", (-1, CLASSES)),)
    variants = (VariantSpec("only", None),)
    spec = ModelSpec(name, Path(name), inputs, outputs, variants, "only", 100_000, 8)
    return ServedModel(spec, spec.slo_us or 100_000, ("only",), ("s",))


async def measure(rounds: int) -> dict[str, list[float]]:
    """Return the us of CPU per call in each round, by case."""
    core, limits = Core(), Limits()
    regions = open_registry(ClientShm(), limits, Bulk(limits), lambda: None)
    assert regions is not None  # noqa: S101  # it has bounds

    async def nothing(scope: object, receive: object, send: object) -> None:
        """Stand in for an ASGI application that gets no requests."""

    rest = create_server(core, nothing, HOST, 0, limits)
    rpc = RPC_SERVERS["ngh2"](core, "penstock", "0", limits, HOST, lambda _: {})
    rest.share(regions)
    rpc.share(regions)
    file = Path(FOLDER) / f"penstock-shm-cost-{uuid4().hex}"
    size = max(PICTURES.values()) + ANSWER_BYTES
    with file.open("wb") as written:
        os.truncate(written.fileno(), size)
    try:
        regions.of(None).register(REGION, f"/{file.name}", 0, size)
    finally:
        file.unlink()
    ports = {REST: await rest.start(), RPC: await rpc.start(0)}
    cases: dict[str, Case] = {
        f"{model}, {kind}{', shared memory' if shared else ''}": (kind, ports[kind], model, shared)
        for model in PICTURES
        for shared in (False, True)
        for kind in (REST, RPC)
    }
    try:
        return await measured_us(cases, _ask, ROUND, rounds)
    finally:
        await rpc.stop(0)
        await rest.drain(0)


def _place(size: int, offset: int) -> dict[str, object]:
    place: dict[str, object] = {"shared_memory_region": REGION, "shared_memory_byte_size": size}
    return place | ({"shared_memory_offset": offset} if offset else {})


def _rest_request(model: str, shared: bool) -> bytes:
    """Return a whole request over HTTP."""
    size = PICTURES[model]
    tensor: dict[str, object] = {"name": "PICTURE", "datatype": "UINT8", "shape": [1, size]}
    output: dict[str, object] = {"name": "SCORES", "parameters": {"binary_data": True}}
    tensor["parameters"] = _place(size, 0) if shared else {"binary_data_size": size}
    if shared:
        output["parameters"] = _place(ANSWER_BYTES, size)
    head = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    body = head if shared else head + bytes(size)
    more = "" if shared else f"inference-header-content-length: {len(head)}\r\n"
    path = f"/v2/models/{model.replace(' ', '%20')}/infer"
    lines = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return lines.encode() + body


def _rpc_message(model: str, shared: bool) -> bytes:
    """Return a ModelInferRequest."""
    size = PICTURES[model]
    request = service_pb2.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="PICTURE", datatype="UINT8", shape=[1, size])
    output = request.outputs.add(name="SCORES")
    if shared:
        for entry, place in ((tensor, _place(size, 0)), (output, _place(ANSWER_BYTES, size))):
            for name, value in place.items():
                kind = "int64_param" if isinstance(value, int) else "string_param"
                setattr(entry.parameters[name], kind, value)
    else:
        request.raw_input_contents.append(bytes(size))
    message: bytes = request.SerializeToString()
    return message


def _over_rest(port: int, request: bytes) -> Callable[[], bool]:
    """Return what asks once on a connection, and says whether the answer was good."""
    connection = socket.create_connection((HOST, port))

    def ask() -> bool:
        connection.sendall(request)
        answer = connection.recv(1 << 16)
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(1 << 16)
        head, _, rest = answer.partition(b"\r\n\r\n")
        left = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]) - len(rest)
        while left > 0:
            left -= len(connection.recv(left))
        return head.startswith(b"HTTP/1.1 200")

    return ask


def _over_rpc(port: int, message: bytes) -> Callable[[], bool]:
    infer = grpc.insecure_channel(f"{HOST}:{port}").unary_unary(INFER, bytes, bytes)
    return lambda: len(infer(message, timeout=60)) > 0


def _ask(orders: Connection, cases: tuple[Case, ...]) -> None:
    """Send ROUND calls for each order, which is the number of a case; None ends the loop."""
    clients = [
        _over_rest(port, _rest_request(model, shared))
        if kind == REST
        else _over_rpc(port, _rpc_message(model, shared))
        for kind, port, model, shared in cases
    ]
    while (at := orders.recv()) is not None:
        orders.send(sum(clients[at]() for _ in range(ROUND)))


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    taken = uvloop.run(measure(parser.parse_args().rounds))
    how = "compiled" if is_compiled() else "interpreted"
    print(f"us of CPU a call, median of the rounds ({how}), half of the rounds, and how many times REST's:")
    for name, each in taken.items():
        rest = median(taken[f"{name.split(',')[0]}, {REST}"])
        ordered = sorted(each)
        half = f"{ordered[len(ordered) // 4]:.0f} to {ordered[3 * len(ordered) // 4]:.0f}"
        print(f"  {name:30}{median(each):8.1f}  {half:14}{median(each) / rest:6.2f}")


if __name__ == "__main__":
    main()
