"""The memory tier: within its bytes always, fresh always, and what is asked for stays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from serving.cache.entries import KeptAnswer
from serving.cache.memory import (
    HAND_STEPS_MAX,
    SAMPLE,
    SAMPLE_ENTRIES_MIN,
    SWEEP_STEPS,
    WINDOW,
    MemoryStore,
)
from tests.cache.values import TTL_US, entry, key_of
from tests.seeds import drawn

numbers = st.integers(0, 7)
LARGE = 100_000  # bytes of an entry where the sketch is to be wide enough to be exact


def store_of(entries: int, ttl_us: int = TTL_US) -> MemoryStore:
    """Room for so many LARGE entries (8 at most) and none in the window, which they pass by."""
    return MemoryStore(int(entries * LARGE / (1 - WINDOW)) + 1, ttl_us)


def ask(store: MemoryStore, number: int, size: int = LARGE, now_us: int = 0) -> bool:
    """As the gateway does: look, and where nothing is kept, compute and offer it. Whether it was kept."""
    if store.get(key_of(number), now_us) is not None:
        return True
    store.put(key_of(number), entry(size, now_us), now_us)
    return False


def popular(store: MemoryStore, number: int, times: int) -> None:
    """Many ask at once, and the answer is computed for all."""
    for _ in range(times):
        store.get(key_of(number), 0)
    store.put(key_of(number), entry(LARGE), 0)


def kept(store: MemoryStore, *numbers: int) -> list[int]:
    """Those that the store holds, looked at without being asked for."""
    held = {**store._main.slots, **store._window.slots}
    return [each for each in numbers if key_of(each) in held and not held[key_of(each)].edition.withdrawn]


class Keeping(RuleBasedStateMachine):
    """A store of 20 bytes, 2 of them the window, for 5 microseconds, beside the last answer to each."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore(20, 5)
        self.now_us = 0
        self.last: dict[int, KeptAnswer] = {}
        self.crowded = False  # since it was last empty, more was offered than fits

    @rule(number=numbers, size=st.one_of(st.integers(1, 3), st.integers(1, 20)), age_us=st.integers(0, 6))
    def put(self, number: int, size: int, age_us: int) -> None:
        model = "mn"[number % 2]  # a key is of one model: that is part of what it digests
        answer = self.last[number] = entry(size, self.now_us - age_us, model)
        self.store.put(key_of(number), answer, self.now_us)
        self.crowded |= sum(each.bytes for each in self.last.values()) > 18

    @rule(number=numbers, again=st.integers(1, 3))
    def get(self, number: int, again: int) -> None:
        for _ in range(again):
            got = self.store.get(key_of(number), self.now_us)
            last = self.last.get(number)
            fresh = last is not None and self.now_us - last.stored_us < 5
            assert got is None or (got is last and fresh), "an answer that is old or not the last"
            assert got is not None or not fresh or self.crowded, "lost although there was room"

    @rule(pause_us=st.integers(1, 4))
    def wait(self, pause_us: int) -> None:
        self.now_us += pause_us

    @rule(model=st.sampled_from(["", "m", "n"]))
    def invalidate(self, model: str) -> None:
        before, epoch = len(self.store), self.store.epoch
        dropped = self.store.invalidate(model)
        assert before - len(self.store) == dropped
        assert self.store.epoch > epoch
        self.last = {number: each for number, each in self.last.items() if model not in ("", each.model)}
        if not model:
            assert len(self.store) == 0
            self.crowded = False

    @invariant()
    def never_over_its_bytes(self) -> None:
        queues = (self.store._main, self.store._window)
        for queue, bytes_max in zip(queues, (18, 2), strict=True):
            assert queue.held_bytes == sum(slot.entry.bytes for slot in queue.slots.values()) <= bytes_max
        assert not queues[0].slots.keys() & queues[1].slots.keys()
        slots = [slot for queue in queues for slot in queue.slots.values()]
        assert len(self.store) == sum(not slot.edition.withdrawn for slot in slots)
        assert self.store.held_bytes == sum(queue.held_bytes for queue in queues)


Keeping.TestCase.settings = settings(max_examples=drawn(200), stateful_step_count=40)
TestKeeping = pytest.mark.slow(Keeping.TestCase)


@given(st.integers(1, 1000), st.integers(0, 1000), st.sampled_from([LARGE // 20, LARGE // 2]))
def test_an_answer_lives_exactly_its_time(ttl_us: int, stored_us: int, size: int) -> None:
    store = MemoryStore(LARGE, ttl_us)  # the smaller fits in the window
    store.put(key_of(1), entry(size, stored_us), stored_us)
    assert store.get(key_of(1), stored_us + ttl_us - 1) is not None
    assert store.get(key_of(1), stored_us + ttl_us) is None
    assert (len(store), store.held_bytes, store.evictions) == (0, 0, 0)


@given(st.sets(numbers, min_size=1, max_size=7))
def test_what_was_asked_for_gets_a_second_chance_and_only_one(asked: set[int]) -> None:
    store = store_of(8)
    for number in range(8):
        ask(store, number)
    for number in asked:
        ask(store, number)
    for newcomer in range(100, 100 + 8 - len(asked)):
        popular(store, newcomer, 5)
    assert kept(store, *range(8)) == sorted(asked)
    assert store.evictions == 8 - len(asked)
    for newcomer in range(200, 208):
        popular(store, newcomer, 10)
    assert kept(store, *range(8)) == []


def test_questions_that_nobody_repeats_flush_nothing() -> None:
    store = MemoryStore(50 * LARGE, TTL_US)  # LRU would keep none of them: 79 others come between two asks
    for _ in range(3):
        for number in range(40):
            ask(store, number)
    for once in range(1000, 6000):
        assert ask(store, once % 40)
        assert not ask(store, once)


def test_what_is_asked_again_at_once_is_found_though_others_are_asked_for_more_often() -> None:
    store = MemoryStore(100 * LARGE, TTL_US)
    for _ in range(10):
        for number in range(90):
            ask(store, number)
    for newcomer in range(1000, 1100):
        asks = [ask(store, newcomer - back) for back in (5, 0, 3)]
        assert newcomer < 1005 or asks == [True, False, True]
    store.put(key_of(1), entry(11 * LARGE), 0)  # larger than the window, which it leaves alone
    assert all(ask(store, newcomer) for newcomer in range(1090, 1100))


def test_a_question_asked_more_often_than_another_takes_its_place() -> None:
    store = store_of(2)
    ask(store, 1)
    ask(store, 2)
    assert [ask(store, 3) for _ in range(3)] == [False, False, True]
    assert len(kept(store, 1, 2)) == 1
    assert store.evictions == 2, "the first attempt's own answer, and what went for the second"


def test_what_was_popular_once_is_forgotten() -> None:
    store = MemoryStore(50 * LARGE, TTL_US)
    for _ in range(100):
        for number in range(50):
            ask(store, number)
    for _ in range(5 * SAMPLE * SAMPLE_ENTRIES_MIN // 45):  # four samples halve fifteen to nothing
        for number in range(100, 145):
            ask(store, number)
    assert all(ask(store, number) for number in range(100, 145))


def test_a_large_answer_must_be_worth_all_that_would_go_for_it() -> None:
    store = store_of(4)
    for number in range(4):
        ask(store, number)
    for _ in range(3):  # each of the three that would go for it was asked for once
        ask(store, 10, 3 * LARGE)
        assert kept(store, 0, 1, 2, 3, 10) == [0, 1, 2, 3]
    ask(store, 10, 3 * LARGE)
    assert len(kept(store, 0, 1, 2, 3)) == 1
    assert kept(store, 10) == [10]


def test_many_forgotten_answers_make_way_for_a_large_one() -> None:
    count = 4 * HAND_STEPS_MAX
    store = MemoryStore(count * 1000, TTL_US)
    for number in range(count):
        ask(store, number, 1000)
    for _ in range(4 * SAMPLE):  # a quarter is asked for on, until the rest is forgotten
        for number in range(count // 4):
            ask(store, number, 1000)
    assert any(ask(store, count, count * 1000 // 2) for _ in range(8))
    assert all(ask(store, number, 1000) for number in range(count // 4))


def test_a_new_answer_replaces_the_old_one_at_no_others_cost() -> None:
    store = store_of(3)
    for number in range(3):
        ask(store, number)
    again = entry(LARGE, 5)
    store.put(key_of(1), again, 5)
    assert store.get(key_of(1), 5) is again
    assert kept(store, 0, 1, 2) == [0, 1, 2]
    assert store.evictions == 0


def test_an_answer_larger_than_the_store_is_not_kept_and_neither_is_the_one_before() -> None:
    store = store_of(2)
    for number in (1, 2):
        store.put(key_of(number), entry(LARGE), 0)
    store.put(key_of(1), entry(2 * LARGE + 2), 0)
    assert kept(store, 1, 2) == [2]


def test_expired_answers_make_way_first_and_are_no_evictions() -> None:
    store = store_of(2, ttl_us=10)
    popular(store, 1, 5)
    ask(store, 2, now_us=9)
    ask(store, 3, now_us=10)
    assert kept(store, 1, 2, 3) == [2, 3]
    assert store.evictions == 0


def test_an_answer_that_comes_too_late_moves_nothing() -> None:
    store = store_of(1)
    ask(store, 2)
    for _ in range(9):
        store.get(key_of(3), 0)
    store.put(key_of(3), entry(LARGE, -TTL_US), 0)
    assert kept(store, 2, 3) == [2]


def test_a_model_is_forgotten_alone_in_the_window_too() -> None:
    store = MemoryStore(20 * LARGE, TTL_US)
    for number in range(6):
        store.put(key_of(number), entry(LARGE, model="mn"[number % 2]), 0)
    assert len(store._window.slots) == 2
    assert store.invalidate("m") == 3
    assert kept(store, *range(6)) == [1, 3, 5]
    assert store.invalidate("unheard of") == 0
    assert store.invalidate() == 3
    assert store.invalidate() == 0
    assert [store.get(key_of(number), 0) for number in range(6)] == 6 * [None]


def test_an_invalidation_looks_at_no_entry_and_their_memory_is_free_after_some_puts() -> None:
    count = 40 * SWEEP_STEPS
    store = MemoryStore(2 * count * LARGE, TTL_US)
    for number in range(count):
        store.put(key_of(number), entry(LARGE, model="mn"[number % 4 == 0]), 0)
    held = store.held_bytes
    assert store.invalidate("m") == count * 3 // 4
    assert (len(store), store.held_bytes) == (count // 4, held)
    for number in range(count, count + 40):
        store.put(key_of(number), entry(LARGE), 0)
    windowed = sum(slot.edition.withdrawn for slot in store._window.slots.values())
    assert store.held_bytes == (count // 4 + 40 + windowed) * LARGE
    assert kept(store, *range(0, count, 4)) == list(range(0, count, 4))


def test_what_was_invalidated_makes_way_before_anything_else() -> None:
    count = HAND_STEPS_MAX // 2
    store = store_of(count)
    for number in range(count):
        store.put(key_of(number), entry(LARGE, model="nm"[number % 2]), 0)
    store.invalidate("m")
    for number in range(count, count + count // 2):
        store.put(key_of(number), entry(LARGE), 0)
    assert kept(store, *range(0, count, 2)) == list(range(0, count, 2))
    assert kept(store, *range(count, count + count // 2)) == list(range(count, count + count // 2))
    assert store.evictions == 0
