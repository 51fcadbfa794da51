"""What the cache before the gateway promises, over real worker processes."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.cache.spec import CacheSpec
from serving.ports import Call, Reply
from serving.runtime.caching.caching import CachedServing
from serving.values.specs import BatchingSpec, ServedModel
from serving.values.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DRAINING,
    MODEL_ERROR,
)
from tests.runtime.house import LIMITS, MODELS, POISONABLE, House, house, sums

pytestmark = [pytest.mark.live, pytest.mark.slow]

PATIENT = BatchingSpec("static", size=1)
"""One row a batch, in the order of deadlines; nothing is given up or turned away, however slow all is."""
SLO_US = 20_000_000


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, batching=PATIENT, slo_us=SLO_US) as started:
        yield started


def results(replies: list[Reply]) -> Counter[str]:
    assert {reply.outcome for reply in replies} == {COMPLETED}
    return Counter(reply.cache for reply in replies)


async def answered(*asked: tuple[int, "asyncio.Future[Reply]"]) -> list[Reply]:
    return list(await asyncio.gather(*(future for _, future in asked)))


async def test_a_hundred_calls_with_the_same_question_are_computed_once(here: House) -> None:
    asked = [here.ask(here.add(2, seed=7)) for _ in range(100)]
    assert here.cached.open_requests == 100
    assert len({request_id for request_id, _ in asked} - {0}) == 100
    replies = await answered(*asked)
    assert results(replies) == {"miss": 1, "join": 99}
    assert replies[0].cache == "miss"
    for reply in replies:
        np.testing.assert_array_equal(sums(reply), 2 * (np.arange(32, dtype=np.int32).reshape(2, 16) + 7))
        assert reply.variant == "default"
    assert here.tally.batches == [2]
    assert here.tally.asked == ["miss"] + 99 * ["join"]
    assert here.tally.outcomes == 100 * [COMPLETED]
    assert len(here.tally.recorded) == len(here.tally.parse_us) == 100
    assert here.cached.open_requests == here.gateway.open_requests == 0


async def test_an_answer_is_kept_and_given_again_at_once(here: House) -> None:
    (computed,) = await answered(here.ask(here.add(1)))
    told: list[Reply] = []
    assert here.cached.submit(here.add(1), told.append) == 0
    (kept,) = told
    assert (kept.outcome, kept.cache, kept.variant) == (COMPLETED, "hit", "default")
    assert kept.age_us > 0
    assert (kept.queue_us, kept.batch_us, kept.compute_us, kept.batch_rows) == (0, 0, 0, 0)
    np.testing.assert_array_equal(sums(kept), sums(computed))
    assert here.tally.batches == [1]
    assert here.tally.asked == ["miss", "hit"]
    assert here.tally.outcomes == [COMPLETED, COMPLETED]
    assert len(here.tally.recorded) == 2


async def test_another_question_is_another_computation(here: House) -> None:
    gold = here.add(1)
    gold.tenant = "gold"
    other = here.delay(0)
    longer = here.delay(1)
    replies = await answered(
        *map(here.ask, (here.add(1), here.add(1, seed=1), here.add(2), gold, other, longer))
    )
    assert results(replies) == {"miss": 6}
    assert len(here.tally.batches) == 6


async def test_tenants_share_answers_only_where_they_are_told_to(tmp_path: Path) -> None:
    async with house(tmp_path, batching=PATIENT, cache=CacheSpec(shared=True), slo_us=SLO_US) as here:
        await answered(here.ask(here.add(1)))
        gold = here.add(1)
        gold.tenant = "gold"
        assert results(await answered(here.ask(gold))) == {"hit": 1}


async def ask_around_the_cache(here: House, call: Call) -> None:
    first = await answered(here.ask(call), here.ask(call))
    assert results(first) == {"": 2}
    assert results(await answered(here.ask(call))) == {"": 1}
    assert len(here.tally.batches) == 3
    assert here.tally.asked == []
    assert len(here.tally.recorded) == 3


async def test_a_client_that_forbids_it_has_nothing_kept(here: House) -> None:
    call = here.add(1)
    call.store = False
    await ask_around_the_cache(here, call)


def changed(here: House, model: ServedModel) -> CachedServing:
    here.gateway.models = {**here.gateway.models, model.name: model}
    return CachedServing(here.gateway, CacheSpec(), here.tally)


async def test_a_variant_that_answers_differently_each_time_is_not_asked_of_the_cache(here: House) -> None:
    model = here.gateway.models["simple"]
    moody = tuple(replace(variant, deterministic=False) for variant in model.spec.variants)
    here.cached = changed(here, replace(model, spec=replace(model.spec, variants=moody)))
    await ask_around_the_cache(here, here.add(1))


async def test_where_the_cache_is_off_for_a_model_it_is_not_asked(here: House) -> None:
    here.cached = changed(here, replace(here.gateway.models["simple"], cache=False))
    await ask_around_the_cache(here, here.add(1))


async def test_calls_larger_than_a_batch_are_not_asked_of_the_cache(here: House) -> None:
    large = here.add(here.gateway.models["simple"].spec.batch_max + 1)
    assert results(await answered(here.ask(large), here.ask(large))) == {"": 2}


async def test_an_answer_too_old_for_its_client_is_computed_anew_and_kept(here: House) -> None:
    await answered(here.ask(here.add(1)))
    fresh = here.add(1)
    fresh.max_age_us = 0
    modest = here.add(1)
    modest.max_age_us = 60_000_000
    choosy = here.add(1)
    choosy.max_age_us = 1
    for call, result in ((fresh, "miss"), (choosy, "miss"), (modest, "hit")):
        assert results(await answered(here.ask(call))) == {result: 1}
    assert len(here.tally.batches) == 3


async def test_an_answer_is_kept_no_longer_than_its_time(tmp_path: Path) -> None:
    async with house(tmp_path, batching=PATIENT, cache=CacheSpec(ttl_us=1), slo_us=SLO_US) as here:
        for _ in range(2):
            assert results(await answered(here.ask(here.add(1)))) == {"miss": 1}


async def test_after_an_invalidation_nothing_older_is_given_kept_or_joined(here: House) -> None:
    await answered(here.ask(here.add(1)), here.ask(here.add(1, seed=1)), here.ask(here.delay(0)))
    assert here.cached.invalidate("simple") == 2
    assert results(await answered(here.ask(here.delay(0)))) == {"hit": 1}
    before = here.ask(here.delay(30))
    assert here.cached.invalidate() == 1
    after = here.ask(here.delay(30))
    assert results(await answered(before, after)) == {"miss": 2}
    assert results(await answered(here.ask(here.delay(30)))) == {"hit": 1}
    alone = here.ask(here.delay(20))
    assert here.cached.invalidate() == 1
    assert results(await answered(alone)) == {"miss": 1}
    assert len(here.cached.store) == 0
    assert here.cached.invalidate("simpel") == 0


async def test_when_a_waiting_leaders_client_goes_another_leads_and_it_is_computed_once(here: House) -> None:
    busy = here.ask(here.delay(100))
    asked = [here.ask(here.add(1)) for _ in range(4)]
    await asyncio.sleep(0)
    for request_id, _ in asked[:2]:
        here.cached.cancel(request_id)
    replies = await answered(*asked)
    assert [reply.outcome for reply in replies] == [CLIENT_GONE, CLIENT_GONE, COMPLETED, COMPLETED]
    assert results(replies[2:]) == {"miss": 1, "join": 1}
    await answered(busy)
    assert here.tally.batches == [1, 1]
    assert Counter(here.tally.outcomes) == {COMPLETED: 3, CLIENT_GONE: 2}
    assert len(here.tally.recorded) == len(here.tally.parse_us) == 5
    assert here.cached.open_requests == here.gateway.open_requests == 0


async def test_when_a_running_leaders_client_goes_its_run_is_for_the_others(here: House) -> None:
    with here.stopped():
        asked = [here.ask(here.delay(0)) for _ in range(4)]
        here.dispatch()
        for request_id, _ in asked[:2]:
            here.cached.cancel(request_id)
    replies = await answered(*asked)
    assert [reply.outcome for reply in replies[:2]] == [CLIENT_GONE, CLIENT_GONE]
    assert results(replies[2:]) == {"miss": 1, "join": 1}
    assert here.tally.batches == [1]
    assert Counter(here.tally.outcomes) == {COMPLETED: 2, CLIENT_GONE: 2}
    assert min(reply.queue_us for reply in replies) >= 0
    assert here.cached.open_requests == here.gateway.open_requests == 0


async def test_a_joiner_that_goes_disturbs_nobody(here: House) -> None:
    asked = [here.ask(here.delay(30)) for _ in range(3)]
    here.cached.cancel(asked[1][0])
    replies = await answered(*asked)
    assert [reply.outcome for reply in replies] == [COMPLETED, CLIENT_GONE, COMPLETED]
    for request_id, _ in asked:
        here.cached.cancel(request_id)  # answered before: nothing
    assert here.tally.batches == [1]


async def test_once_all_have_gone_nothing_is_computed(here: House) -> None:
    busy = here.ask(here.delay(50))
    asked = [here.ask(here.add(1)) for _ in range(10)]
    for request_id, _ in reversed(asked):
        here.cached.cancel(request_id)
    assert {reply.outcome for reply in await answered(*asked)} == {CLIENT_GONE}
    await answered(busy)
    assert here.tally.batches == [1]
    assert results(await answered(here.ask(here.add(1)))) == {"miss": 1}


@pytest.mark.parametrize("patience_us", [None, 10_000_000])
async def test_a_running_leader_whose_deadline_passes_is_told_so_and_its_run_is_for_the_others(
    here: House, patience_us: int | None
) -> None:
    hasty, patient = here.delay(0), here.delay(0)
    hasty.timeout_us, patient.timeout_us = 2_000_000, patience_us
    with here.stopped():
        start_us = here.gateway.now_us()
        first, second = here.ask(hasty), here.ask(patient)
        here.dispatch()
        (told,) = await answered(first)
    assert told.outcome is DEADLINE_RUNNING
    assert here.gateway.now_us() - start_us >= 2_000_000
    assert results(await answered(second)) == {"miss": 1}
    assert results(await answered(here.ask(here.delay(0)))) == {"hit": 1}
    assert here.tally.batches == [1]


async def test_a_waiting_leader_whose_deadline_passes_is_told_so_and_its_place_is_the_others(
    here: House,
) -> None:
    with here.stopped():
        busy = here.ask(here.delay(0))
        here.dispatch()
        hasty = here.add(1)
        hasty.timeout_us = 20_000
        first, second = here.ask(hasty), here.ask(here.add(1))
        (told,) = await answered(first)
    assert told.outcome is DEADLINE_QUEUED
    assert results(await answered(busy, second)) == {"miss": 2}
    assert here.tally.batches == [1, 1]


async def test_when_the_deadlines_of_all_who_wait_pass_it_is_not_computed(here: House) -> None:
    with here.stopped():
        busy = here.ask(here.delay(0))
        here.dispatch()
        asked = []
        for patience_us in (20_000, 30_000, 30_000, 25_000):
            call = here.add(1)
            call.timeout_us = patience_us
            asked.append(here.ask(call))
        assert {reply.outcome for reply in await answered(*asked)} == {DEADLINE_QUEUED}
    await answered(busy)
    assert here.tally.batches == [1]
    assert here.cached.open_requests == here.gateway.open_requests == 0
    assert Counter(here.tally.outcomes) == {COMPLETED: 1, DEADLINE_QUEUED: 4}


async def test_a_joiner_is_told_at_its_own_deadline_and_its_leader_goes_on(here: House) -> None:
    with here.stopped():
        leader = here.ask(here.delay(0))
        hasty = here.delay(0)
        hasty.timeout_us = 60_000
        start_us = here.gateway.now_us()
        joined = here.ask(hasty)
        (told,) = await answered(joined)
        assert told.outcome is DEADLINE_QUEUED
        assert here.gateway.now_us() - start_us >= 60_000
        assert not leader[1].done()
    assert results(await answered(leader)) == {"miss": 1}
    assert here.tally.batches == [1]
    assert here.tally.late == 0, "a tighter joiner makes nobody else late"


async def test_a_joiner_in_a_hurry_moves_the_work_forward(here: House) -> None:
    busy = here.ask(here.delay(100))
    order: list[str] = []

    def ask(call: Call, name: str) -> None:
        here.cached.submit(call, lambda _: order.append(name))

    ask(here.add(1, seed=1), "other")
    ask(here.add(1), "leader")
    hasty = here.add(1)
    hasty.timeout_us = SLO_US // 2
    ask(hasty, "joiner")
    await answered(busy)
    await answered(here.ask(here.add(1, seed=2)))  # after all of them
    assert order == ["leader", "joiner", "other"]


async def test_a_question_that_the_model_raises_on_is_tried_twice_for_all_who_ask(tmp_path: Path) -> None:
    async with house(tmp_path, batching=PATIENT, slo_us=SLO_US, models=(POISONABLE,)) as here:
        failed = [here.ask(here.poison()) for _ in range(100)]
        replies = await answered(*failed)
        assert {reply.outcome for reply in replies} == {MODEL_ERROR}
        assert all("poisonous" in reply.detail for reply in replies)
        assert here.tally.outcomes == 100 * [MODEL_ERROR]
        assert here.gateway._count == 2
        assert len(here.tally.recorded) == 100
        assert here.cached.open_requests == 0
        assert len(here.cached.store) == 0
        assert (await answered(here.ask(here.poison())))[0].outcome is MODEL_ERROR


async def test_when_the_worker_dies_nobody_is_left_waiting(here: House) -> None:
    asked = [here.ask(here.delay(1_000)) for _ in range(20)]
    here.dispatch()
    pid = here.fleet.pid("s")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    replies = await answered(*asked)
    assert {reply.outcome for reply in replies} == {COMPLETED}, "the next worker computes it"
    assert here.cached.open_requests == 0
    await here.until(lambda: here.gateway.ready)
    assert results(await answered(here.ask(here.delay(1)))) == {"miss": 1}


async def test_thousands_of_joiners_of_a_call_that_is_turned_away_are_all_told(tmp_path: Path) -> None:
    async with house(tmp_path, batching=PATIENT, slo_us=SLO_US, models=(POISONABLE,)) as here:
        asked = [here.ask(here.poison()) for _ in range(3_000)]
        here.gateway.drain()
        here.cached.cancel(asked[0][0])
        replies = await answered(*asked)
        outcomes = Counter(reply.outcome for reply in replies)
        assert outcomes == {CLIENT_GONE: 1, MODEL_ERROR: 1, DRAINING: 2_998}
        assert here.cached.open_requests == 0


async def test_a_rejected_call_keeps_nothing_and_its_id_is_0(here: House) -> None:
    here.gateway.drain()
    request_id, told = here.ask(here.add(1))
    assert (request_id, (await told).outcome) == (0, DRAINING)
    assert here.cached.open_requests == 0


async def test_an_edge_that_fails_to_deliver_costs_no_one_else_an_answer(
    here: House, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(reply: Reply) -> None:
        raise RuntimeError("the edge is broken")

    for _ in range(2):  # a leader and a joiner
        here.cached.submit(here.add(1), fail)
    assert results(await answered(here.ask(here.add(1)))) == {"join": 1}
    here.cached.submit(here.add(1), fail)  # a hit
    assert caplog.text.count("RuntimeError: the edge is broken") == 3


async def test_an_answer_may_be_the_occasion_to_submit_and_to_cancel(here: House) -> None:
    told: list[Reply] = []
    next_one: list[tuple[int, asyncio.Future[Reply]]] = []

    def deliver(reply: Reply) -> None:
        told.append(reply)
        for request_id in others:
            here.cached.cancel(request_id)  # their answer is on its way
        here.cached.submit(here.add(1), told.append)
        next_one.append(here.ask(here.add(1, seed=1)))

    here.cached.submit(here.add(1), deliver)
    asked = [here.ask(here.add(1)) for _ in range(3)]
    others = [request_id for request_id, _ in asked]
    assert results(await answered(*asked)) == {"join": 3}
    assert results(await answered(*next_one)) == {"miss": 1}
    assert [reply.cache for reply in told] == ["miss", "hit"]
    assert here.cached.open_requests == 0


async def test_no_more_calls_wait_than_may(here: House) -> None:
    here.cached = CachedServing(here.gateway, CacheSpec(), here.tally, members_max=3)
    replies = await answered(*(here.ask(here.add(1)) for _ in range(5)))
    assert results(replies) == {"miss": 1, "join": 2, "": 2}
    assert len(here.tally.batches) == 3


async def test_the_cache_never_holds_more_than_its_bytes(tmp_path: Path) -> None:
    held = CacheSpec(memory_bytes=8_000)
    async with house(tmp_path, LIMITS, PATIENT, (MODELS / "simple",), held, SLO_US) as here:
        for seed in range(30):
            await answered(here.ask(here.add(1, seed=seed)))
            assert here.cached.store.held_bytes <= 8_000
        assert 0 < len(here.cached.store) < 30
