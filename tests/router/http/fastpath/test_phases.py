"""A request's time begins with the read of its first byte, and ends as its answer is handed to the kernel."""

import socket

from uvicorn.config import Config
from uvicorn.server import ServerState

from loadtests.hostile.fuzz.http import Application, Line
from router.http.fastpath.edge import FastEdge
from router.http.fastpath.protocol import FastProtocol
from serving.values.specs import Limits
from tests.router.fakes import FakeServing
from tests.router.http.fastpath.wire import infer
from tests.runtime.ground import turn


class Timed(FakeServing):
    """Its clock stands still until a test moves it; its core answers at 300 us."""

    def __init__(self) -> None:
        super().__init__()
        self.clock_us = 0
        self.said = {"ready_us": 300, "answered_us": 300}

    def now_us(self) -> int:
        return self.clock_us


async def test_the_time_of_a_request_reaches_from_its_first_byte_until_its_answer_is_handed_on() -> None:
    serving = Timed()
    edge = FastEdge(serving, Limits(), ServerState())
    config = Config(Application(), interface="asgi3", ws="none", lifespan="off", log_config=None)
    config.load()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = Line(ours)
        protocol = FastProtocol(config, edge)
        protocol.connection_made(line)
        protocol.data_received(b"POS")
        serving.clock_us = 300
        protocol.data_received(infer(1)[3:])
        assert b"server-timing: request;dur=0.300, queue" in bytes(line.written)
        serving.clock_us = 370  # others are answered in the same turn, before the kernel is given anything
        await turn()
        protocol.connection_lost(None)
    edge.close()
    told = serving.telemetry.statistics("simple")["inference_stats"]
    spent_ns = {name: told[name]["ns"] for name in ("success", "compute_input", "compute_output")}
    assert spent_ns == {"success": 370_000, "compute_input": 300_000, "compute_output": 70_000}
