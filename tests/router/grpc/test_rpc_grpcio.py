"""What only grpc.aio's server does: how it ends, what it logs, what it keeps."""

import asyncio
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from loadtests.hostile import h2wire
from router.protocol.account import Account
from serving.values.specs import Limits
from tests.router.rpc_edge import INFER, Core, completed, serve, simple_request
from tests.router.rpc_wire import PATH, identity_request, said, wire

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_a_fault_that_ends_grpcs_server_ends_no_edge() -> None:
    """In a process of its own: grpc.aio has one queue of events for all event loops, and one for the loop of
    an earlier test can hide the next until another comes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.router.ended_edge"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [each for each in done.stderr.splitlines() if "PollerCompletionQueue" not in each]
    assert lines == ["the grpc edge had ended by itself and was started again"]


async def test_messages_and_answers_count_while_they_are_there() -> None:
    core = Core(lambda call: None)
    async with serve(core) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        account = Account(Limits())
        edge.server.count(account)
        call = channel.stream_stream(INFER)()  # a client that does not read, or not yet
        await call.write(identity_request(1_000_000))
        await call.done_writing()
        await core.change()
        assert account.held_bytes == 0  # the core has the call, and counts it
        core.open[1](completed(core.calls[0]))
        async with asyncio.timeout(60):
            while not account.held_bytes:  # noqa: ASYNC110  # until the call's task has gone on
                await asyncio.sleep(0)
        assert 2_000_000 < account.by_kind()["grpc_answers"] < 2_002_000  # grpc has a copy
        call.cancel()
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()
        assert account.held_bytes == 0


async def test_metadata_that_is_no_text_is_said_once_and_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = simple_request().SerializeToString()
    async with serve() as edge, wire(edge) as raw:
        for stream in (1, 3):
            raw.send(h2wire.call(stream, PATH, (b"x-odd", b"\xff\xfe")) + h2wire.message(stream, body))
            assert await raw.status(stream) == 0
    assert said(caplog) == ["a gRPC client sends metadata that is not UTF-8; it is read as Latin-1"]
