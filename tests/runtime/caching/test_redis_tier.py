"""What the Redis tier promises, with a real Redis that is full, foreign, slow, gone and back."""

import asyncio
import time
from collections import Counter

import pytest

from loadtests.stand.redis_server import RedisServer, redis_server
from serving.cache.entries import KeptAnswer
from serving.runtime.caching.redis_tier import BEAT_S, VALUE_BYTES_MAX, WAITING_MAX, RedisQuery
from serving.runtime.clocks.clock import now_us
from serving.values.tensor import Tensor
from tests.runtime.house import until
from tests.runtime.redis_tiers import (
    KEY,
    OTHER,
    TTL_US,
    answer,
    ask,
    number_of,
    share,
    tier_on,
)

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.usefixtures("patient_tier")]


def names(server: RedisServer) -> set[bytes]:
    """Of answers and leases."""
    return {name for name in keys(server) if b":epoch:" not in name}


def keys(server: RedisServer) -> set[bytes]:
    return {name for name in server.client().keys() if isinstance(name, bytes)}  # noqa: SIM118  no dict


async def test_an_answer_is_found_by_another_gateway_with_its_variant_and_age(server: RedisServer) -> None:
    async with tier_on(server) as first, tier_on(server) as second:
        entry = answer(7)
        await share(first, entry)
        found = await ask(second)
        assert isinstance(found, KeptAnswer)
        assert (number_of(found), found.variant, found.model) == (7, "fp32", "a")
        assert found.stored_us == entry.stored_us
        assert await ask(second, OTHER) == 0
        assert await ask(second, KEY, "b") == 0


async def test_answers_live_in_redis_no_longer_than_their_time(server: RedisServer) -> None:
    async with tier_on(server) as tier:
        await share(tier, answer())
        (name,) = names(server)
        assert name.startswith(b"house:2:a:")
        assert name.endswith(KEY)
        assert 0 < server.client().pttl(name) <= TTL_US // 1000


async def test_one_of_many_who_ask_at_once_computes_and_the_others_are_told_so(server: RedisServer) -> None:
    async with tier_on(server) as first, tier_on(server) as second:
        found = await asyncio.gather(*(ask(tier) for tier in (first, second, first, second)))
        owners = [place % 2 for place, each in enumerate(found) if each == 0]
        assert len(owners) == 2, "both looks of one gateway, and of one only"
        assert len(set(owners)) == 1
        assert all(isinstance(each, int) and 0 < each <= 30_000_000 for each in found if each != 0)


async def test_a_lease_ends_with_the_answer_or_when_it_is_given_back_or_in_its_time(
    server: RedisServer,
) -> None:
    async with tier_on(server) as first, tier_on(server) as second:
        assert await ask(first) == 0
        await share(first, answer())
        assert len(names(server)) == 1
        assert await ask(first, OTHER) == 0
        first.release(first.name("a", OTHER))
        await until(lambda: len(names(server)) == 1)
        assert await ask(second, OTHER) == 0
        assert await ask(first, OTHER[1:], lease_us=1_000) == 0
        await until(lambda: server.client().exists(first.name("a", OTHER[1:]) + b":lease") == 0)
        assert await ask(second, OTHER[1:]) == 0


async def test_a_lease_that_nobody_waits_for_any_more_is_given_back(server: RedisServer) -> None:
    async with tier_on(server) as tier:
        told: list[object] = []
        look = RedisQuery("a", KEY, 30_000_000, told.append)
        server.pause()
        tier.look(look)
        await asyncio.sleep(0)  # it is under way
        await asyncio.sleep(0)
        tier.withdraw(look)
        server.resume()
        await ask(tier, OTHER)
        await until(lambda: len(names(server)) == 1)
        assert told == []


async def test_looks_of_a_tick_are_one_round_trip(server: RedisServer) -> None:
    async with tier_on(server) as tier:
        client, start_s = server.client(), time.monotonic()
        before = calls(client.info("commandstats"))
        looks = [ask(tier, bytes([number]) * 32) for number in range(100)]
        assert set(await asyncio.gather(*looks)) == {0}
        after = calls(client.info("commandstats"))
        beats = 1 + (time.monotonic() - start_s) / BEAT_S
        assert after["eval"] - before["eval"] <= 1 + beats
        assert after["mget"] - before["mget"] == 1


def calls(stats: dict[str, dict[str, int]]) -> Counter[str]:
    return Counter({name.removeprefix("cmdstat_"): told["calls"] for name, told in stats.items()})


async def test_what_is_no_answer_is_a_miss_and_is_replaced(server: RedisServer) -> None:
    async with tier_on(server) as tier:
        client, name = server.client(), tier.name("a", KEY)
        await share(tier, answer())
        sound = client.get(name)
        assert isinstance(sound, bytes)
        await share(tier, answer(), OTHER)
        for foreign in (b"", b"foreign", sound[:-1], sound + b"x", client.get(tier.name("a", OTHER))):
            client.set(name, foreign or b"")
            assert await ask(tier) == 0
        client.delete(name)
        client.lpush(name, "a list")
        assert await ask(tier) == 0
        await share(tier, answer(9))
        assert number_of(await ask(tier)) == 9


async def test_namespaces_share_nothing(server: RedisServer) -> None:
    async with tier_on(server) as first, tier_on(server, namespace="other") as second:
        await share(first, answer())
        assert await ask(second) == 0


# invalidation


async def test_an_invalidation_reaches_other_gateways_at_once(server: RedisServer) -> None:
    async with tier_on(server) as first, tier_on(server) as second:
        dropped: list[str] = []
        second.on_invalidated = dropped.append
        await share(first, answer())
        await share(first, answer(model="b"))
        first.invalidate("a")
        assert await ask(first) == 0
        await until(lambda: dropped == ["a"])
        assert second.counts.invalidations == 1
        assert isinstance(await ask(second, KEY, "b"), KeptAnswer)
        first.invalidate()
        await until(lambda: dropped == ["a", ""])
        assert await ask(second, KEY, "b") == 0


async def test_an_invalidation_that_nobody_told_of_is_learnt_with_the_next_look(server: RedisServer) -> None:
    async with tier_on(server) as first, tier_on(server) as second:
        dropped: list[str] = []
        second.on_invalidated = dropped.append
        await share(first, answer(1))
        server.client().incr("house:2:epoch:a")
        assert await ask(second) is None, "what it asked for is from before"
        assert dropped == ["a"]
        assert await ask(second) == 0


async def test_what_a_gateway_writes_that_has_not_heard_is_not_found_by_those_who_have(
    server: RedisServer,
) -> None:
    async with tier_on(server) as first, tier_on(server) as second:
        first.invalidate("a")
        assert first.name("a", KEY) != second.name("a", KEY)
        second.put(KEY, answer(2))
        await until(lambda: second.counts.written == 1)
        assert await ask(first) == 0
        await share(first, answer(3))
        await until(lambda: first.name("a", KEY) == second.name("a", KEY))
        assert number_of(await ask(second)) == 3


async def test_a_redis_that_lost_everything_brings_no_old_answer_back(server: RedisServer) -> None:
    async with tier_on(server) as first, tier_on(server) as second:
        await share(first, answer())
        saved = {name: server.client().get(name) for name in keys(server)}
        first.invalidate("a")
        await until(lambda: first.name("a", KEY) == second.name("a", KEY) not in saved)
        name = first.name("a", KEY)
        for state in ({}, saved):  # emptied; put back as it was before the invalidation
            server.client().flushall()
            for each, value in state.items():
                server.client().set(each, value or b"")
            assert await ask(second) == 0
            await until(
                lambda: server.client().get("house:2:epoch:a") not in (None, saved[b"house:2:epoch:a"])
            )
            assert first.name("a", KEY) == second.name("a", KEY) == name
            async with tier_on(server) as third:
                assert third.name("a", KEY) == name


async def test_a_gateway_that_comes_invalidates_nothing(server: RedisServer) -> None:
    async with tier_on(server) as first:
        await share(first, answer())
        async with tier_on(server) as second:
            assert number_of(await ask(second)) == 7
        assert first.counts.invalidations == 0
        assert number_of(await ask(first)) == 7


async def test_an_epoch_that_is_none_is_replaced(server: RedisServer) -> None:
    client = server.client()
    client.set("house:2:epoch:a", "no number")
    client.lpush("house:2:epoch:b", "a list")
    client.set("house:2:epoch:", "9" * 30)
    async with tier_on(server) as tier:
        await share(tier, answer())
        assert number_of(await ask(tier)) == 7


# bounds


async def test_too_large_an_answer_is_not_shared(server: RedisServer) -> None:
    async with tier_on(server) as tier:
        large = answer()
        tensor = Tensor("y", "INT8", (1, VALUE_BYTES_MAX), bytes(VALUE_BYTES_MAX))
        tier.put(KEY, KeptAnswer("a", "fp32", (tensor,), now_us(), VALUE_BYTES_MAX + 400))
        assert tier.counts.dropped == 1
        await share(tier, large)


async def test_no_more_answers_wait_to_be_written_than_may(server: RedisServer) -> None:
    async with tier_on(server) as tier:
        for number in range(WAITING_MAX + 50):
            key = number.to_bytes(32, "little")
            tier.put(key, answer())
        assert tier.counts.dropped == 50
        await until(lambda: tier.counts.written == WAITING_MAX)
        assert len(names(server)) == WAITING_MAX


async def test_a_redis_without_room_is_asked_on_and_nothing_written() -> None:
    with redis_server("--maxmemory-policy", "noeviction") as server:
        async with tier_on(server) as tier:
            await share(tier, answer())
            server.client().config_set("maxmemory", 1)
            tier.put(OTHER, answer())
            await until(lambda: tier.counts.dropped == 1)
            assert await ask(tier, OTHER) == 0
            assert number_of(await ask(tier)) == 7
            assert tier.usable


async def test_the_end_leaves_no_connection(server: RedisServer) -> None:
    client = server.client()
    async with tier_on(server):
        await until(lambda: len(client.client_list()) == 5)
    await until(lambda: len(client.client_list()) == 1)


async def test_what_others_than_our_gateways_wrote_is_computed_anew_counted_and_said_once(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with tier_on(server, key="0" * 16) as ours, tier_on(server, key="1" * 16) as stranger:
        await share(stranger, answer(9))
        assert [await ask(ours) for _ in range(3)] == [0, 0, 0]
        assert ours.counts.refused == 3
        said = [each.getMessage() for each in caplog.records if "is not taken" in each.getMessage()]
        assert len(said) == 1
        assert "signed with another key" in said[0]
        await share(ours, answer(7))  # takes its place
        assert number_of(await ask(ours)) == 7
        assert ours.counts.refused == 3


async def test_an_answer_that_the_model_could_not_give_is_computed_anew(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with tier_on(server) as tier:
        await share(tier, answer(7))
        assert await ask(tier, fault_of=lambda _entry: "it has 1000 rows") == 0
        assert tier.counts.refused == 1
        assert "it has 1000 rows" in caplog.text
        assert number_of(await ask(tier)) == 7
