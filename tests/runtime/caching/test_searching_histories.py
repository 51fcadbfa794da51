"""What a cache that shares answers promises in any order of events; what another gateway or Redis says, and
when, is the history's."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.cache.entries import KeptAnswer, entry_of
from serving.cache.keys import question_key
from serving.runtime.caching.redis_tier import Found, RedisQuery
from serving.values.tensor import Tensor
from tests.runtime.caching.test_caching_histories import History, timeouts
from tests.seeds import rotating

TAKEN_US = 400


class Scripted:
    """A tier that says what it is told to. `leases`: names of what others wait for."""

    def __init__(self) -> None:
        self.budget_us = 1
        self.on_invalidated: Callable[[str], object] = lambda _model: None
        self.on_healed: Callable[[], object] = lambda: None
        self.usable = True
        self.looks: list[RedisQuery] = []
        self.leases: set[bytes] = set()
        self.epoch = 0

    def name(self, model: str, key: bytes) -> bytes:
        return b"%d:%b" % (self.epoch, key)

    def look(self, look: RedisQuery) -> None:
        look.name = self.name(look.model, look.key)
        self.looks.append(look)

    def withdraw(self, look: RedisQuery) -> None:
        look.over = True

    def put(self, key: bytes, entry: KeptAnswer) -> None:
        self.leases.discard(self.name(entry.model, key))

    def release(self, name: bytes) -> None:
        self.leases.discard(name)

    def invalidate(self, model: str = "") -> None:
        self.epoch += 1

    def tell(self, pick: int, found: Found) -> None:
        if self.looks:
            look = self.looks.pop(pick % len(self.looks))
            if not look.over:
                look.over = True
                if found == 0:
                    self.leases.add(look.name)
                look.told(found)


class SharingHistory(History):
    """Beside the rest, another gateway whose answers are right too, and a way there that may be out."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = Scripted()
        self.cached.share(self.tier)

    def find(self, pick: int, age_us: int) -> None:
        """A look finds the answer."""
        looks = self.tier.looks
        if looks:
            key = looks[pick % len(looks)].key
            call = next(call for _, call in self.calls if question_key(call, False) == key)
            answer = Tensor("Y", "FP32", (1, 4), call.inputs[0].data)
            self.tier.tell(pick, entry_of("m", "a", [answer], self.cached.now_us() - age_us))

    def trip(self) -> None:
        self.tier.usable = False
        while self.tier.looks:
            self.tier.tell(0, None)

    def heal(self) -> None:
        self.tier.usable = True
        self.tier.on_healed()

    def invalidate(self) -> None:
        self.cached.invalidate()

    def invalidate_there(self) -> None:
        self.tier.epoch += 1
        self.tier.on_invalidated("m")

    def check(self) -> None:
        searches = len(self.cached.searches)
        assert self.gateway.open_requests == len(self.cached._flights) - searches
        waiting = sum(not told for told in self.replies)
        assert self.cached.open_requests == len(self.cached._members) == waiting
        assert sum(not look.over for look in self.tier.looks) <= searches, "nobody is told in vain"


events = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 1), timeouts),
    st.tuples(st.just("ask"), st.integers(0, 1), timeouts, st.sampled_from([False, False, True])),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("finish"), st.sampled_from([True, True, False])),
    st.tuples(st.just("tell"), st.integers(0, 5), st.sampled_from([0, 0, None, TAKEN_US, 10**9])),
    st.tuples(st.just("find"), st.integers(0, 5), st.sampled_from([0, 10**6])),
    st.tuples(
        st.sampled_from(["pass_time", "lose_worker", "invalidate", "invalidate_there", "trip", "heal"])
    ),
)


async def play(history: Sequence[tuple[object, ...]]) -> None:
    here = SharingHistory()
    for event, *details in history:
        if event == "pass_time":
            await here.pass_time()
        else:
            getattr(here.tier if event == "tell" else here, str(event))(*details)
        here.check()
    while here.cached.open_requests:
        await here.pass_time()
        here.finish(True)
        here.tier.tell(0, None)
        here.check()
    here.close()
    assert not here.tier.leases, "others wait for nobody"
    assert not here.cached.searches._searches
    assert not here.cached.searches._leases


@pytest.mark.slow
@rotating(600)
@given(st.lists(events, max_size=40))
def test_every_call_is_answered_once_and_no_lease_is_left_whatever_is_found_elsewhere(
    history: list[tuple[object, ...]],
) -> None:
    asyncio.run(play(history))
