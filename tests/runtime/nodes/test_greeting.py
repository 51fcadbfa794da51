"""Promises of the greeting: who has the key is let in, and nothing that was sent lets another in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from serving.runtime.nodes.greeting import NotAdmittedError, admit, call_at, proof_of
from serving.runtime.nodes.notes import NODE, WORKER, Admitted, Challenge, Greet, Proof
from serving.runtime.nodes.stream import UNKNOWN_BYTES_MAX, NoteStream
from serving.worker.frames.wire import ProtocolError

KEY = "0123456789abcdef"


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[NoteStream, NoteStream]]:
    """A caller's stream and the door's."""
    there: asyncio.Future[NoteStream] = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there.set_result(NoteStream(reader, writer))

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    caller, door = NoteStream(reader, writer), await there
    try:
        yield caller, door
    finally:
        caller.abort()
        door.abort()
        server.close()


async def test_a_caller_with_the_key_is_let_in_and_both_know_it() -> None:
    async with connected() as (caller, door):
        calling = asyncio.create_task(call_at(caller, NODE, "a", KEY))
        greet = await admit(door, lambda _greet: KEY)
        assert (greet.role, greet.name) == (NODE, "a")
        door.send(Admitted())
        await calling
        assert caller.known
        assert door.known


@pytest.mark.parametrize("known", [True, False])
async def test_a_caller_without_the_key_is_not_let_in(known: bool) -> None:
    """An unknown name is treated as a wrong key is: nothing tells them apart."""
    async with connected() as (caller, door):
        caller.send(Greet(NODE, "a", "00"))
        admitting = asyncio.create_task(admit(door, lambda _greet: KEY if known else ""))
        await caller.expect(Challenge)
        caller.send(Proof("00" * 32))
        with pytest.raises(NotAdmittedError, match="has another token"):
            await admitting
        assert not door.known


async def test_a_caller_leaves_a_door_without_the_key_before_it_proves_anything() -> None:
    async with connected() as (caller, door):
        calling = asyncio.create_task(call_at(caller, NODE, "a", KEY))
        greet = await door.expect(Greet)
        door.send(Challenge("11", proof_of("another", "door", greet, "11")))
        with pytest.raises(NotAdmittedError, match="the gateway has another token"):
            await calling
        caller.abort()
        assert await door.read() is None


async def test_a_recorded_proof_lets_nobody_in() -> None:
    async with connected() as (caller, door):
        admitting = asyncio.create_task(admit(door, lambda _greet: KEY))
        greet = Greet(NODE, "a", "00")
        caller.send(greet)
        await caller.expect(Challenge)
        caller.send(Proof(proof_of(KEY, "caller", greet, "an earlier nonce")))
        with pytest.raises(NotAdmittedError):
            await admitting


def test_no_proof_stands_for_another_side_role_or_name() -> None:
    greets = [
        Greet(NODE, "1", "00"),
        Greet(WORKER, "1", "00"),
        Greet(NODE, "2", "00"),
        Greet(NODE, "1", "01"),
    ]
    proofs = {
        proof_of(KEY, side, greet, nonce) for side in ("door", "caller") for greet in greets for nonce in "12"
    }
    assert len(proofs) == 2 * len(greets) * 2


async def test_a_stranger_cannot_make_the_door_hold_much() -> None:
    async with connected() as (caller, door):
        admitting = asyncio.create_task(admit(door, lambda _greet: KEY))
        caller.send(Greet(NODE, "a" * 4 * UNKNOWN_BYTES_MAX, "00"))
        with pytest.raises(ProtocolError, match="before it proved itself"):
            await admitting


async def test_what_is_no_frame_is_refused() -> None:
    async with connected() as (caller, door):
        caller.writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        with pytest.raises(ProtocolError, match="a frame starts with b'GE'"):
            await admit(door, lambda _greet: KEY)
