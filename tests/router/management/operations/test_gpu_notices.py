"""`POST /v2/devices/{name}/back`: an operator says that a GPU is good, and its slices use it again."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI

from router.management.devices import DeviceBoard
from router.management.operations.gpu_notices import add_gpu_notices
from serving.policy.device_health import GpuReading, Placed, Xid
from serving.runtime.slicing.opening import DeviceShares
from serving.values.slice_specs import Share, SliceSpec

UUID = "GPU-11111111"
CALM = GpuReading(UUID, 3, "NVIDIA H200", xids=())
SPEC = SliceSpec("a", (), device="cuda:0", part=Share("mps", 50.0), kind="gpu-nvidia-h200")


@dataclass
class Fleet:
    """What a `serving.runtime.fleet.Fleet` is told of devices."""

    told: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        records = {name: SimpleNamespace(spec=replace(SPEC, name=name)) for name in ("a", "b")}
        self.control = SimpleNamespace(slices=records)

    def device_lost(self, domain: str, reason: str) -> None:
        self.told.append(("lost", domain))

    async def device_ended(self, domain: str) -> None:
        self.told.append(("waits", domain))

    def device_back(self, domain: str) -> None:
        self.told.append(("back", domain))


@dataclass
class House:
    fleet: Fleet
    board: DeviceBoard
    shares: DeviceShares
    client: httpx.AsyncClient

    def read(self, *readings: GpuReading) -> None:
        for each in readings:
            self.board._watch.hear([each])

    async def back(self, name: str) -> tuple[int, object]:
        answer = await self.client.post(f"/v2/devices/{name}/back")
        return answer.status_code, answer.json()


@asynccontextmanager
async def house(placed: Sequence[str] = ("a", "b")) -> AsyncIterator[House]:
    fleet, app, shares = Fleet(), FastAPI(), DeviceShares(environ={})
    shares._placed = {name: Placed(UUID, "", "mps") for name in placed}
    board = DeviceBoard(fleet, shares)  # type: ignore[arg-type]  # it tells the fleet of devices only
    add_gpu_notices(app, board.back)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield House(fleet, board, shares, client)
    await shares.stop()


@pytest.mark.parametrize("name", ["cuda:0", "gpu-3", UUID])
async def test_a_gpu_that_was_reset_is_used_again_by_all_of_its_slices(name: str) -> None:
    async with house() as here:
        here.read(CALM, replace(CALM, xids=(Xid(119),)), CALM)
        assert here.board.cordoned
        assert await here.back(name) == (202, {"slices": ["a", "b"]})
        assert here.fleet.told == [("lost", "cuda:0"), ("waits", "cuda:0"), ("back", "cuda:0")]
        assert not here.board.cordoned
        assert await here.back(name) == (202, {"slices": []})  # it is in use already


async def test_a_gpu_that_is_still_faulty_stays_lost_with_the_reason() -> None:
    async with house() as here:
        here.read(CALM, replace(CALM, xids=(Xid(64),), rows_failed=True))
        status, told = await here.back("cuda:0")
        assert status == 409
        assert "'cuda:0' cannot be used: a faulty row of its memory could not be replaced" in str(told)
        assert here.fleet.told == [("lost", "cuda:0")]


async def test_a_gpu_that_no_slice_uses_is_named_with_those_that_are_used() -> None:
    async with house() as here:
        here.read(CALM)
        status, told = await here.back("cuda:1")
        assert status == 404
        assert "no slice uses a GPU 'cuda:1'" in str(told)
        assert "cuda:0" in str(told)
    async with house(()) as here:
        assert (await here.back("cuda:0"))[0] == 404


async def test_slices_that_were_lost_with_their_daemon_are_tried_again() -> None:
    async with house() as here:
        here.read(CALM)
        here.shares.on_broken("cuda:0", "the MPS daemon could not be started")
        assert await here.back("cuda:0") == (202, {"slices": ["a", "b"]})
        assert here.fleet.told == [("lost", "cuda:0"), ("waits", "cuda:0"), ("back", "cuda:0")]
