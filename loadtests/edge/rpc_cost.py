"""What a call costs the gateway over gRPC, with each of its servers, beside a request over REST.

python -m loadtests.edge.rpc_cost [--rounds 20]

The servers are the gateway's own edges in this process, under uvloop, with a core that answers at once. The
client is another process: bare sockets, and grpc's own library. A figure is the CPU time of this process, all
its threads, by a call. The cases take turns, so that a noisy machine changes ratios little.
"""

import argparse
import socket
from collections.abc import Mapping
from multiprocessing.connection import Connection
from statistics import median

import grpc
import ngh2
import uvloop

from loadtests.edge.cpu_rounds import measured_us
from loadtests.edge.key_cost import Core, request_of
from loadtests.hostile.abuse.bombs import INFER
from loadtests.hostile.abuse.rpc_probe import question
from router.grpc.servers import RPC_SERVERS
from router.http.fastpath import create_server
from serving.values.specs import Limits

HOST = "127.0.0.1"
ROUND = 1_280
"""Calls."""
SHAPES = ((32, 1), (4, 32))
"""Connections, and calls at once on each."""
REST = "REST"
LIBRARY = "grpc's client, 1 x 32"
HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", INFER.encode()),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"user-agent", b"penstock-loadtests"),
    (b"grpc-accept-encoding", b"identity, deflate, gzip"),
)

Case = tuple[str, int, int, int]
"""Kind, port, connections, calls at once on each; no connections: by grpc's library."""


async def measure(rounds: int) -> dict[str, list[float]]:
    """Return the us of CPU per call in each round, by case. The first round warms up and is left out."""
    core = Core()

    async def nothing(scope: object, receive: object, send: object) -> None:
        """Stand in for an ASGI application that gets no requests."""

    rest = create_server(core, nothing, HOST, 0, Limits())
    servers = {
        name: serve(core, "penstock", "0", Limits(), HOST, lambda _: {})
        for name, serve in RPC_SERVERS.items()
    }
    ports = {REST: await rest.start()} | {name: await each.start(0) for name, each in servers.items()}
    cases = _cases(ports)
    try:
        return await measured_us(cases, ask_calls, ROUND, rounds)
    finally:
        for each in servers.values():
            await each.stop(0)
        await rest.drain(0)


def _cases(ports: Mapping[str, int]) -> dict[str, Case]:
    cases: dict[str, Case] = {f"{REST}, 32 x 1": (REST, ports[REST], 32, 1)}
    for name in RPC_SERVERS:
        for count, at_once in SHAPES:
            cases[f"gRPC, {name}, {count} x {at_once}"] = (name, ports[name], count, at_once)
        cases[f"gRPC, {name}, {LIBRARY}"] = (name, ports[name], 0, 32)
    return cases


class HttpClient:
    """One request at a time on a connection."""

    def __init__(self, port: int, _at_once: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._request = request_of(Core(), "")

    def send(self) -> None:
        """Ask."""
        self._socket.sendall(self._request)

    def receive(self) -> int:
        """Return how many answers came: one."""
        answer = self._socket.recv(1 << 16)
        while b"\r\n\r\n" not in answer:
            answer += self._socket.recv(1 << 16)
        return int(answer.startswith(b"HTTP/1.1 200"))


class RpcClient:
    """Several calls at once on a connection."""

    def __init__(self, port: int, at_once: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._http = ngh2.Connection(ngh2.Role.CLIENT)
        self._http.initiate_connection()
        message = question()
        self._body = b"\0" + len(message).to_bytes(4) + message
        self._at_once = at_once

    def send(self) -> None:
        """Ask."""
        for _ in range(self._at_once):
            stream_id = self._http.send_request(HEADERS)
            self._http.send_data(stream_id, self._body, end_stream=True)
        self._socket.sendall(self._http.data_to_send())

    def receive(self) -> int:
        """Return how many calls were answered with OK."""
        ended = good = 0
        while ended < self._at_once:
            self._http.receive_data(self._socket.recv(1 << 16))
            for event in self._http.events():
                ended += isinstance(event, ngh2.StreamClosed)
                good += isinstance(event, ngh2.TrailersReceived) and (b"grpc-status", b"0") in event.headers
            self._socket.sendall(self._http.data_to_send())
        return good


def ask_calls(orders: Connection, cases: tuple[Case, ...]) -> None:
    """Send ROUND calls for each order, which is the number of a case; None ends the loop."""
    clients = {case: _clients(case) for case in cases if case[2]}
    channels = {case: grpc.insecure_channel(f"{HOST}:{case[1]}") for case in cases if not case[2]}
    message = question()
    while (at := orders.recv()) is not None:
        case = cases[at]
        _, _, count, at_once = case
        good = 0
        if count:
            for _ in range(ROUND // (count * at_once)):
                for each in clients[case]:
                    each.send()
                good += sum([each.receive() for each in clients[case]])
        else:
            infer = channels[case].unary_unary(INFER, bytes, bytes)
            for _ in range(ROUND // at_once):
                calls = [infer.future(message, timeout=60) for _ in range(at_once)]
                good += sum([len(each.result()) > 0 for each in calls])
        orders.send(good)


def _clients(case: Case) -> list[HttpClient | RpcClient]:
    kind, port, count, at_once = case
    return [(HttpClient if kind == REST else RpcClient)(port, at_once) for _ in range(count)]


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    taken = uvloop.run(measure(parser.parse_args().rounds))
    rest = median(taken[f"{REST}, 32 x 1"])
    print("us of CPU a call, median of the rounds, and how many times REST's:")
    for name, each in taken.items():
        print(f"  {name:36}{median(each):8.1f}{median(each) / rest:7.2f}")


if __name__ == "__main__":
    main()
