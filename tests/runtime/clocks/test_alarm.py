"""What the alarm promises: never early, once, and always for the latest instant asked for."""

import asyncio
import socket
import time

import pytest
import uvloop

from serving.runtime.clocks.alarm import Alarm
from serving.runtime.clocks.clock import now_us
from serving.values.vocabulary import NEVER_US

pytestmark = pytest.mark.live


class Fires:
    """Records the instants at which an alarm fired."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self._event = asyncio.Event()
        self.alarm = Alarm(self._fire)

    def _fire(self, now: int) -> None:
        self.at.append(now)
        self._event.set()

    async def next(self) -> int:
        await self._event.wait()
        self._event.clear()
        return self.at[-1]


@pytest.mark.parametrize("ahead_us", [100, 900, 1_500, 2_500, 7_300])
async def test_it_never_fires_early(ahead_us: int) -> None:
    fires = Fires()
    target = now_us() + ahead_us
    fires.alarm.set(target, now_us())
    assert await fires.next() >= target


async def test_an_instant_that_has_come_fires_in_this_tick_and_once() -> None:
    fires = Fires()
    for _ in range(3):
        fires.alarm.set(now_us(), now_us())
    assert fires.at == []  # never from within `set`
    await fires.next()
    await asyncio.sleep(0)
    assert len(fires.at) == 1


async def test_an_earlier_instant_replaces_a_later_one() -> None:
    fires = Fires()
    start = now_us()
    fires.alarm.set(start + 10_000_000, start)
    fires.alarm.set(start + 2_000, start)
    assert start + 2_000 <= await fires.next() < start + 10_000_000


async def test_a_later_instant_replaces_an_earlier_one() -> None:
    fires = Fires()
    start = now_us()
    fires.alarm.set(start + 1_500, start)
    fires.alarm.set(start + 6_000, start)
    assert await fires.next() >= start + 6_000
    assert len(fires.at) == 1


async def test_never_means_never_and_an_alarm_can_be_asked_again() -> None:
    fires = Fires()
    start = now_us()
    fires.alarm.set(start + 1_500, start)
    fires.alarm.set(NEVER_US, start)
    fires.alarm.set(start + 5_000, start)
    assert await fires.next() >= start + 5_000
    assert len(fires.at) == 1


async def test_a_closed_alarm_stays_silent() -> None:
    fires, other = Fires(), Fires()
    start = now_us()
    fires.alarm.set(start + 1_000, start)
    fires.alarm.close()
    other.alarm.set(start + 4_000, start)
    await other.next()
    assert fires.at == []


@pytest.mark.parametrize("again", [False, True], ids=["once", "asked for again by what came"])
def test_of_a_process_that_stood_still_what_came_meanwhile_is_read_first(again: bool) -> None:
    """With a timer of the loop's own it would not be."""
    seen: list[str] = []

    async def stand_still() -> None:
        loop, start = asyncio.get_running_loop(), now_us()
        (here, there), (answers, worker) = socket.socketpair(), socket.socketpair()
        fires, due_us = Fires(), start + 5_000

        def read() -> None:
            here.recv(1)
            worker.send(b"1")
            time.sleep(0.05)

        def hear() -> None:
            seen.append("answer")
            answers.recv(1)
            if again:
                fires.alarm.set(due_us, now_us())

        loop.add_reader(here, read)
        loop.add_reader(answers, hear)
        fires.alarm.set(due_us, start)
        loop.call_later(0.005, seen.append, "timer")
        there.send(b"1")
        await fires.next()
        seen.append("alarm")
        for each in (here, answers):
            loop.remove_reader(each)
        for each in (here, there, answers, worker):
            each.close()

    uvloop.run(stand_still())
    assert seen == ["timer", "answer", "alarm"]
