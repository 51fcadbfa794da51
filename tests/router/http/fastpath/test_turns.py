"""Many requests in one read: others have turns between, and every one is answered, in order."""

import asyncio
import io
import socket

from uvicorn.config import Config
from uvicorn.server import ServerState

from loadtests.harness.wire import read_answer
from loadtests.hostile.fuzz.http import Application, Line
from router.http.fastpath.edge import FastEdge
from router.http.fastpath.protocol import FED_BYTES, FastProtocol
from serving.values.specs import Limits
from tests.router.fakes import FakeServing

REQUEST = b"GET /%06d HTTP/1.1\r\nHost: a\r\n\r\n"
BEHIND = 2 * FED_BYTES // len(REQUEST % 0)


async def test_a_read_of_many_requests_is_parsed_in_parts_and_answered_whole() -> None:
    application, state = Application(), ServerState()
    edge = FastEdge(FakeServing(), Limits(), state)
    config = Config(application, interface="asgi3", ws="none", lifespan="off", log_config=None)
    config.load()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = Line(ours)
        protocol = FastProtocol(config, edge)
        protocol.connection_made(line)
        protocol.data_received(b"".join(REQUEST % number for number in range(BEHIND)))
        assert len(protocol.pipeline) <= FED_BYTES // len(REQUEST % 0), "the rest waits for another turn"
        assert protocol.eof_received(), "what was read before the end is answered"
        async with asyncio.timeout(60):
            while not line.closed:
                await asyncio.sleep(0)
                assert len(protocol.pipeline) <= FED_BYTES // len(REQUEST % 0), "others have turns between"
        protocol.connection_lost(None)
    edge.close()
    stream = io.BytesIO(bytes(line.written))
    answers = [read_answer(stream) for _ in range(BEHIND)]
    assert all(answer is not None and answer.status == 404 for answer in answers)
    assert application.asked == BEHIND
