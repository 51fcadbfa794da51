"""What an API key costs a gRPC call: CPU of a process that serves, all its threads, by what a client sends.

The servers are the gateway's own gRPC edge, with and without keys, in this process. The client is another
process, which asks one call after the other. `loadtests.edge.key_cost` runs it.
"""

from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

import grpc

from loadtests.edge.cpu_rounds import measured_us
from loadtests.hostile.abuse.bombs import INFER
from loadtests.hostile.abuse.rpc_probe import question
from router.grpc.rpc import RpcService
from router.grpc.servers import RPC_SERVERS
from router.protocol.oip import ReadStatistics
from router.security.auth.guard import KeyGuard
from router.settings.gateway import ServerSettings
from serving.ports import Serving
from serving.values.specs import Limits

CALLS = 300  # a round
HOST = "127.0.0.1"
ASK_S = 60.0

Metadata = tuple[tuple[str, str], ...]


async def measure(core: Serving, guard: KeyGuard, text: str, rounds: int) -> dict[str, list[float]]:
    """Return the us of CPU that a call took in each round, by what is sent. The first round warms up and is
    left out."""
    off, on = _server(core, None), _server(core, guard)
    ports = [await each.start(0) for each in (off, on)]
    cases: Mapping[str, tuple[int, Metadata]] = {
        "off": (ports[0], ()),
        "x-api-key": (ports[1], (("x-api-key", text),)),
        "Authorization": (ports[1], (("authorization", f"Bearer {text}"),)),
    }
    try:
        return await measured_us(cases, _ask, CALLS, rounds)
    finally:
        for each in (off, on):
            await each.stop(0)


def _server(core: Serving, guard: KeyGuard | None) -> RpcService:
    statistics: ReadStatistics = lambda _: {}  # noqa: E731  # none are asked for
    server = RPC_SERVERS[ServerSettings().grpc](core, "penstock", "0", Limits(), HOST, statistics)
    if guard is not None:
        server.ask_for_keys(guard)
    return server


def _ask(orders: Connection, cases: Sequence[tuple[int, Metadata]]) -> None:
    """Send CALLS calls for each order, which is the number of a case; None ends it."""
    message = question()
    channels = [grpc.insecure_channel(f"{HOST}:{port}") for port, _ in cases]
    infers = [each.unary_unary(INFER, bytes, bytes) for each in channels]
    while (case := orders.recv()) is not None:
        _, metadata = cases[case]
        answers = [infers[case](message, metadata=metadata, timeout=ASK_S) for _ in range(CALLS)]
        orders.send(sum(len(each) > 0 for each in answers))
    for each in channels:
        each.close()
