"""Where cells meet: Redis has what each says of itself, which one decides, and the map that it decided.

One script a beat, so that a cell sees all of that as it was at one moment, by Redis' own clock.
"""

import asyncio
from typing import Any, Final, NamedTuple  # Any: what Redis answers

import orjson
from redis.exceptions import RedisError

from serving.cache.spec import RedisSpec
from serving.runtime.caching.redis_wire import LATEST_S, Wire, connect, pool_of

GONE_S: Final = 3.0
"""A cell that says nothing for so long is gone. A gateway that starts again after a crash is back in 1.2 s
(`python -m loadtests.failures.gateway_faults`), and keeps its models."""

MEET: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if ARGV[3] ~= '' then
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
    redis.call('ZADD', KEYS[2], now, ARGV[1])
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[4])) do
    redis.call('ZREM', KEYS[2], name)
    redis.call('HDEL', KEYS[1], name)
end
local leader = redis.call('GET', KEYS[3])
if ARGV[3] ~= '' and (not leader or leader == ARGV[2]) then
    redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[4])
    leader = ARGV[2]
end
return {redis.call('HGETALL', KEYS[1]), leader or '', redis.call('GET', KEYS[4]) or '', before}
"""
PUBLISH: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
return 1
"""
LEAVE: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[3] then
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('ZREM', KEYS[2], ARGV[1])
end
if redis.call('GET', KEYS[3]) == ARGV[2] then redis.call('DEL', KEYS[3]) end
return 1
"""


class Seen(NamedTuple):
    """What a meeting showed.

    `cells`: what each says of itself, by name; `leads`: this cell decides; `map`: what was decided last;
    `before`: what was said for this cell before. Both are empty for nothing.
    """

    cells: dict[str, dict[str, Any]]
    leads: bool
    map: dict[str, Any]
    before: dict[str, Any]


class Meeting:
    """One cell at the meetings. `who`: of this process, so that its successor of the same name is another."""

    def __init__(self, spec: RedisSpec, name: str, who: str) -> None:
        start = f"{spec.namespace}:cells:"
        self._keys = [start + "there", start + "heard", start + "leader", start + "map"]
        self._pool = pool_of(spec)
        self._name = name
        self._who = who
        self._wire: Wire | None = None

    async def meet(self, said: bytes) -> Seen:
        """Say of this cell what `said` says (JSON, b"" for nothing), and see the others.

        Raises OSError if Redis is not there.
        """
        there, leader, decided, before = await self._run(
            MEET, self._keys, self._name, self._who, said, round(GONE_S * 1000)
        )
        pairs = zip(there[::2], there[1::2], strict=True)
        return Seen(
            {name.decode(): orjson.loads(record) for name, record in pairs},
            leader == self._who.encode(),
            orjson.loads(decided) if decided else {},
            orjson.loads(before) if before else {},
        )

    async def publish(self, decided: bytes) -> bool:
        """Publish a map (JSON); return False if another cell decides now. Raises OSError."""
        done = await self._run(PUBLISH, self._keys[2:], self._who, decided)
        return bool(done)

    async def leave(self, said: bytes) -> None:
        """Take back what this cell said last, unless its successor has said something. Raises OSError."""
        await self._run(LEAVE, self._keys[:3], self._name, self._who, said)

    async def close(self) -> None:
        """Close the connection."""
        if self._wire is not None:
            wire, self._wire = self._wire, None
            await wire.close()

    async def _run(self, script: str, keys: list[str], *given: bytes | str | int) -> Any:
        try:
            if self._wire is None:
                self._wire = await connect(self._pool)
            async with asyncio.timeout(LATEST_S):
                return await self._wire.one("EVAL", script, len(keys), *keys, *given)
        except (RedisError, OSError, ValueError) as error:
            await self.close()
            raise OSError(str(error) or f"it takes longer than {LATEST_S:g} s") from None
        except BaseException:
            await self.close()
            raise
