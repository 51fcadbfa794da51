"""A connected Redis tier for tests, and how it is asked."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from loadtests.stand.redis_server import RedisServer
from serving.cache.entries import KeptAnswer, entry_of
from serving.cache.spec import RedisSpec
from serving.runtime.caching import redis_tier, redis_wire
from serving.runtime.caching.redis_tier import FaultOf, Found, RedisQuery, RedisTier
from serving.runtime.clocks.clock import now_us
from serving.values.tensor import Tensor
from tests.runtime.house import until

EPOCH_US = 1_800_000_000_000_000
TTL_US = 60_000_000
LEASE_US = 30_000_000
PATIENT_US = 10_000_000
"""A budget that no shared machine spends by itself."""

KEY = bytes(range(32))
OTHER = bytes(32)


@contextmanager
def away_after(latest_s: float) -> Iterator[None]:
    """A server is taken for gone that says nothing for so long."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (redis_tier, redis_wire):
            patch.setattr(module, "LATEST_S", latest_s)
        yield


@asynccontextmanager
async def tier_on(
    server: RedisServer,
    budget_us: int = PATIENT_US,
    namespace: str = "house",
    password: str = "",
    key: str = "",
) -> AsyncIterator[RedisTier]:
    """In touch with the server, for the models a and b, until the end."""
    spec = RedisSpec(server.url, password, namespace, budget_us, key)
    tier = RedisTier(spec, TTL_US, ("a", "b"), EPOCH_US)
    async with running(tier):
        await until(lambda: tier.usable)
        yield tier


@asynccontextmanager
async def running(tier: RedisTier) -> AsyncIterator[None]:
    task = asyncio.create_task(tier.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def ask(
    tier: RedisTier,
    key: bytes = KEY,
    model: str = "a",
    lease_us: int = LEASE_US,
    fault_of: FaultOf = lambda _entry: "",
) -> "asyncio.Future[Found]":
    told: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
    tier.look(RedisQuery(model, key, lease_us, told.set_result, fault_of))
    return told


def answer(number: int = 7, model: str = "a") -> KeptAnswer:
    return entry_of(model, "fp32", [Tensor("y", "INT8", (1, 1), bytes([number]))], now_us())


async def share(tier: RedisTier, entry: KeptAnswer, key: bytes = KEY) -> None:
    """It is in Redis when this returns."""
    written = tier.counts.written
    tier.put(key, entry)
    await until(lambda: tier.counts.written > written)


def number_of(found: Found) -> int:
    assert isinstance(found, KeptAnswer)
    return int(found.outputs[0].data[0])
