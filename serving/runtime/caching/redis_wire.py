"""What is said to Redis: keys, two scripts and one connection at a time of each kind.

Scripts, because a look-up and the lease of what is not there have to be one step: two gateways that look at
the same moment would both compute. Redis 6.2 and later (a `SET` with `NX` and `GET` would need 7.0).
"""

import asyncio
from collections.abc import Sequence
from typing import Any  # what Redis answers

from redis.asyncio import Connection, ConnectionPool
from redis.exceptions import RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from serving.cache.spec import RedisSpec

FORMAT = "2"
"""Of keys and values: gateways that write another one share nothing with these."""

LATEST_S = 1.0
"""For connecting, and for what nobody waits for. A server that takes longer is taken for gone."""

LOOK = """
local values = redis.call('MGET', unpack(KEYS))
for place = ARGV[1] + 1, #KEYS do
    if not values[place] then
        local lease = KEYS[place] .. ':lease'
        local taken = redis.pcall('SET', lease, ARGV[2], 'NX', 'PX', ARGV[place - ARGV[1] + 2])
        if taken or redis.call('GET', lease) == ARGV[2] then
            values[place] = 0
        else
            values[place] = math.max(redis.call('PTTL', lease), 1)
        end
    end
end
return values
"""
"""Epochs and values by key, the epochs first (ARGV[1] of them). In place of a value that is not there: 0
where the lease is now the asker's (ARGV[2]), or was, or cannot be had as Redis takes no writes; else the
milliseconds that it is another's for."""

RENEW = """
local epochs = {}
for place, key in ipairs(KEYS) do
    local told = redis.pcall('GET', key)
    local epoch = type(told) == 'string' and tonumber(told) or 0
    if epoch >= 2^53 then epoch = 0 end
    local renewed = math.max(epoch + ARGV[2 * place + 2], tonumber(ARGV[2 * place + 1]))
    if renewed == 0 then renewed = tonumber(ARGV[2]) end
    if renewed ~= epoch then
        redis.call('SET', key, string.format('%.0f', renewed))
        redis.call('PUBLISH', ARGV[1], key)
    end
    epochs[place] = string.format('%.0f', renewed)
end
return epochs
"""
"""Epochs by key, each raised to at least what the asker says and, where it says 1 for its step, past what it
was; one that nobody knows begins at ARGV[2]. Others are told of a change on the channel ARGV[1]."""

Command = Sequence[bytes | str | int]


class RedisNames:
    """Names in Redis: all of a deployment begin with its namespace and the format."""

    __slots__ = ("_start", "news")

    def __init__(self, namespace: str) -> None:
        self._start = f"{namespace}:{FORMAT}:".encode()
        self.news = self._start + b"news"

    def epoch(self, scope: str) -> bytes:
        """Return the name of a model's epoch, or with "" of the epoch of all."""
        return self._start + b"epoch:" + scope.encode()

    def value(self, model: str, epoch: bytes, question: bytes) -> bytes:
        """Return the name of an answer; its lease is beside it."""
        return b"%b%b:%b:%b" % (self._start, model.encode(), epoch, question)


class Wire:
    """A connection that runs commands in order. Any exception but ResponseError ends it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def run(self, *commands: Command) -> list[Any]:
        """Return the commands' answers; a failed command has a ResponseError in its place. Raises RedisError
        or OSError if there are no answers."""
        await self._connection.send_packed_command(self._connection.pack_commands(commands))
        return [await self._answer() for _ in commands]

    async def one(self, *command: bytes | str | int) -> Any:
        """Return its answer; ResponseError where Redis refuses it."""
        (answer,) = await self.run(command)
        if isinstance(answer, ResponseError):
            raise answer
        return answer

    async def next(self) -> Any:
        """Return the next message on a channel."""
        return await self._connection.read_response()

    async def close(self) -> None:
        """Close the connection at once."""
        await self._connection.disconnect(nowait=True)

    async def _answer(self) -> Any:
        try:
            return await self._connection.read_response()
        except ResponseError as error:
            return error


def pool_of(spec: RedisSpec) -> ConnectionPool:
    """Return a pool that makes connections to the server. Raises ValueError if the URL is no Redis URL."""
    given = {"password": spec.password} if spec.password else {}
    return ConnectionPool.from_url(
        spec.url,
        protocol=2,
        socket_timeout=None,  # whoever waits says for how long
        socket_connect_timeout=LATEST_S,
        driver_info=None,
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
        **given,
    )


async def connect(pool: ConnectionPool) -> Wire:
    """Return a new connection. RedisError or OSError where there is none to be had."""
    connection: Connection = pool.make_connection()  # type: ignore[no-untyped-call]
    try:
        async with asyncio.timeout(LATEST_S):
            await connection.connect()  # type: ignore[no-untyped-call]
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return Wire(connection)


async def server_version(spec: RedisSpec) -> str:
    """Return the version that the server says it has; OSError, with its reason, where it says none."""
    try:
        wire = await connect(pool_of(spec))
        try:
            async with asyncio.timeout(LATEST_S):
                said = await wire.one("INFO", "server")
        finally:
            await wire.close()
    except TimeoutError:
        raise OSError(f"it takes longer than {LATEST_S:g} s") from None
    except RedisError as error:
        raise OSError(str(error)) from None
    lines = said.decode(errors="replace").splitlines() if isinstance(said, bytes) else []
    return next((line.partition(":")[2] for line in lines if line.startswith("redis_version:")), "unknown")
