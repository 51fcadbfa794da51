"""What the cache promises in any order of events: calls, clients that go, deadlines, failures, losses.

The gateway and its scheduler are the real ones; the worker is the history's, which says when a batch is back.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.cache.benefit import ASKS, class_of
from serving.cache.flights import FAILURES_MAX
from serving.cache.keys import DIGEST_BYTES_MAX
from serving.cache.spec import CacheSpec
from serving.ports import Call, Reply
from serving.profile.derived.latency import Latency
from serving.runtime.caching.caching import CachedServing
from serving.runtime.calls.gateway import Gateway
from serving.values.specs import BatchingSpec, Limits
from serving.values.tensor import Tensor
from serving.values.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    MODEL_ERROR,
    NO_REPLICA,
    WORKER_LOST,
)
from serving.worker.frames.batches import BatchInput, BatchOutput, BatchResult
from tests.builders import model_spec, profile, served
from tests.runtime.house import Tally
from tests.seeds import rotating

SHORT_US, LONG_US, SLO_US = 300, 60_000_000, 30_000_000
COMPUTE_US = 500  # more than any machine takes for an ask of the cache
IN_TIME = {DEADLINE_QUEUED, DEADLINE_RUNNING}
LOST = {WORKER_LOST, NO_REPLICA}


class Bench:
    """A link to a worker that computes nothing: the batches that it was given, oldest first."""

    slice = "s"

    def __init__(self) -> None:
        self.running: list[tuple[int, bytes]] = []
        self.started: Counter[bytes] = Counter()

    def run(self, batch_id: int, replica: int, rows: int, inputs: Sequence[BatchInput], *_: object) -> None:
        question = bytes(inputs[0].buffers[0])
        self.running.append((batch_id, question))
        self.started[question] += 1

    def leave(self, batch_id: int, row: int) -> None:
        raise AssertionError("no model here is decoupled")


def tensor_of(question: int) -> Tensor:
    return Tensor("X", "FP32", (1, 4), question.to_bytes(4, "little") * 4)


class History:
    """A model that answers each question with itself, one row a batch, and what became of each call."""

    def __init__(self) -> None:
        self.model = served(model_spec(slo_ms=SLO_US // 1000), batching=BatchingSpec("static", size=1))
        object.__setattr__(self.model, "cache", True)
        self.tally = Tally()
        self.gateway = Gateway([self.model], Limits(), self.tally, record=self.tally.record)
        self.cached = CachedServing(self.gateway, CacheSpec(), self.tally, self.tally.record)
        self.bench = Bench()
        self.replies: list[list[Reply]] = []
        self.calls: list[tuple[int, Call]] = []
        self.gone: set[int] = set()
        self.faults = 0  # requests of the gateway that something befell
        self.replica_up()

    def replica_up(self) -> None:
        latency = Latency(profile())
        self.gateway.replica_up(self.bench, "m", "a", 1, latency)

    def ask(self, question: int, timeout_us: int | None, meddles: bool = False) -> None:
        """`meddles`: once it is answered all others go."""
        call = Call(self.model, [tensor_of(question)], 1)
        call.timeout_us = timeout_us
        told: list[Reply] = []
        self.replies.append(told)
        self.calls.append((0, call))

        def deliver(reply: Reply) -> None:
            told.append(reply)
            if meddles:
                for number in range(len(self.calls)):
                    self.cancel(number)

        self.calls[-1] = self.cached.submit(call, deliver), call

    def cancel(self, pick: int) -> None:
        if self.calls:
            number = pick % len(self.calls)
            waited = not self.replies[number]
            self.cached.cancel(self.calls[number][0])
            if waited and self.replies[number]:
                self.gone.add(number)

    def finish(self, well: bool) -> None:
        if self.bench.running:
            batch_id, question = self.bench.running.pop(0)
            if well:
                output = BatchOutput("FP32", (4,), question, 1)
                self.gateway.batch_done(BatchResult(batch_id, COMPUTE_US, 0, 1, [output]))
            else:
                self.faults += 1
                self.gateway.batch_failed(batch_id, "why")

    def lose_worker(self) -> None:
        self.faults += self.gateway.open_requests
        self.bench.running.clear()
        self.gateway.slice_down("s", "died")
        self.replica_up()

    async def pass_time(self) -> None:
        """So long that a short timeout is over, and what is due then has happened."""
        until_us = self.cached.now_us() + SHORT_US
        while self.cached.now_us() < until_us:
            pass
        for _ in range(2):
            self.cached._expire(self.cached.now_us())  # an alarm is up to 1 ms late
            await asyncio.sleep(0)

    def check(self) -> None:
        assert self.gateway.open_requests == len(self.cached._flights), "one request for each question"
        waiting = sum(not told for told in self.replies)
        assert self.cached.open_requests == waiting
        assert len(self.cached._members) == waiting

    def close(self) -> None:
        """Every call was answered once, and rightly."""
        for number, (told, (_, call)) in enumerate(zip(self.replies, self.calls, strict=True)):
            (reply,) = told
            allowed = {COMPLETED, MODEL_ERROR, *LOST}
            if call.timeout_us is not None:
                allowed |= IN_TIME
            assert reply.outcome in ({CLIENT_GONE} if number in self.gone else allowed)
            assert reply.outcome is not COMPLETED or reply.outputs[0].data == call.inputs[0].data
            assert self.faults or reply.outcome not in {MODEL_ERROR, *LOST}
            assert reply.queue_us >= 0
        assert len(self.tally.outcomes) == len(self.tally.recorded) == len(self.calls)
        assert Counter(self.tally.outcomes) == Counter(told[0].outcome for told in self.replies)
        begun = self.tally.asked.count("miss")
        assert self.gateway._count <= begun + self.faults, "computed again for nothing"


timeouts = st.sampled_from([None, None, SHORT_US, LONG_US])
events = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 1), timeouts),
    st.tuples(st.just("ask"), st.integers(0, 1), timeouts, st.sampled_from([False, False, False, True])),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("finish"), st.sampled_from([True, True, False])),
    st.tuples(st.sampled_from(["dispatch", "pass_time", "lose_worker", "invalidate"])),
)


async def play(history: Sequence[tuple[object, ...]]) -> None:
    here = History()
    for event, *details in history:
        if event == "dispatch":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        elif event == "pass_time":
            await here.pass_time()
        elif event == "invalidate":
            here.cached.invalidate()
        else:
            getattr(here, str(event))(*details)
        here.check()
    while here.cached.open_requests:
        await here.pass_time()
        here.finish(True)
        here.check()
    here.close()


@pytest.mark.slow
@rotating(400)
@given(st.lists(events, max_size=40))
def test_every_call_is_answered_once_and_no_question_computed_twice_for_those_who_wait(
    history: list[tuple[object, ...]],
) -> None:
    asyncio.run(play(history))


async def answer(here: History, question: int) -> Reply:
    here.ask(question, None)
    if not here.replies[-1]:
        for _ in range(2):
            await asyncio.sleep(0)
        here.finish(True)
    return here.replies[-1][0]


@pytest.mark.slow
async def test_where_nobody_asks_again_the_cache_is_passed_by_until_somebody_does() -> None:
    here = History()
    worth = here.cached.worth["m"]
    await answer(here, number := 1)
    worth._cost_us = min(worth._cost_us, 100.0)  # the first ask says it: not one that was interrupted
    while worth.enabled:
        number += 1
        assert (await answer(here, number)).cache == "miss"
    assert number > ASKS / 4
    passing = next(each for each in count(number + 1) if class_of([tensor_of(each)]) != 0)
    for _ in range(3):
        assert (await answer(here, passing)).cache == ""
    sampled = next(each for each in count(number + 1) if class_of([tensor_of(each)]) == 0)
    while not worth.enabled:
        await answer(here, sampled)
        assert worth.bypassed == 3, "the sample's turn is over"
    assert [(await answer(here, passing)).cache for _ in range(2)] == ["miss", "hit"]
    assert len(here.tally.recorded) == len(here.calls)


async def test_large_inputs_are_not_digested() -> None:
    here = History()
    for size, results in ((DIGEST_BYTES_MAX, ["miss", "hit"]), (DIGEST_BYTES_MAX + 4, ["", ""])):
        told: list[Reply] = []
        for _ in range(2):
            call = Call(here.model, [Tensor("X", "FP32", (1, size // 4), bytes(size))], 1)
            here.cached.submit(call, told.append)
            if len(told) < len(results):
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                here.finish(True)
        assert [reply.cache for reply in told] == results


async def test_a_question_that_fails_is_tried_no_more_often_than_it_may() -> None:
    here = History()
    for _ in range(5):
        here.ask(0, None)
    for _ in range(FAILURES_MAX + 1):
        await here.pass_time()
        here.finish(False)
    assert {told[0].outcome for told in here.replies} == {MODEL_ERROR}
    assert here.bench.started.total() == FAILURES_MAX + 1
    here.close()


@pytest.mark.parametrize("joined", [True, False], ids=["joined", "left-again"])
@pytest.mark.parametrize("well", [True, False], ids=["computed", "failed"])
async def test_a_leader_is_told_that_its_own_deadline_has_passed_before_any_timer_says_so(
    joined: bool, well: bool
) -> None:
    here, patience_us = History(), 100 * SHORT_US
    here.ask(0, patience_us)  # alone, the gateway itself would know when it expires
    here.ask(0, None)
    if not joined:
        here.cancel(1)
    for _ in range(2):
        await asyncio.sleep(0)
    assert here.bench.running
    assert not here.replies[0]
    until_us = here.cached.now_us() + patience_us
    while here.cached.now_us() <= until_us:
        pass
    here.finish(well)  # no timer has fired since
    assert [reply.outcome for reply in here.replies[0]] == [DEADLINE_RUNNING]
    assert [reply.outcome for reply in here.replies[1]] == [
        CLIENT_GONE if not joined else COMPLETED if well else MODEL_ERROR
    ]
    here.check()
    here.close()
