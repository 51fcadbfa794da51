"""The Redis tier: answers that gateways share, asked for within a budget and written behind.

One task keeps four connections for as long as Redis answers: two on which look-ups go out, those of a tick
in one round trip, and all that come while both are out in the next; one that writes; one that hears of
invalidations. A look-up that is not answered within its budget is told so, and Redis' answer ignored. When
that happens too often in a row, or a connection breaks, all end (`serving.cache.breaker`), and nothing is
asked until four new ones have been made.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from secrets import token_bytes
from typing import Any, TypeVar  # Any: what Redis answers

from redis.exceptions import RedisError, ResponseError

from serving.cache.breaker import Breaker
from serving.cache.entries import KeptAnswer
from serving.cache.epochs import Epochs, read_epoch
from serving.cache.spec import RedisSpec
from serving.cache.values import decode, encode, seal_of
from serving.runtime.caching.redis_wire import (
    LATEST_S,
    LOOK,
    RENEW,
    Command,
    RedisNames,
    Wire,
    connect,
    pool_of,
)
from serving.runtime.clocks.alarm import GRAIN_US, Alarm
from serving.runtime.clocks.clock import now_us

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

ASKERS = 2  # with one, a look just after a round trip began would wait for two
LOOKS_MAX = 128  # a round trip; Redis serves no other client meanwhile
WRITES_MAX = 64  # a round trip
WAITING_MAX = 1024  # answers that wait to be written, and
WAITING_BYTES_MAX = 16 << 20
VALUE_BYTES_MAX = 256 << 10
"""Of an answer that is shared, and of all that a round trip is to fetch, by what the latest had: 100 KB take
0.1 ms of this event loop, in which nobody else is served, and a round trip has to fit the budget."""
MEAN = 1 / 8  # the weight of the latest round trip in the mean bytes of an answer
BEAT_S = 1.0
"""Between looks at the epochs: an invalidation of which no word came is learnt of within this."""

REFUSED_SAID_EVERY_US = 60_000_000
"""Between two lines about values that are not taken: whoever writes them must not fill the log."""

FaultOf = Callable[[KeptAnswer], str]
Found = KeptAnswer | int | None
"""What a look found: the answer; 0: nothing, the asker is to compute it and others will wait; the
microseconds at most that another gateway wants for computing it; None: Redis did not say in time."""


class RedisQuery:
    """A question that Redis is asked. `told` is called once, unless the look is withdrawn before."""

    __slots__ = ("asked_us", "fault_of", "key", "lease_us", "model", "name", "over", "told", "withdrawn")

    def __init__(
        self,
        model: str,
        key: bytes,
        lease_us: int,
        told: Callable[[Found], None],
        fault_of: FaultOf = lambda _entry: "",
    ) -> None:
        """Take the question and its lease. `fault_of` says what is wrong with an answer to the question, ""
        if nothing is."""
        self.model = model
        self.key = key
        self.lease_us = lease_us
        self.told = told
        self.fault_of = fault_of
        self.name = b""  # of the answer in Redis
        self.asked_us = 0
        self.over = False
        self.withdrawn = False  # its request is gone


class Counts:
    """Since the start."""

    __slots__ = ("dropped", "invalidations", "refused", "trips", "written")

    def __init__(self) -> None:
        self.trips = 0  # how often Redis was given up for a while
        self.written = 0  # answers
        self.dropped = 0  # answers not written: too large, too many, refused, or Redis was away
        self.invalidations = 0  # of other gateways
        self.refused = 0  # values that no gateway of ours wrote as an answer to the question


class RedisTier:
    """Made on the running event loop; asks nothing before `run` does. `epoch_us`: the Unix time at which the
    gateway's clock was 0. `on_invalidated` is called with a model, "" for all, if what is kept of it must go.
    `on_healed` is called when Redis is (again) asked."""

    def __init__(self, spec: RedisSpec, ttl_us: int, models: Iterable[str], epoch_us: int) -> None:
        self.budget_us = spec.budget_us
        self.counts = Counts()
        self.on_invalidated: Callable[[str], object] = lambda _model: None
        self.on_healed: Callable[[], object] = lambda: None
        self._place = spec.place
        self._pool = pool_of(spec)
        self._keys = RedisNames(spec.namespace)
        self._owner = token_bytes(8).hex()
        self._signed = bool(spec.secret)
        self._seal = seal_of(spec.secret)
        self._refused_said = (0, 0)  # when a line said so, and how many it were by then
        self._ttl_us = ttl_us
        self._epoch_us = epoch_us
        self._epochs = Epochs(models)
        self._breaker = Breaker()
        self._lost_us = 0  # since when Redis is away; 0: it is not, or was not there yet
        self._looks: deque[RedisQuery] = deque()  # not sent
        self._open: deque[RedisQuery] = deque()  # in the order in which they were asked; some are over
        self._mean_bytes = 1.0  # of a look's answer
        self._alarm = Alarm(self._expire)
        # an alarm may be a grain late
        self._patience_us = max(spec.budget_us - GRAIN_US, spec.budget_us // 2)
        self._writes: deque[tuple[bytes, bytes, KeptAnswer | None]] = deque()  # name, key; None ends a lease
        self._waiting_bytes = 0
        self._renewal_due = False
        self._asked, self._stirred, self._tripped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    # what the cache asks

    @property
    def usable(self) -> bool:
        """Whether Redis is worth asking: it answered lately."""
        return self._breaker.closed

    def name(self, model: str, key: bytes) -> bytes:
        """Return the name in Redis of a question's answer, until the next invalidation."""
        return self._keys.value(model, self._epochs.name(model), key)

    def look(self, look: RedisQuery) -> None:
        """Ask Redis. `look.told` is called within the budget, after this call has returned."""
        look.asked_us = now = now_us()
        look.name = self.name(look.model, look.key)
        self._looks.append(look)
        self._open.append(look)
        self._asked.set()
        self._watch(now)

    def withdraw(self, look: RedisQuery) -> None:
        """Withdraw a query because its caller is gone: `look.told` is not called."""
        look.over = look.withdrawn = True

    def put(self, key: bytes, entry: KeptAnswer) -> None:
        """Let others have an answer, some time later, and its lease end. It was asked for since the last
        invalidation."""
        room = len(self._writes) < WAITING_MAX and self._waiting_bytes + entry.bytes <= WAITING_BYTES_MAX
        if not self.usable or not room or entry.bytes > VALUE_BYTES_MAX:
            self.counts.dropped += 1
            return
        self._waiting_bytes += entry.bytes
        self._writes.append((self.name(entry.model, key), key, entry))
        self._stirred.set()

    def release(self, name: bytes) -> None:
        """End the lease, as this gateway computes the answer no more."""
        if self.usable and len(self._writes) < WAITING_MAX:
            self._writes.append((name, b"", None))
            self._stirred.set()

    def invalidate(self, model: str = "") -> None:
        """Let no gateway use what was computed before; if Redis is away, as soon as it is back."""
        self._epochs.invalidate(model, self._epoch_us + now_us())
        self._renewal_due = True
        self._stirred.set()

    # a life of the connections

    async def run(self) -> None:
        """Keep in touch with Redis, until cancelled."""
        while True:
            await asyncio.sleep(max(0, self._breaker.attempt_us - now_us()) / 1e6)
            try:
                await self._live()
            except Exception as error:  # even a bug must not end it: it is no part of any promise
                self._lose(error)

    async def _live(self) -> None:
        """Keep Redis in use until something breaks; that is raised."""
        wires: list[Wire] = []
        try:
            while len(wires) < ASKERS + 2:
                wires.append(await connect(self._pool))
            writer, hearer, *askers = wires
            await _in_time(hearer.one("SUBSCRIBE", self._keys.news))
            await self._renew(writer)
            self._heal()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep(writer))
                tasks.create_task(self._hear(hearer))
                tasks.create_task(self._give_up())
                for asker in askers:
                    tasks.create_task(self._ask(asker))
        finally:
            for wire in wires:
                await wire.close()

    def _heal(self) -> None:
        self._breaker.heal()
        if self._lost_us:
            away_s = (now_us() - self._lost_us) / 1e6
            logger.warning("Redis at %s is back after %.1f s", self._place, away_s)
        else:
            open_to = ", unsigned: whoever can write there can answer (cache.redis.key_env)"
            how = "" if self._signed else open_to
            logger.info("answers are shared through Redis at %s%s", self._place, how)
        self._lost_us = 0
        self.on_healed()

    def _lose(self, error: Exception) -> None:
        now = now_us()
        if self._tripped.is_set():
            self._tripped.clear()
        else:
            self._breaker.trip(now)
        if not self._lost_us:
            self._lost_us = now
            self.counts.trips += 1
            logger.warning("Redis at %s is left alone, requests go on: %s", self._place, _reason(error))
        self._end_all()

    async def _give_up(self) -> None:
        await self._tripped.wait()
        raise TimeoutError(f"no answer within {self.budget_us / 1e3:g} ms, several times in a row")

    async def _hear(self, wire: Wire) -> None:
        while True:
            await wire.next()  # which epoch it is about does not matter
            self._renewal_due = True
            self._stirred.set()

    async def _keep(self, wire: Wire) -> None:
        """Write what there is to write; compare epochs when there is news, and every BEAT_S."""
        while True:
            if self._renewal_due:
                await self._renew(wire)
            if self._writes:
                await self._flush(wire)
            if self._renewal_due or self._writes:
                continue
            self._stirred.clear()
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._stirred.wait()
            except TimeoutError:
                self._renewal_due = True

    async def _renew(self, wire: Wire) -> None:
        """Tell Redis the epochs that are known here, and learn those that it knows."""
        self._renewal_due = False
        epochs, scopes = self._epochs, self._epochs.scopes
        told, values = set(epochs.pending), [self._epoch_us + now_us()]
        for scope in scopes:
            values += (epochs.known(scope), int(scope in told))
        names = [self._keys.epoch(scope) for scope in scopes]
        found = await _in_time(wire.one("EVAL", RENEW, len(names), *names, self._keys.news, *values))
        epochs.pending -= told
        for scope, epoch in zip(scopes, found, strict=True):
            self._learn(scope, epoch)

    def _learn(self, scope: str, told: object) -> None:
        known = self._epochs.known(scope)
        if self._epochs.learn(scope, read_epoch(told)):
            self.counts.invalidations += known > 0
            self.on_invalidated(scope)

    async def _flush(self, wire: Wire) -> None:
        batch = [self._writes.popleft() for _ in range(min(WRITES_MAX, len(self._writes)))]
        now, commands = now_us(), list[Command]()
        for name, key, entry in batch:
            if entry is None:
                continue
            self._waiting_bytes -= entry.bytes
            left_ms = (entry.stored_us + self._ttl_us - now) // 1000
            if left_ms > 0:
                commands.append(("SET", name, encode(key, entry, self._epoch_us, self._seal), "PX", left_ms))
        written, sent = 0, len(commands)
        commands.append(("UNLINK", *(name + b":lease" for name, _, _ in batch)))
        try:
            answers = await _in_time(wire.run(*commands))
            written = sum(not isinstance(answer, ResponseError) for answer in answers[:sent])
        finally:
            self.counts.written += written
            self.counts.dropped += sent - written

    # looks

    async def _ask(self, wire: Wire) -> None:
        looks = self._looks
        while True:
            while not looks:
                self._asked.clear()
                await self._asked.wait()
            count = min(len(looks), LOOKS_MAX, max(1, int(VALUE_BYTES_MAX / self._mean_bytes)))
            taken = [looks.popleft() for _ in range(count)]
            batch = [look for look in taken if not look.over]
            if not batch:
                continue
            scopes = ("", *{look.model for look in batch})
            names = [*map(self._keys.epoch, scopes), *(look.name for look in batch)]
            leases = [max(1, look.lease_us // 1000) for look in batch]
            asked = wire.one("EVAL", LOOK, len(names), *names, len(scopes), self._owner, *leases)
            self._answer(batch, scopes, await _in_time(asked))

    def _answer(self, batch: list[RedisQuery], scopes: tuple[str, ...], found: list[Any]) -> None:
        for scope, epoch in zip(scopes, found, strict=False):
            self._learn(scope, epoch)
        now, values = now_us(), found[len(scopes) :]
        fetched = sum(len(value) for value in values if isinstance(value, bytes))
        self._mean_bytes += (fetched / len(batch) - self._mean_bytes) * MEAN
        if not all(look.over for look in batch):
            self._breaker.succeed()
        for look, value in zip(batch, values, strict=True):
            if isinstance(value, int):
                self._tell(look, 1000 * value)
            elif look.over or look.name != self.name(look.model, look.key):  # from before an invalidation
                self._tell(look, None)
            else:
                self._tell(look, self._read(look, value, now) or 0)
        self._watch(now)

    def _read(self, look: RedisQuery, value: bytes, now: int) -> KeptAnswer | None:
        """Return the answer, None where it is none to this question."""
        entry = decode(look.key, value, look.model, (self._epoch_us, now), self._seal)
        fault = look.fault_of(entry) if entry else "it is damaged, foreign, or signed with another key"
        if not fault:
            return entry
        self.counts.refused += 1
        said_us, count = self._refused_said
        if not count or now - said_us >= REFUSED_SAID_EVERY_US:
            more = self.counts.refused - count - 1
            since = f" ({more} more since the last such line)" if more else ""
            text = "an answer of %s in Redis at %s is not taken, and computed anew: %s%s"
            logger.warning(text, look.model, self._place, fault, since)
            self._refused_said = now, self.counts.refused
        return None

    def _tell(self, look: RedisQuery, found: Found) -> None:
        if not look.over:
            look.over = True
            try:
                look.told(found)
            except Exception:  # a bug of one call must not cost the others Redis
                logger.exception("what Redis said of %s could not be used", look.model)
        elif look.withdrawn and found == 0:
            self.release(look.name)  # no request waits for the lease

    def _watch(self, now: int) -> None:
        looks = self._open
        while looks and looks[0].over:
            looks.popleft()
        if looks:
            self._alarm.set(looks[0].asked_us + self._patience_us, now)

    def _expire(self, now: int) -> None:
        """End the first looks, as their budget is spent."""
        looks, late = self._open, False
        while looks and (looks[0].over or looks[0].asked_us + self._patience_us <= now):
            look = looks.popleft()
            late = late or not look.over
            self._tell(look, None)
        if late and self._breaker.fail(now):
            self._tripped.set()
            self._end_all()
        self._watch(now)

    def _end_all(self) -> None:
        """End all looks: no call waits for Redis any more."""
        self._looks.clear()
        while self._open:
            self._tell(self._open.popleft(), None)


async def _in_time(answer: Awaitable[Answer]) -> Answer:
    async with asyncio.timeout(LATEST_S):
        return await answer


def _reason(error: BaseException) -> str:
    """Return what broke first, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, RedisError | OSError):
        logger.error("the Redis tier has a bug", exc_info=error)
    return str(error) or f"no answer within {LATEST_S:g} s"
