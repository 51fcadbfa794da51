"""Commands that would end sequences wait for them, in order; all others are carried out at once."""

import asyncio
from collections.abc import Sequence

import pytest

from serving.control.commands import Command, Route, UnloadReplica, Unroute, Withdraw
from serving.runtime.draining import Draining
from tests.builders import profile


class Places:
    """One replica, number 1 of "m" "a" on "s", with `live` sequences."""

    def __init__(self, live: int, drain_s: float = 3600.0) -> None:
        self.live = live
        self.sequence_drain_s = drain_s

    def close_place(self, slice_name: str, model: str, variant: str) -> int:
        return self.live if (slice_name, model, variant) == ("s", "m", "a") else 0

    def replica_of(self, slice_name: str, model: str, variant: str) -> int:
        return 1 if (slice_name, model, variant) == ("s", "m", "a") else 0


class Driver:
    """Carries out what is not held back, as the fleet does."""

    def __init__(self, places: Places) -> None:
        self.done: list[Command] = []
        self.places = places
        self.settled = asyncio.Event()
        self.draining = Draining(places, self._carry_out)

    def tell(self, *commands: Command) -> None:
        for command in commands:
            if not self.draining.holds(command):
                self.done.append(command)

    def _carry_out(self, commands: Sequence[Command]) -> None:
        self.done += commands
        self.settled.set()

    async def end_sequences(self) -> None:
        self.places.live = 0
        async with asyncio.timeout(60):
            await self.settled.wait()


UNROUTE, UNLOAD = Unroute("s", "m", "a", "it moves"), UnloadReplica("s", 1)
NEXT = Route("s", 2, "m", "a", profile())


async def test_a_replica_without_sequences_goes_at_once() -> None:
    driver = Driver(Places(0))
    driver.tell(UNROUTE, UNLOAD)
    assert driver.done == [UNROUTE, UNLOAD]


@pytest.mark.parametrize("commands", [(UNROUTE, UNLOAD), (NEXT, UNLOAD)], ids=["a move", "a new revision"])
async def test_a_replica_with_sequences_goes_when_they_have_ended(commands: tuple[Command, ...]) -> None:
    driver = Driver(Places(2))
    other = UnloadReplica("t", 1)
    driver.tell(*commands, other)
    assert driver.done == [other]
    await driver.end_sequences()
    assert driver.done == [other, *commands]


async def test_the_gateway_waits_no_longer_than_it_may() -> None:
    driver = Driver(Places(2, drain_s=0.0))
    driver.tell(UNROUTE, UNLOAD)
    assert driver.done == []
    async with asyncio.timeout(60):
        await driver.settled.wait()
    assert driver.done == [UNROUTE, UNLOAD]


async def test_a_replica_that_stays_after_all_is_routed_at_once_and_not_unrouted_later() -> None:
    driver = Driver(Places(2))
    again = Route("s", 1, "m", "a", profile())
    driver.tell(UNROUTE, again)
    assert driver.done == [again]
    driver.tell(Unroute("s", "m", "a", "again"))
    await driver.end_sequences()
    assert driver.done == [again, Unroute("s", "m", "a", "again")]


async def test_a_successor_that_is_unloaded_before_it_took_over_never_does() -> None:
    driver = Driver(Places(2))
    gone = UnloadReplica("s", 2)
    driver.tell(NEXT, UNLOAD, gone)
    assert driver.done == [gone]
    await driver.end_sequences()
    assert driver.done == [gone, UNLOAD]


async def test_what_waits_goes_with_its_worker() -> None:
    driver = Driver(Places(2))
    lost = Withdraw("s", "died")
    driver.tell(UNROUTE, UNLOAD, lost)
    driver.tell(Unroute("s", "m", "a", "another"))
    await driver.end_sequences()
    assert driver.done == [lost, Unroute("s", "m", "a", "another")]
