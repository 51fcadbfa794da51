"""What gateways that share answers through Redis promise, whatever becomes of Redis: two caches, over real
workers and a real server."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loadtests.stand.redis_server import RedisServer, redis_server
from serving.cache.keys import question_key
from serving.cache.spec import CacheSpec, RedisSpec
from serving.ports import Call, Reply
from serving.runtime.caching.caching import CachedServing
from serving.runtime.caching.redis_tier import RedisTier
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, DEADLINE_QUEUED
from tests.runtime.house import House, house, sums, until
from tests.runtime.redis_tiers import EPOCH_US, away_after, running

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.usefixtures("patient_tier")]

PATIENT = BatchingSpec("static", size=1)
SLO_US = 20_000_000
BUDGET_US = 5_000_000  # no machine is so slow; where Redis is to be slow, HASTY_US
HASTY_US = 50_000


class Gateway:
    """A cache of its own, and its way to Redis."""

    def __init__(self, here: House, tier: RedisTier) -> None:
        self.cached = CachedServing(here.gateway, CacheSpec(), here.tally, here.tally.record)
        self.cached.share(tier)
        self.tier = tier

    def ask(self, call: Call) -> tuple[int, "asyncio.Future[Reply]"]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        return self.cached.submit(call, future.set_result), future

    async def answer(self, call: Call) -> Reply:
        return await self.ask(call)[1]

    async def written(self, count: int = 1) -> None:
        await until(lambda: self.tier.counts.written >= count)


class Pair:
    """Two gateways that share; both have the same workers, whose batches are counted together."""

    def __init__(self, here: House, server: RedisServer, gateways: list[Gateway]) -> None:
        self.here = here
        self.server = server
        self.first, self.second = gateways

    def leases(self) -> list[bytes]:
        return [name for name in self.server.client().keys("*:lease") if isinstance(name, bytes)]


@asynccontextmanager
async def pair_on(
    folder: Path, server: RedisServer, budget_us: int = BUDGET_US, slo_us: int = SLO_US
) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(house(folder, batching=PATIENT, slo_us=slo_us))
        gateways = []
        for _ in range(2):
            spec = RedisSpec(server.url, budget_us=budget_us)
            tier = RedisTier(spec, CacheSpec().ttl_us, here.gateway.models, EPOCH_US)
            await stack.enter_async_context(running(tier))
            await until(lambda: tier.usable)  # noqa: B023
            gateways.append(Gateway(here, tier))
        yield Pair(here, server, gateways)
        for each in gateways:
            assert each.cached.open_requests == 0
            assert not each.cached._members
            assert not each.cached.searches._searches
            assert not each.cached.searches._leases
        assert len(here.tally.recorded) == len(here.tally.outcomes), "each call is recorded and counted once"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


@pytest.fixture
async def pair(tmp_path: Path, server: RedisServer) -> AsyncIterator[Pair]:
    async with pair_on(tmp_path, server) as started:
        yield started


def results(*replies: Reply) -> Counter[str]:
    assert {reply.outcome for reply in replies} == {COMPLETED}
    return Counter(reply.cache for reply in replies)


async def test_what_one_gateway_computed_the_other_has(pair: Pair) -> None:
    here, computed = pair.here, await pair.first.answer(pair.here.add(2, seed=3))
    await pair.first.written()
    found = await pair.second.answer(here.add(2, seed=3))
    assert (computed.cache, found.cache, found.variant) == ("miss", "hit", computed.variant)
    assert found.age_us > 0
    np.testing.assert_array_equal(sums(found), 2 * (np.arange(32, dtype=np.int32).reshape(2, 16) + 3))
    assert (await pair.second.answer(here.add(2, seed=3))).cache == "hit"
    assert here.tally.batches == [2]
    assert here.tally.looked == ["miss", "hit"], "the third has it in memory"
    assert here.tally.asked == ["miss", "hit", "hit"]
    assert len(here.tally.parse_us) == 3
    await until(lambda: pair.leases() == [])


async def test_a_rehearsed_answer_says_so_when_it_is_kept_and_stays_in_its_gateway(pair: Pair) -> None:
    here = pair.here
    here.gateway.rehearsed.add("s")
    computed, kept = [await pair.first.answer(here.add(2)) for _ in range(2)]
    assert [(each.cache, each.rehearsed) for each in (computed, kept)] == [("miss", True), ("hit", True)]
    here.gateway.rehearsed.clear()
    found = await pair.second.answer(here.add(2))
    assert (found.cache, found.rehearsed) == ("miss", False)
    await pair.second.written()
    assert pair.first.tier.counts.written == 0


async def test_a_question_asked_of_both_at_once_is_computed_once(pair: Pair) -> None:
    asked = [gateway.ask(pair.here.delay(60)) for gateway in (pair.first, pair.second) for _ in range(50)]
    assert pair.first.cached.open_requests + pair.second.cached.open_requests == 100
    replies = await asyncio.gather(*(future for _, future in asked))
    assert results(*replies) == {"miss": 1, "hit": 1, "join": 98}
    assert pair.here.tally.batches == [1]
    assert Counter(pair.here.tally.asked) == {"miss": 1, "hit": 1, "join": 98}
    assert "taken" in pair.here.tally.looked
    await until(lambda: pair.leases() == [])


async def test_a_client_that_forbids_a_kept_answer_has_it_computed_and_the_others_have_that(
    pair: Pair,
) -> None:
    await pair.first.answer(pair.here.add(1))
    await pair.first.written()
    fresh = pair.here.add(1)
    fresh.max_age_us = 0
    assert (await pair.second.answer(fresh)).cache == "miss"
    await pair.second.written()
    assert pair.here.tally.looked == ["miss"]
    assert len(pair.here.tally.batches) == 2


async def test_who_waits_for_a_kept_answer_that_is_too_old_for_it_has_another(pair: Pair) -> None:
    await pair.first.answer(pair.here.delay(1))
    await pair.first.written()
    for choosy_place in (0, 1, 2):
        calls = [pair.here.delay(1) for _ in range(3)]
        calls[choosy_place].max_age_us = 1
        pair.second.cached.store.invalidate()  # so that it looks
        asked = [pair.second.ask(call) for call in calls]
        replies = list(await asyncio.gather(*(future for _, future in asked)))
        choosy = replies.pop(choosy_place)
        assert choosy.cache == "miss"
        assert results(*replies) == ({"join": 2} if choosy_place == 0 else {"hit": 1, "join": 1})
        await pair.second.written(choosy_place + 1)


async def test_when_a_looking_leaders_client_goes_the_others_are_answered(pair: Pair) -> None:
    asked = [pair.first.ask(pair.here.add(1)) for _ in range(3)]
    pair.first.cached.cancel(asked[0][0])
    pair.first.cached.cancel(asked[2][0])
    replies = await asyncio.gather(*(future for _, future in asked))
    assert [reply.outcome for reply in replies] == [CLIENT_GONE, COMPLETED, CLIENT_GONE]
    assert results(replies[1]) == {"miss": 1}
    assert pair.here.tally.batches == [1]


async def test_once_all_who_look_have_gone_nothing_is_computed_and_nobody_waits_for_it(pair: Pair) -> None:
    pair.server.pause()
    asked = [pair.first.ask(pair.here.add(1)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it has been sent
    for request_id, _ in asked:
        pair.first.cached.cancel(request_id)
    pair.server.resume()
    assert {future.result().outcome for _, future in asked} == {CLIENT_GONE}
    assert (await pair.second.answer(pair.here.add(1))).cache == "miss"
    assert pair.here.tally.batches == [1]


async def test_when_who_computes_it_gives_up_the_next_gateway_does(pair: Pair) -> None:
    with pair.here.stopped():
        busy = pair.second.ask(pair.here.delay(0))
        await until(lambda: pair.here.tally.asked == ["miss"])
        request_id, gone = pair.first.ask(pair.here.add(1))
        await until(lambda: len(pair.leases()) == 2)
        waiting = pair.second.ask(pair.here.add(1))
        await until(lambda: "taken" in pair.here.tally.looked)
        pair.first.cached.cancel(request_id)
        assert (await gone).outcome is CLIENT_GONE
    assert (await waiting[1]).cache == "miss"
    assert (await busy[1]).cache == "miss"


async def test_a_gateway_that_died_computing_makes_nobody_late(tmp_path: Path, server: RedisServer) -> None:
    slo_us = 8_000_000  # of which it waits for half: a machine may stand still for a part of that
    async with pair_on(tmp_path, server, 3_600_000, slo_us) as pair:
        asked = pair.first.ask(pair.here.add(1))
        await asked[1]
        await pair.first.written()
        (name,) = server.client().keys("penstock:2:simple:*")
        assert isinstance(name, bytes)
        server.client().rename(name, name + b":lease")
        assert (await pair.second.answer(pair.here.add(1))).cache == "miss"
        assert pair.here.tally.looked.count("taken") > 3
        assert "timeout" not in pair.here.tally.looked
        assert pair.here.tally.late == 0
        assert pair.here.tally.latency_us[-1] < slo_us


async def test_a_member_in_a_hurry_ends_the_wait_for_another_gateway(pair: Pair) -> None:
    lease = pair.first.tier.name("simple", question_key(pair.here.add(1), False)) + b":lease"
    pair.server.client().set(lease, "of a gateway that died", px=60_000)
    patient = pair.first.ask(pair.here.add(1))
    await until(lambda: "taken" in pair.here.tally.looked)
    hasty = pair.here.add(1)
    hasty.objective = replace(hasty.objective, slo_us=1_000_000)  # late it is answered, too
    assert results(await pair.first.answer(hasty), await patient[1]) == {"join": 1, "miss": 1}
    assert "timeout" not in pair.here.tally.looked
    assert max(pair.here.tally.latency_us) < SLO_US // 2, "for so long it would have waited alone"


async def test_a_call_whose_deadline_passes_while_it_waits_for_another_gateway_is_told_so(pair: Pair) -> None:
    with pair.here.stopped():
        there = pair.first.ask(pair.here.delay(0))
        await until(lambda: len(pair.leases()) == 1)
        patient = pair.second.ask(pair.here.delay(0))
        hasty = pair.here.delay(0)
        hasty.timeout_us = 50_000
        assert (await pair.second.answer(hasty)).outcome is DEADLINE_QUEUED
        await until(lambda: pair.here.tally.asked.count("miss") == 2)
    assert results(await there[1], await patient[1]) == {"miss": 2}, "it was no use to wait any longer"


async def test_a_call_in_too_much_of_a_hurry_looks_nowhere(pair: Pair) -> None:
    hasty = pair.here.add(1)
    hasty.timeout_us = BUDGET_US
    assert (await pair.first.answer(hasty)).cache == "miss"
    assert pair.here.tally.looked == []


async def test_models_that_are_not_worth_it_are_not_shared(pair: Pair) -> None:
    pair.first.cached.searches.shares = lambda model: model != "simple"
    await pair.first.answer(pair.here.add(1))
    await pair.first.answer(pair.here.delay(0))
    await pair.first.written()
    assert pair.here.tally.looked == ["miss"]
    assert pair.first.tier.counts.written == 1


# invalidation


async def test_an_invalidation_drops_what_the_other_gateway_keeps(pair: Pair) -> None:
    for call in (pair.here.add(1), pair.here.delay(1)):
        await pair.first.answer(call)
    await pair.first.written(2)
    for call in (pair.here.add(1), pair.here.delay(1)):
        assert (await pair.second.answer(call)).cache == "hit"
    assert pair.first.cached.invalidate("simple") == 1
    await until(lambda: len(pair.second.cached.store) == 1)
    assert (await pair.second.answer(pair.here.add(1))).cache == "miss"
    assert (await pair.second.answer(pair.here.delay(1))).cache == "hit"
    pair.second.cached.invalidate()
    await until(lambda: len(pair.first.cached.store) == 0)
    assert (await pair.first.answer(pair.here.delay(1))).cache == "miss"


async def test_what_was_under_way_at_an_invalidation_is_answered_and_never_seen_again(pair: Pair) -> None:
    with pair.here.stopped():
        asked = [gateway.ask(pair.here.delay(80)) for gateway in (pair.first, pair.second)]
        await until(lambda: "taken" in pair.here.tally.looked)
        pair.second.cached.invalidate("identity")
        await until(lambda: pair.first.tier.counts.invalidations == 1)
        assert not asked[0][1].done()
        assert not asked[1][1].done()
    for _, future in asked:
        assert (await future).outcome is COMPLETED
    assert len(pair.here.tally.batches) == 2, "who waited for the other computed it itself"
    assert (await pair.first.answer(pair.here.delay(80))).cache == "miss"
    await pair.first.written()
    assert (await pair.second.answer(pair.here.delay(80))).cache == "hit"


# Redis goes, and comes


async def load(pair: Pair, seconds: float, rate: float, during: Callable[[], None]) -> list[Reply]:
    """Questions at a steady rate, each asked of both gateways; `during` is called when half have been."""
    asked: list[asyncio.Future[Reply]] = []
    loop = asyncio.get_running_loop()
    count = int(seconds * rate)
    start = loop.time()
    for number in range(count):
        await asyncio.sleep(max(0.0, start + number / rate - loop.time()))
        if number == count // 2:
            during()
        asked += [each.ask(pair.here.add(1, seed=number))[1] for each in (pair.first, pair.second)]
    replies = list(await asyncio.gather(*asked))
    assert {reply.outcome for reply in replies} == {COMPLETED}
    for number, reply in enumerate(replies):
        np.testing.assert_array_equal(
            sums(reply), 2 * (np.arange(16, dtype=np.int32).reshape(1, 16) + number // 2)
        )
    return replies


@pytest.mark.parametrize(("fault", "budget_us"), [("kill", BUDGET_US), ("pause", HASTY_US)])
async def test_a_redis_that_goes_under_load_costs_no_request_its_answer_and_heals(
    tmp_path: Path, server: RedisServer, fault: str, budget_us: int
) -> None:
    async with pair_on(tmp_path, server, budget_us) as pair:
        await load(pair, 1.0, 200, getattr(server, fault))
        await until(lambda: not (pair.first.tier.usable or pair.second.tier.usable))
        pair.here.tally.looked.clear()
        await load(pair, 0.2, 200, lambda: None)
        assert set(pair.here.tally.looked) <= {"skipped", "timeout"}
        if fault == "kill":
            server.start()
        else:
            server.resume()
        await until(lambda: pair.first.tier.usable and pair.second.tier.usable)
        for gateway in (pair.first, pair.second):
            gateway.cached.store.invalidate()
            gateway.tier._patience_us = BUDGET_US  # what follows is not about a slow Redis
        written = pair.first.tier.counts.written
        await pair.first.answer(pair.here.add(1, seed=999))
        await pair.first.written(written + 1)
        assert (await pair.second.answer(pair.here.add(1, seed=999))).cache == "hit"
        for gateway in (pair.first, pair.second):
            # of a machine that stands still for a while, a small budget makes one that is away
            assert gateway.tier.counts.trips == 1 or fault == "pause"
            assert gateway.tier.counts.trips > 0
            await until(lambda: not gateway.tier._open and not gateway.tier._writes)  # noqa: B023


async def test_a_redis_that_comes_and_goes_all_the_time_is_no_matter(
    tmp_path: Path, server: RedisServer
) -> None:
    async def torment() -> None:
        for _ in range(5):
            await asyncio.sleep(0.1)
            server.kill()
            await asyncio.sleep(0.1)
            server.start()

    async with pair_on(tmp_path, server, HASTY_US) as pair:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(torment())
            tasks.create_task(load(pair, 1.2, 150, lambda: None))
        await until(lambda: pair.first.tier.usable)


async def test_an_invalidation_while_redis_is_away_drops_here_at_once_and_there_later(pair: Pair) -> None:
    await pair.first.answer(pair.here.add(1))
    await pair.first.written()
    assert (await pair.second.answer(pair.here.add(1))).cache == "hit"
    pair.server.pause()
    with away_after(0.3):
        await until(lambda: not pair.first.tier.usable)
    assert pair.first.cached.invalidate("simple") == 1
    assert (await pair.first.answer(pair.here.add(1))).cache == "miss"
    assert (await pair.second.answer(pair.here.add(1))).cache == "hit", "it cannot know"
    pair.server.resume()
    await until(lambda: len(pair.second.cached.store) == 0)
    await until(lambda: pair.second.tier.usable)
    assert (await pair.second.answer(pair.here.add(1))).cache == "miss"
