"""The feed: a watcher has the whole status and then its changes, and nothing runs while there is none."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from router.logs.events import Events
from router.observing.page.feed import WATCHERS_MAX, Feed
from router.observing.status import Status
from tests.router.observing.test_attention import calm
from tests.router.observing.test_status import ask, new

Body = dict[str, Any]


class Looked:
    """A status that changes as its test says; each look waits for `let`."""

    def __init__(self) -> None:
        self.telemetry = new()
        self.looks = 0
        self._may = asyncio.Semaphore(0)

    async def look(self) -> Status:
        await self._may.acquire()
        self.looks += 1
        return calm(self.telemetry)

    def let(self) -> None:
        self._may.release()


async def read(stream: AsyncIterator[bytes]) -> Body:
    text = (await asyncio.wait_for(anext(stream), 5)).decode()
    head, data = text.split("\n", 1)
    assert head.startswith("id: ")
    assert data.endswith("\n\n")
    found: Body = json.loads(data.removeprefix("data: "))
    return found


def made(look: Callable[[], Awaitable[Status]]) -> tuple[Feed, Events]:
    events = Events()
    return Feed(look, events, 0.0), events


async def test_the_first_message_is_all_and_the_next_what_changed() -> None:
    looked = Looked()
    feed, events = made(looked.look)
    events.add(logging.LogRecord("any", logging.INFO, "", 0, "", None, None), "it began")
    stream = feed.watch()
    looked.let()
    first = await read(stream)
    assert first["whole"]
    assert {"gateway", "attention", "slices", "model/digits", "model/minilm"} <= first["parts"].keys()
    assert [each["text"] for each in first["events"]] == ["it began"]
    ask(looked.telemetry, 3)
    events.add(logging.LogRecord("any", logging.INFO, "", 0, "", None, None), "it went on")
    looked.let()
    second = await read(stream)
    assert not second["whole"]
    assert second["parts"]["model/digits"]["requests"] == 3
    assert "model/minilm" not in second["parts"]
    assert [each["text"] for each in second["events"]] == ["it went on"]
    feed.close()


async def test_a_model_that_has_gone_is_said() -> None:
    looked = Looked()
    found = calm(looked.telemetry)

    async def look() -> Status:
        await looked.look()
        return found

    feed, _ = made(look)
    stream = feed.watch()
    looked.let()
    await read(stream)
    found = {**found, "models": found["models"][:1]}
    looked.let()
    assert (await read(stream))["gone"] == ["model/minilm"]
    feed.close()


async def test_a_slow_watcher_is_given_the_whole_again_and_holds_nobody_up() -> None:
    looked = Looked()
    feed, _ = made(looked.look)
    slow, quick = feed.watch(), feed.watch()
    looked.let()
    await read(slow)
    await read(quick)
    for count in range(1, 4):
        ask(looked.telemetry, 1)
        looked.let()
        assert (await read(quick))["parts"]["model/digits"]["requests"] == count
    late = await read(slow)
    assert late["whole"]
    assert late["parts"]["model/digits"]["requests"] == 3
    feed.close()


async def test_nothing_is_read_after_the_last_watcher_and_all_begins_anew_with_the_next() -> None:
    looked = Looked()
    feed, _ = made(looked.look)
    stream = feed.watch()
    looked.let()
    await read(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # a generator
    looked.let()  # the look that was under way
    task = feed._task
    assert task is not None
    await asyncio.wait_for(task, 5)
    assert (feed.watchers, looked.looks) == (0, 2)
    again = feed.watch()
    looked.let()
    assert (await read(again))["whole"]
    feed.close()


async def test_a_status_that_cannot_be_read_ends_no_stream(caplog: pytest.LogCaptureFixture) -> None:
    looked, failed = Looked(), [False]

    async def look() -> Status:
        if not failed[0]:
            failed[0] = True
            raise RuntimeError("a fault")
        return await looked.look()

    feed, _ = made(look)
    stream = feed.watch()
    looked.let()
    assert (await read(stream))["whole"]
    assert "a fault" in caplog.text
    feed.close()


async def test_close_ends_every_stream() -> None:
    looked = Looked()
    feed, _ = made(looked.look)
    stream = feed.watch()
    looked.let()
    await read(stream)
    feed.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(stream), 5)


async def test_there_is_room_for_so_many() -> None:
    looked = Looked()
    feed, _ = made(looked.look)
    feed.watchers = WATCHERS_MAX
    assert not feed.has_room
    assert [each async for each in feed.watch()] == []
