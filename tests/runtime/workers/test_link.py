"""Promises of the gateway's end of a worker, against a peer that says whatever a test wants."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from serving.runtime.workers.link import Link
from serving.values.specs import ModelSpec
from serving.worker.frames.batches import (
    SHARED,
    BatchInput,
    EncodedOutput,
    pack_failed,
    pack_result,
    unpack_run,
)
from serving.worker.frames.orders import (
    Loaded,
    LoadOrder,
    MeasuredBatches,
    pack_hello,
    pack_load_failed,
    pack_loaded,
    pack_measured,
    pack_unloaded,
    unpack_load,
)
from serving.worker.frames.shared import PORTION_BYTES, SharedArea
from serving.worker.frames.wire import PAYLOAD_BYTES_MAX, Frame, FrameBuffer, FrameKind, pack_frame
from tests.runtime.recorder import PATIENCE_S, Recorder, model_spec

HELLO = pack_hello(False, {})
ROW = BatchInput("FP32", (1,), [bytes(4)])


class Undying:
    """A process that stays, whatever it is told."""

    pid = 7

    def __init__(self) -> None:
        self.kills = 0

    def kill(self) -> None:
        self.kills += 1


class Peer:
    """A link, and the socket on which a test plays its worker."""

    def __init__(self, heard: Recorder, link: Link, sock: socket.socket) -> None:
        self.heard = heard
        self.link = link
        self.sock = sock

    async def say(self, *frames: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, b"".join(frames))

    async def lost(self, *frames: bytes) -> str:
        """Why the link gives the worker up after it has said this."""
        await self.say(*frames)
        return await self.heard.hear_lost()

    async def run_batch(self, model: ModelSpec, rows: int = 1) -> None:
        """Say hello and be given batch 5 of replica 1."""
        await self.say(HELLO)
        await self.heard.hear("ready")
        self.link.load(1, model, "only")
        self.link.run(5, 1, rows, [BatchInput("FP32", (1,), [bytes(4)] * rows)], ())


@asynccontextmanager
async def linked(
    process: Undying | None = None, areas: tuple[SharedArea, SharedArea] | None = None
) -> AsyncIterator[Peer]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    ours.setblocking(False)
    heard = Recorder()
    link = Link("s", heard, process, areas)
    await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
    try:
        yield Peer(heard, link, theirs)
    finally:
        theirs.close()
    await asyncio.wait_for(link.ended.wait(), PATIENCE_S)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with linked() as alone:
        yield alone


@pytest.fixture
def model(tmp_path: Path) -> ModelSpec:
    return model_spec(tmp_path, {"X": "FP32"}, {"Y": "FP32"})


PORTIONS = 5
LARGE = os.urandom((PORTIONS - 1) * PORTION_BYTES + 4)


class Sharing:
    """A peer with shared memory: what the link has sent, and the peer's ends of both areas."""

    def __init__(self, peer: Peer, requests: SharedArea, answers: SharedArea) -> None:
        self.peer = peer
        self.requests = requests
        self.answers = answers
        self.frames = FrameBuffer()

    def sent(self) -> Frame | None:
        """The next frame that is there."""
        if (frame := self.frames.next()) is None:
            try:
                self.frames.filled(self.peer.sock.recv_into(self.frames.space()))
            except BlockingIOError:
                return None
            frame = self.frames.next()
        return frame

    async def turns_until_sent(self) -> tuple[int, Frame]:
        """How many turns of the loop it takes until the next frame is there."""
        turns = 0
        while (frame := self.sent()) is None:
            await asyncio.sleep(0)
            turns += 1
        return turns, frame

    def answer(self, batch_id: int, data: bytes) -> bytes:
        """An answer of one row in shared memory."""
        self.answers.write([data], len(data))
        output = EncodedOutput("FP32", (len(data) // 4,), data)
        return pack_result((batch_id, 1, 0, 0, 1, SHARED), [output], len(data))


@pytest.fixture
async def sharing(model: ModelSpec) -> AsyncIterator[Sharing]:
    requests, answers = SharedArea.create("requests"), SharedArea.create("answers")
    ends = SharedArea(os.dup(requests.fd)), SharedArea(os.dup(answers.fd))
    async with linked(areas=(requests, answers)) as peer:
        await peer.say(pack_hello(True, {}))
        await peer.heard.hear("ready")
        peer.link.load(1, model, "only")
        found = Sharing(peer, *ends)
        assert (await found.turns_until_sent())[1].kind is FrameKind.LOAD
        yield found
    for each in ends:
        each.close()


async def copying(link: Link) -> None:
    """Until an answer is on its way out of shared memory."""
    async with asyncio.timeout(PATIENCE_S):
        while not link._copying:  # noqa: ASYNC110  # it is the turns that count
            await asyncio.sleep(0)


def large_batch(link: Link, batch_id: int) -> None:
    link.run(batch_id, 1, 1, [BatchInput("FP32", (len(LARGE) // 4,), [LARGE])], ())


def answer(batch_id: int = 5, rows: int = 1, datatype: str = "FP32", dims: tuple[int, ...] = (1,)) -> bytes:
    data = bytes(4 * rows)
    return pack_result((batch_id, 1, 0, 0, rows, 0), [EncodedOutput(datatype, dims, data)], len(data)) + data


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n"], "a frame starts with b'HT'"),
        ([HELLO, b"Pk\x09" + bytes(20)], "speaks wire version 9"),
        ([pack_loaded(Loaded(1, 1, 1))], "first frame is LOADED, expected HELLO"),
        ([HELLO, HELLO], "a second HELLO"),
        ([HELLO, pack_frame(FrameKind.RUN, b"")], "a worker sends no RUN frames"),
        ([HELLO, pack_frame(FrameKind.LOADED, b"[1,2]")], "no JSON object"),
        ([HELLO, pack_frame(FrameKind.RESULT, b"short")], "RESULT frame cannot be read"),
        ([HELLO, answer(77)], "batch 77, which it does not have"),
        ([HELLO, pack_unloaded(1)], "gave back replica 1, which nobody has unloaded"),
        ([HELLO, pack_failed(77, "x")], "batch 77, which it does not have"),
        ([pack_frame(FrameKind.HELLO, orjson.dumps({"pid": "x"}))], "'versions'"),
    ],
)
async def test_a_worker_that_talks_garbage_is_given_up_once_with_the_reason(
    peer: Peer, frames: list[bytes], reason: str
) -> None:
    await peer.say(*frames)
    if len(frames) > 1:
        await peer.heard.hear("ready")
    assert reason in await peer.heard.hear_lost()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (answer(rows=2), "has 2 rows of 1 outputs, expected 1 of 1"),
        (pack_result((5, 1, 0, 0, 1, 0), [], 0), "has 1 rows of 0 outputs"),
        (answer(datatype="INT32"), "output 'Y' is INT32 [1] a row, expected FP32 [-1]"),
        (answer(dims=(1, 1)), "output 'Y' is FP32 [1, 1] a row, expected FP32 [-1]"),
    ],
)
async def test_an_answer_that_breaks_the_spec_is_garbage(
    peer: Peer, model: ModelSpec, said: bytes, reason: str
) -> None:
    await peer.run_batch(model)
    assert reason in await peer.lost(said)


async def test_answers_reach_their_events_in_order(peer: Peer, model: ModelSpec) -> None:
    await peer.run_batch(model, rows=2)
    peer.link.run(6, 1, 1, [ROW], ())
    await peer.say(
        pack_loaded(Loaded(1, 20, 30)), pack_measured(MeasuredBatches(1, 2, 3, [4])), answer(rows=2),
        pack_failed(6, "no"), pack_load_failed(1, "gone"),
    )  # fmt: skip
    assert await peer.heard.hear("loaded") == (1, 20, 30)
    assert await peer.heard.hear("measured") == (1, 2, 3, [4])
    result = await peer.heard.hear_result()
    assert (result.batch_id, result.outputs[0].rows(1, 1)) == (5, bytes(4))
    assert await peer.heard.hear("failed") == (6, "no")
    assert await peer.heard.hear("replica_failed") == (1, "gone")


async def test_late_answers_of_an_unloaded_replica_are_dropped(peer: Peer, model: ModelSpec) -> None:
    await peer.run_batch(model)
    peer.link.unload(1)
    late = [
        pack_loaded(Loaded(1, 1, 1)),
        pack_load_failed(1, "x"),
        pack_measured(MeasuredBatches(1, 1, 1, [1])),
    ]
    await peer.say(*late, answer())
    assert (await peer.heard.hear_result()).batch_id == 5


async def test_a_load_says_of_which_revision_the_models_files_are(peer: Peer, model: ModelSpec) -> None:
    peer.link.load(1, model, "only", "r7")
    await asyncio.sleep(0)
    sent = FrameBuffer()
    sent.filled(peer.sock.recv_into(sent.space()))
    frame = sent.next()
    assert frame is not None
    assert unpack_load(frame) == LoadOrder.of(1, model, "only", "r7")


async def test_what_was_unloaded_is_told_once_when_its_memory_is_given_back(
    peer: Peer, model: ModelSpec
) -> None:
    await peer.run_batch(model)
    peer.link.unload(1)
    peer.link.unload(1)
    await peer.say(answer(), pack_unloaded(1))
    assert (await peer.heard.hear_result()).batch_id == 5
    assert await peer.heard.hear("unloaded") == (1,)
    assert "gave back replica 1" in await peer.lost(pack_unloaded(1))
    sent = FrameBuffer()
    sent.filled(peer.sock.recv_into(sent.space()))
    kinds = [frame.kind for frame in iter(sent.next, None)]
    assert kinds == [FrameKind.LOAD, FrameKind.RUN, FrameKind.UNLOAD]


async def test_the_end_of_the_connection_is_told_once_and_orders_after_it_do_nothing(
    peer: Peer, model: ModelSpec
) -> None:
    await peer.run_batch(model)
    peer.sock.close()
    assert await peer.heard.hear_lost() == "its connection was closed"
    peer.link.run(6, 1, 1, [ROW], ())
    peer.link.load(2, model, "only")
    peer.link.close()
    peer.link.kill()
    await asyncio.sleep(0)
    assert peer.heard.events.empty()


@pytest.mark.slow
async def test_a_process_that_outlives_its_connection_is_killed() -> None:
    process = Undying()
    async with linked(process) as peer:
        peer.sock.close()
        said = await peer.heard.hear_lost()
        assert said == "closed its connection without exiting, and was killed"
        assert process.kills == 1
        peer.link.exited("was killed by SIGKILL")
        assert peer.heard.events.empty()


@pytest.mark.slow
async def test_a_connection_that_outlives_its_process_is_closed(model: ModelSpec) -> None:
    """As where a child of the worker has its socket still."""
    process = Undying()
    async with linked(process) as peer:
        await peer.run_batch(model)
        peer.link.exited("exited with 9")
        assert peer.heard.events.empty()  # there may be answers on their way
        await peer.say(answer())
        assert (await peer.heard.hear_result()).batch_id == 5
        assert await peer.heard.hear_lost() == "exited with 9"
        assert process.kills == 0


async def test_a_closed_link_still_hears_answers_but_sends_nothing(peer: Peer, model: ModelSpec) -> None:
    await peer.run_batch(model)
    peer.link.close()
    peer.link.run(6, 1, 1, [ROW], ())
    peer.link.close()
    await peer.say(answer())
    assert (await peer.heard.hear_result()).batch_id == 5
    peer.sock.close()
    assert await peer.heard.hear_lost() == "its connection was closed"


async def test_a_batch_too_large_for_a_frame_fails_alone_and_later(peer: Peer, model: ModelSpec) -> None:
    await peer.run_batch(model)
    block = bytes(PAYLOAD_BYTES_MAX // 4)
    peer.link.run(6, 1, 5, [BatchInput("FP32", (1,), [block] * 5)], ())
    assert peer.heard.events.empty()  # never from within the call
    batch_id, message = await peer.heard.hear("failed")
    assert batch_id == 6
    assert "at most 1073741824 fit" in str(message)
    await peer.say(answer())
    assert (await peer.heard.hear_result()).batch_id == 5


async def test_a_worker_that_does_not_read_costs_the_loop_nothing(peer: Peer, model: ModelSpec) -> None:
    await peer.run_batch(model)
    block = bytes(64 << 20)
    peer.link.run(6, 1, 1, [BatchInput("FP32", (len(block) // 4,), [block])], ())
    await asyncio.sleep(0)
    peer.link.kill()
    assert await peer.heard.hear_lost() == "its connection was closed"


async def test_a_large_batch_is_shared_in_portions_and_later_orders_stay_behind_it(sharing: Sharing) -> None:
    link = sharing.peer.link
    large_batch(link, 5)
    link.unload(1)
    assert sharing.sent() is None
    turns, frame = await sharing.turns_until_sent()
    assert turns >= PORTIONS - 1
    order = unpack_run(frame, sharing.requests)
    assert (order.batch_id, order.payload == LARGE) == (5, True)
    frame = (await sharing.turns_until_sent())[1]
    assert frame.kind is FrameKind.UNLOAD


async def test_a_link_that_is_closed_while_it_shares_a_batch_sends_it_and_ends(sharing: Sharing) -> None:
    large_batch(sharing.peer.link, 5)
    sharing.peer.link.close()
    _, frame = await sharing.turns_until_sent()
    assert unpack_run(frame, sharing.requests).payload == LARGE
    loop = asyncio.get_running_loop()
    assert await asyncio.wait_for(loop.sock_recv(sharing.peer.sock, 1), PATIENCE_S) == b""


async def test_a_worker_may_end_while_a_batch_is_shared(sharing: Sharing) -> None:
    large_batch(sharing.peer.link, 5)
    sharing.peer.sock.close()
    assert await sharing.peer.heard.hear_lost() == "its connection was closed"


async def test_a_large_answer_is_copied_in_portions_and_what_comes_behind_it_waits(sharing: Sharing) -> None:
    peer, turns = sharing.peer, 0
    peer.link.run(5, 1, 1, [ROW], ())
    peer.link.run(6, 1, 1, [ROW], ())
    await peer.say(sharing.answer(5, LARGE), pack_failed(6, "no"))
    await copying(peer.link)
    while peer.link._copying:
        assert peer.heard.events.empty()
        await asyncio.sleep(0)
        turns += 1
    assert turns >= PORTIONS - 1
    result = await peer.heard.hear_result()
    assert await peer.heard.hear("failed") == (6, "no")
    sharing.answers.write([bytes(len(LARGE))], len(LARGE))  # of the next batch
    assert result.outputs[0].rows(0, 1) == LARGE
    peer.link.run(7, 1, 1, [ROW], ())
    await peer.say(sharing.answer(7, LARGE[:400]))
    assert (await peer.heard.hear_result()).outputs[0].rows(0, 1) == LARGE[:400]


async def test_each_piece_of_a_large_answer_gets_memory_of_its_own(sharing: Sharing) -> None:
    peer = sharing.peer
    peer.link.pieces_of = lambda batch_id: {5: (1, 3)}.get(batch_id, ())
    peer.link.run(5, 1, 4, [ROW], ())
    large = LARGE * 4
    row_bytes = len(LARGE)
    sharing.answers.write([large], len(large))
    output = EncodedOutput("FP32", (row_bytes // 4,), large)
    await peer.say(pack_result((5, 1, 0, 0, 4, SHARED), [output], len(large)))
    (found,) = (await peer.heard.hear_result()).outputs
    assert [found.rows(0, 1), found.rows(1, 3)] == [LARGE, LARGE * 3]


async def test_a_worker_may_end_while_its_answer_is_copied(sharing: Sharing) -> None:
    peer = sharing.peer
    peer.link.run(5, 1, 1, [ROW], ())
    await peer.say(sharing.answer(5, LARGE))
    await copying(peer.link)
    peer.link.kill("took too long")
    assert await peer.heard.hear_lost() == "took too long"
