"""What a look in Redis, and an answer written to it, cost a gateway.

  python -m loadtests.memory.redis_cost

One process asks a Redis server of its own over a unix socket: so many looks in one tick, for answers of so
many bytes. CPU is that of this process alone, all of redis-py and asyncio included. First, without Redis:
what the signature of a value takes, and all of reading it.
"""

import argparse
import asyncio
import time
import timeit
from collections.abc import Sequence
from functools import partial
from hmac import digest

import numpy as np
import uvloop

from loadtests.stand.redis_server import redis_server
from serving.cache.entries import KeptAnswer, entry_of
from serving.cache.spec import RedisSpec
from serving.cache.values import decode, encode, seal_of
from serving.runtime.caching.redis_tier import Found, RedisQuery, RedisTier
from serving.runtime.clocks.clock import now_us
from serving.values.tensor import Tensor

MODEL = "m"
SIZES = (1_000, 100_000)
SIGNED = (40, 1_000, 64 << 10)
COUNTS = (1, 8, 32)
BUDGET_US = 10_000_000
TTL_US = LEASE_US = 60_000_000


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300, help="ticks with looks, of each case")
    rounds = parser.parse_args().rounds
    _sign(rounds)
    uvloop.run(_measure(rounds))


def _sign(rounds: int) -> None:
    """Print what a signature takes, alone and with all that makes an answer of a value."""
    seal, key, now = seal_of("a password"), _key(0), now_us()
    for size_bytes in SIGNED:
        entry = entry_of(MODEL, "fp32", [Tensor("y", "UINT8", (1, size_bytes), bytes(size_bytes))], now)
        raw = encode(key, entry, 0, seal)
        sign, read = partial(digest, seal, raw, "sha256"), partial(decode, key, raw, MODEL, (0, now), seal)
        signed_us, read_us = (min(timeit.repeat(work, number=rounds, repeat=5)) for work in (sign, read))
        each = 1e6 / rounds
        print(f"value of {size_bytes} bytes: HMAC {signed_us * each:.1f} us, read {read_us * each:.1f} us")


async def _measure(rounds: int) -> None:
    with redis_server() as server:
        tier = RedisTier(RedisSpec(server.url, budget_us=BUDGET_US), TTL_US, (MODEL,), time.time_ns() // 1000)
        life = asyncio.create_task(tier.run())
        while not tier.usable:  # noqa: ASYNC110  there is no event of it
            await asyncio.sleep(0.01)
        for size_bytes in SIZES:
            for count in COUNTS:
                keys = [_key(number) for number in range(count)]
                await _share(tier, keys, size_bytes)
                await _look(tier, [keys] * rounds, f"hit, {size_bytes / 1e3:g} KB")
        for count in COUNTS:
            numbers = iter(range(10**6 * count, 10**7 * count))
            unknown = [[_key(next(numbers)) for _ in range(count)] for _ in range(rounds)]
            await _look(tier, unknown, "miss")
        cpu_s = time.process_time()
        for number in range(rounds):
            await _share(tier, [_key(10**9 + 8 * number + place) for place in range(8)], SIZES[0])
        cpu_us = (time.process_time() - cpu_s) / rounds / 8 * 1e6
        print(f"write, {SIZES[0] / 1e3:g} KB, 8 at once: CPU {cpu_us:.1f} us")
        life.cancel()
        await asyncio.wait([life])


async def _look(tier: RedisTier, ticks: Sequence[Sequence[bytes]], name: str) -> None:
    took_us = []
    cpu_s = time.process_time()
    for keys in ticks:
        start_us = time.perf_counter() * 1e6
        found = await asyncio.gather(*(_asked(tier, key) for key in keys))
        took_us.append(time.perf_counter() * 1e6 - start_us)
        if any(each is None or isinstance(each, KeptAnswer) != name.startswith("hit") for each in found):
            raise RuntimeError(f"{name}: not what was to be found")
    count = len(ticks[0])
    cpu_us = (time.process_time() - cpu_s) / len(ticks) / count * 1e6
    p50_us, p99_us = np.percentile(took_us, (50, 99))
    print(
        f"{name}, {count} at once: CPU {cpu_us:.1f} us a look, told after {p50_us:.0f} us, p99 {p99_us:.0f}"
    )


def _asked(tier: RedisTier, key: bytes) -> "asyncio.Future[Found]":
    told: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
    tier.look(RedisQuery(MODEL, key, LEASE_US, told.set_result))
    return told


async def _share(tier: RedisTier, keys: Sequence[bytes], size_bytes: int) -> None:
    written = tier.counts.written + len(keys)
    output = Tensor("y", "UINT8", (1, size_bytes), bytes(size_bytes))
    for key in keys:
        tier.put(key, entry_of(MODEL, "v", [output], now_us()))
    while tier.counts.written < written:  # noqa: ASYNC110  there is no event of it
        await asyncio.sleep(0.001)


def _key(number: int) -> bytes:
    return number.to_bytes(32, "little")


if __name__ == "__main__":
    main()
