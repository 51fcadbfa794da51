"""`POST /v2/slices/{name}/lost` and `/back`: what a cloud's agent says of spot slices is done, and shown."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

import httpx
import pytest
from fastapi import FastAPI

from router.management.operations.notices import IN_S_MAX, UNSAID, Notices, add_notices, slices_of
from serving.control.control import Control
from serving.values.objectives import ReplicaSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits
from tests.builders import KIND, served

SPOT = SliceSpec("cpu-a", (), spot=True)
OTHER = SliceSpec("cpu-b", (), spot=True)
OWN = SliceSpec("own", ())


@dataclass
class Devices:
    """What they were told, in order. `ended` is clear while something of what was lost still lives."""

    told: list[tuple[str, ...]] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def _tell(self, *said: str) -> None:
        self.told.append(said)
        self.heard.set()

    def device_leaving(self, domain: str, reason: str) -> None:
        self._tell("leaving", domain, reason)

    def device_lost(self, domain: str, reason: str) -> None:
        self._tell("lost", domain, reason)

    def device_back(self, domain: str) -> None:
        self._tell("back", domain)

    async def told_times(self, times: int) -> None:
        while len(self.told) < times:
            self.heard.clear()
            await self.heard.wait()

    async def device_ended(self, domain: str) -> None:
        self._tell("waits", domain)
        await self.ended.wait()


@dataclass
class House:
    devices: Devices
    notices: Notices
    client: httpx.AsyncClient
    slices: dict[str, SliceSpec]


@asynccontextmanager
async def house() -> AsyncIterator[House]:
    devices, app = Devices(), FastAPI()
    devices.ended.set()
    slices = {each.name: each for each in (SPOT, OTHER, OWN)}
    notices = Notices(devices, lambda: slices)
    add_notices(app, notices)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield House(devices, notices, client, slices)


@contextmanager
def nothing_told(here: House) -> Iterator[None]:
    yield
    assert here.devices.told == []
    assert here.notices.said(SPOT) == ""


async def test_a_slice_is_lost_at_once_where_no_time_is_said() -> None:
    async with house() as here:
        answer = await here.client.post("/v2/slices/cpu-a/lost")
        assert (answer.status_code, answer.json()) == (202, {"slices": ["cpu-a"], "in_s": 0.0})
        assert here.devices.told == [("lost", "spot cpu-a", UNSAID)]
        assert here.notices.said(SPOT) == f"lost: {UNSAID}"
        assert here.notices.said(OTHER) == ""


async def test_a_slice_that_will_be_lost_is_left_first_and_lost_then() -> None:
    async with house() as here:
        body = {"in_s": 3600, "reason": "rebalance"}
        assert (await here.client.post("/v2/slices/cpu-a/lost", json=body)).status_code == 202
        assert here.devices.told == [("leaving", "spot cpu-a", "rebalance")]
        assert re.fullmatch(r"will be lost in 3[56]\d\d s: rebalance", here.notices.said(SPOT))
        assert (await here.client.post("/v2/slices/cpu-b/lost", json=body | {"in_s": 0.02})).is_success
        await here.devices.told_times(3)
        assert here.devices.told[1:] == [
            ("leaving", "spot cpu-b", "rebalance"),
            ("lost", "spot cpu-b", "rebalance"),
        ]
        assert here.notices.said(OTHER) == "lost: rebalance"


async def test_who_stays_after_all_is_not_lost() -> None:
    async with house() as here:
        await here.client.post("/v2/slices/cpu-a/lost", json={"in_s": 3600})
        answer = await here.client.post("/v2/slices/cpu-a/back")
        assert (answer.status_code, answer.json()) == (202, {"slices": ["cpu-a"]})
        here.notices.lost("cpu-a", in_s=0.02)
        await here.notices.back("cpu-a")  # before the loop looks at its timers again, however late that is
        here.notices.lost("cpu-b", in_s=0.04)
        await here.devices.told_times(6)
        domains = [(what, domain) for what, domain, *_ in here.devices.told]
        assert domains[:4] == [("leaving", "spot cpu-a"), ("back", "spot cpu-a")] * 2
        assert domains[4:] == [("leaving", "spot cpu-b"), ("lost", "spot cpu-b")]


async def test_a_sooner_notice_takes_the_place_of_a_later_one() -> None:
    async with house() as here:
        here.notices.lost("cpu-a", "some time", in_s=3600)
        here.notices.lost("cpu-a", "now", in_s=0)
        assert here.devices.told == [("leaving", "spot cpu-a", "some time"), ("lost", "spot cpu-a", "now")]
        here.notices.lost("cpu-a", "again", in_s=5)
        assert here.notices.said(SPOT) == "lost: again"
        assert len(here.devices.told) == 2


async def test_what_is_back_waits_until_what_ran_there_has_ended() -> None:
    async with house() as here:
        here.devices.ended.clear()
        here.notices.lost("cpu-a")
        back = asyncio.create_task(here.notices.back("cpu-a"))
        await asyncio.sleep(0)
        assert [what for what, *_ in here.devices.told] == ["lost", "waits"]
        here.devices.ended.set()
        assert await back == ["cpu-a"]
        assert here.devices.told[-1] == ("back", "spot cpu-a")
        assert here.notices.said(SPOT) == ""


async def test_what_is_lost_again_while_it_comes_back_stays_lost() -> None:
    async with house() as here:
        here.devices.ended.clear()
        here.notices.lost("cpu-a")
        back = asyncio.create_task(here.notices.back("cpu-a"))
        await asyncio.sleep(0)
        here.notices.lost("cpu-a", "again")
        here.devices.ended.set()
        await back
        assert [what for what, *_ in here.devices.told] == ["lost", "waits"]
        assert here.notices.said(SPOT) == "lost: again"


async def test_what_nobody_said_was_lost_is_back_without_more_ado() -> None:
    async with house() as here:
        with nothing_told(here):
            assert (await here.client.post("/v2/slices/cpu-a/back")).status_code == 202


async def test_a_slice_that_has_another_share_by_now_goes_by_its_name() -> None:
    async with house() as here:
        here.slices["cpu-a~2"] = SliceSpec("cpu-a~2", (), threads=2, spot=True)
        assert here.notices.lost("cpu-a") == ["cpu-a", "cpu-a~2"]
        assert [domain for _, domain, _ in here.devices.told] == ["spot cpu-a", "spot cpu-a~2"]


@pytest.mark.parametrize("verb", ["lost", "back"])
async def test_an_unknown_slice_is_404_and_one_that_is_not_spot_409(verb: str) -> None:
    async with house() as here:
        with nothing_told(here):
            unknown = await here.client.post(f"/v2/slices/cpu-aa/{verb}")
            assert (unknown.status_code, unknown.json()["error"]) == (
                404,
                "there is no slice 'cpu-aa'; did you mean 'cpu-a'?",
            )
            own = await here.client.post(f"/v2/slices/own/{verb}")
            assert own.status_code == 409
            assert "`spot: true`" in own.json()["error"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object, got a list"),
        ('{"in": 3}', "a notice has no field 'in'; did you mean 'in_s'?"),
        ('{"in_s": "30"}', "'in_s' must be a number of seconds, got '30'"),
        ('{"in_s": true}', "'in_s' must be a number of seconds, got true"),
        ('{"in_s": -1}', "'in_s' must be from 0 to 86400 seconds, got -1"),
        (f'{{"in_s": {IN_S_MAX + 1}}}', "'in_s' must be from 0 to 86400 seconds"),
        ('{"reason": 3}', "'reason' must be a line of text, got 3"),
        ('{"reason": " "}', "'reason' must be a line of text"),
        ('{"reason": "two\\nlines"}', "'reason' must be a line of text"),
        (f'{{"reason": "{"x" * 201}"}}', "'reason' may have 200 characters, got 201"),
    ],
)
async def test_a_body_that_says_nothing_sound_is_400_and_names_the_field(body: str, said: str) -> None:
    async with house() as here:
        with nothing_told(here):
            answer = await here.client.post("/v2/slices/cpu-a/lost", content=body)
            assert answer.status_code == 400
            assert said in answer.json()["error"]


async def test_a_body_that_is_too_long_is_413_and_one_of_back_is_refused() -> None:
    async with house() as here:
        with nothing_told(here):
            answer = await here.client.post("/v2/slices/cpu-a/lost", content=b" " * 20_000)
            assert answer.status_code == 413
            answer = await here.client.post("/v2/slices/cpu-a/back", json={"in_s": 3})
            assert (answer.status_code, "'in_s'" in answer.json()["error"]) == (400, True)


def test_slices_that_the_load_needs_not_now_are_known_too() -> None:
    scaled = replace(served(slices=("cpu-a", "cpu-b")), replicas=ReplicaSpec())
    control = Control([SPOT, OTHER], [scaled], {}, Limits(), lambda _spec: KIND)
    control.start(0)
    assert len(control.slices) == 1
    assert slices_of(control) == {"cpu-a": SPOT, "cpu-b": OTHER}
