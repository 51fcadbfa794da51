"""What residency promises: memory is never exceeded, nobody busy goes, everyone who asks is told."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.control.on_demand.on_demand_model import (
    HOLD_US,
    RETRY_FIRST_US,
    RETRY_MAX_US,
    BeginLoad,
    BeginUnload,
    LoadFigures,
    LoadState,
    Ready,
    Refuse,
)
from serving.control.on_demand.slice_memory import IN_USE, LOST, UNWANTED, WORTH_MORE, SliceMemory
from serving.policy.residency import Key
from serving.values.vocabulary import NEVER_US
from tests.control.residency_world import World
from tests.seeds import drawn

MB = 1 << 20
LOAD_US = 1000
A, B, C, D, E = keys = tuple((name, "v") for name in "abcde")
STEPS = st.lists(st.tuples(st.integers(0, 13), st.integers(0, 11)), max_size=60)


def residency_of(
    limit_mb: int = 2, figures: Mapping[Key, LoadFigures] | None = None, there: tuple[Key, ...] = (A, B)
) -> SliceMemory:
    """Five models of 1 MB, of which `there` are loaded at the instant 0."""
    found = SliceMemory(limit_mb * MB)
    found.want(figures or dict.fromkeys((*there, *keys), LoadFigures(MB, LOAD_US)), 0)
    orders = list(found.fill({}, 0))
    for key in there:
        assert BeginLoad(key) in orders
        orders = list(found.loaded(key, (LOAD_US, MB), 0))
    return found


def replace(residency: SliceMemory, old: Key, new: Key, now: int) -> None:
    """`new` is asked for, and `old` goes for it."""
    assert BeginUnload(old) in residency.ask(new, {}, (), now)
    assert BeginLoad(new) in residency.unloaded(old, now)
    residency.loaded(new, (LOAD_US, MB), now)


@settings(max_examples=drawn(40))
@given(st.integers(0, 30), st.booleans(), STEPS)
def test_any_history_keeps_to_memory_spares_who_is_busy_and_answers_who_asks(
    seed: int, surprises: bool, steps: list[tuple[int, int]]
) -> None:
    world = World(seed, surprises=surprises)
    world.run([(10, 0), *steps])
    world.settle()


@pytest.mark.slow
@pytest.mark.parametrize("surprises", [False, True])
def test_a_hundred_thousand_random_events_keep_to_it(surprises: bool) -> None:
    beside = 0
    for seed in range(100):
        random = Random(seed)
        world = World(seed, models=random.choice((3, 8, 14)), surprises=surprises)
        for _ in range(5):
            world.run([(random.randrange(14), random.randrange(12)) for _ in range(100)])
            world.settle()
        beside += world.beside
    assert beside > 100


# what is there at the start, and what is loaded ahead


def test_what_fits_is_loaded_at_the_start_one_after_the_other_in_the_order_of_want() -> None:
    residency = SliceMemory(5 * MB)
    sizes = {A: 2, B: 4, C: 2, D: 1, E: 1}
    residency.want({key: LoadFigures(size * MB, LOAD_US) for key, size in sizes.items()}, 0)
    assert residency.ask(A, {}, (), 0) == (Refuse(A, "its worker is not there yet"),)
    assert residency.fill({}, 0) == [BeginLoad(A), Ready(A, LOAD_US)]
    assert residency.loaded(A, (LOAD_US, 2 * MB), 7) == [BeginLoad(C), Ready(C, 7 + LOAD_US)]
    assert residency.loaded(C, (LOAD_US, 2 * MB), 8) == [BeginLoad(D), Ready(D, 8 + LOAD_US)]
    assert residency.loaded(D, (LOAD_US, MB), 9) == []
    assert residency.residence(E) is LoadState.ABSENT
    assert residency.fill({}, 10) == []


def test_after_a_worker_was_lost_what_is_asked_for_most_is_loaded_first() -> None:
    residency = residency_of()
    assert residency.lost(5) == []
    assert residency.residence(A) is LoadState.ABSENT
    assert residency.held_bytes == 0
    figures = {
        A: LoadFigures(MB, LOAD_US, share=0.1),
        B: LoadFigures(MB, LOAD_US),
        C: LoadFigures(MB, LOAD_US),
    }
    residency.want(figures, 5)
    assert BeginLoad(C) in residency.fill({"a": 9.0, "c": 2.0, "b": 1.0}, 6)
    assert BeginLoad(B) in residency.loaded(C, (LOAD_US, MB), 7)


def test_room_is_filled_later_with_what_is_asked_for_at_all() -> None:
    residency = residency_of(3, {A: LoadFigures(MB, LOAD_US), B: LoadFigures(MB, LOAD_US)})
    residency.want(dict.fromkeys(keys, LoadFigures(MB, LOAD_US)), 1)
    assert residency.fill({}, 1) == []
    assert residency.fill({"d": 0.1}, 1) == [BeginLoad(D), Ready(D, 1 + LOAD_US)]


def test_what_requests_wait_for_is_loaded_before_what_is_loaded_ahead_which_gives_up_its_room() -> None:
    residency = residency_of(4, dict.fromkeys(keys, LoadFigures(MB, LOAD_US)), there=())
    # A is being loaded; B, C and D have room ahead of any request
    assert residency.ask(D, {}, (), 0) == [Ready(D, 2 * LOAD_US)]
    assert residency.ask(E, {}, (), 0) == [Ready(E, 3 * LOAD_US)]
    assert residency.residence(C) is LoadState.ABSENT
    assert residency.residence(B) is LoadState.QUEUED
    assert residency.loaded(A, (LOAD_US, MB), LOAD_US)[0] == BeginLoad(D)
    assert residency.loaded(D, (LOAD_US, MB), 2 * LOAD_US)[0] == BeginLoad(E)
    assert residency.loaded(E, (LOAD_US, MB), 3 * LOAD_US)[0] == BeginLoad(B)


# who asks


def test_a_model_that_is_asked_for_twice_is_loaded_once() -> None:
    residency = residency_of()
    assert residency.ask(C, {}, (), 0) == [BeginUnload(A), Ready(C, LOAD_US)]
    assert residency.ask(C, {}, (), 1) == [Ready(C, 1 + LOAD_US)]
    assert residency.unloaded(A, 2) == [BeginLoad(C), Ready(C, 2 + LOAD_US)]
    assert residency.ask(C, {}, (), 500) == [Ready(C, 2 + LOAD_US)]
    assert residency.loaded(C, (LOAD_US, MB), 1002) == []
    assert residency.ask(C, {}, (), 1003) == ()


def test_ready_counts_the_load_under_way_those_before_it_and_its_own() -> None:
    loads = {A: 1000.0, B: 2000.0, C: 4000.0, D: 8000.0, E: 100.0}
    residency = residency_of(9, {key: LoadFigures(MB, load_us) for key, load_us in loads.items()}, there=())
    residency.want({key: LoadFigures(MB, load_us) for key, load_us in loads.items()}, 0)
    residency.ask(A, {}, (), 0)  # is being loaded
    assert residency.ask(C, {}, (), 400) == [Ready(C, 1000 + 4000)]
    assert residency.ask(D, {}, (), 500) == [Ready(D, 1000 + 4000 + 8000)]
    assert residency.ready_in_us(C, 500) == 500 + 4000
    assert residency.ready_in_us(E, 500) == 500 + 4000 + 8000 + 100
    # late by 300, so for 300 more
    assert residency.ready_in_us(E, 1300) == 300 + 4000 + 8000 + 100
    assert residency.loaded(A, (1500, MB), 1500) == [BeginLoad(C), Ready(C, 5500), Ready(D, 13_500)]
    assert residency.ready_in_us(A, 1500) == 0
    assert residency.ready_in_us(C, 2500) == 3000


def test_what_is_busy_stays_and_so_does_what_was_just_loaded_for_a_request() -> None:
    residency = residency_of()
    assert residency.ask(C, {}, {"a", "b"}, 0) == (Refuse(C, IN_USE),)
    assert BeginUnload(B) in residency.ask(C, {}, {"a"}, 0)
    residency.unloaded(B, 0)
    residency.loaded(C, (LOAD_US, MB), 0)
    assert residency.ask(D, {}, {"a"}, HOLD_US - 1) == (Refuse(D, IN_USE),)
    assert BeginUnload(C) in residency.ask(D, {}, {"a"}, HOLD_US)


def test_a_model_that_took_long_to_load_stays_for_as_long() -> None:
    residency = residency_of()
    residency.ask(C, {}, {"a"}, 0)
    residency.unloaded(B, 0)
    residency.loaded(C, (5 * HOLD_US, MB), 0)
    assert residency.ask(D, {}, {"a"}, 5 * HOLD_US - 1) == (Refuse(D, IN_USE),)
    assert BeginUnload(C) in residency.ask(D, {}, {"a"}, 5 * HOLD_US)


def test_what_is_asked_for_more_stays_and_the_newcomer_is_told() -> None:
    residency = residency_of()
    rates = {"a": 1000.0, "b": 1000.0, "c": 1.0}
    assert residency.ask(C, rates, (), 0) == (Refuse(C, WORTH_MORE),)
    assert BeginUnload(B) in residency.ask(C, rates | {"b": 0.1}, (), 0)


def test_a_request_that_cannot_be_answered_in_time_is_no_reason_to_let_others_go() -> None:
    figures = LoadFigures(MB, LOAD_US, slo_us=1.5 * LOAD_US)
    residency = residency_of(3, dict.fromkeys(keys, figures), there=(A, B, C))
    rates = dict.fromkeys("abc", 1.0)
    assert residency.ask(D, rates, (), 0) == [BeginUnload(A), Ready(D, LOAD_US)]
    # E would be there after D
    assert residency.ask(E, rates, (), 0) == (Refuse(E, WORTH_MORE),)
    assert residency.ask(E, rates | {"e": 2.0}, (), 0) == [BeginUnload(B), Ready(E, 2 * LOAD_US)]


@pytest.mark.parametrize(("slo_us", "expected"), [(1.25 * LOAD_US, BeginUnload(A)), (1.2 * LOAD_US, None)])
def test_a_load_that_takes_nearly_all_of_the_slo_is_not_in_time(
    slo_us: float, expected: BeginUnload | None
) -> None:
    residency = residency_of(2, dict.fromkeys(keys, LoadFigures(MB, LOAD_US, slo_us=slo_us)))
    told = residency.ask(C, {"a": 1.0, "b": 1.0}, (), 0)
    assert told[0] == (expected or Refuse(C, WORTH_MORE))


def test_the_wait_for_the_loader_counts_against_a_newcomer() -> None:
    slow = {
        A: LoadFigures(MB, LOAD_US),
        B: LoadFigures(MB, LOAD_US),
        C: LoadFigures(MB, 1e6),
        D: LoadFigures(MB, LOAD_US),
    }
    residency = residency_of(3, slow, there=(A, B))
    rates = {"a": 10.0, "b": 10.0}
    assert residency.residence(C) is LoadState.LOADING
    assert residency.ask(D, rates, (), 0) == (Refuse(D, WORTH_MORE),)
    residency.loaded(C, (1_000_000, MB), 1_000_000)
    assert BeginUnload(A) in residency.ask(D, rates, {"c"}, 1_000_000)


# what turns out otherwise


def test_a_model_larger_than_its_slice_is_refused() -> None:
    residency = residency_of(2, {A: LoadFigures(MB, LOAD_US), B: LoadFigures(3 * MB, LOAD_US)}, there=(A,))
    reason = "it takes 3 MB, and its slice has 2 MB for models (memory_mb)"
    assert residency.ask(B, {}, (), 0) == (Refuse(B, reason),)
    assert residency.ready_in_us(B, 0) == NEVER_US
    assert residency.ready_in_us(E, 0) == NEVER_US
    assert residency.ask(E, {}, (), 0) == (Refuse(E, UNWANTED),)


def test_others_go_for_a_model_that_turns_out_larger_but_none_that_is_busy() -> None:
    residency = residency_of(3, there=(A, B))
    assert residency.residence(C) is LoadState.LOADING
    residency.ask(C, {}, (), 0)
    assert residency.loaded(C, (LOAD_US, 2 * MB), 0, {"a"}) == [BeginUnload(B)]
    assert residency.residence(C) is LoadState.RESIDENT
    residency.unloaded(B, 1)
    # now its size is known
    residency.ask(B, {}, {"a"}, 10 * HOLD_US)
    residency.unloaded(C, 10 * HOLD_US)
    residency.loaded(B, (LOAD_US, MB), 10 * HOLD_US)
    assert residency.ask(C, {}, {"a"}, 20 * HOLD_US) == [BeginUnload(B), Ready(C, 20 * HOLD_US + LOAD_US)]
    assert residency.planned_bytes == 3 * MB


@pytest.mark.parametrize("busy", [None, {"a", "b"}])
def test_it_goes_itself_where_no_other_may(busy: set[str] | None) -> None:
    residency = residency_of(3, there=(A, B))
    residency.ask(C, {}, (), 0)
    refusal = Refuse(C, f"it takes 2 MB, and {IN_USE}")
    assert residency.loaded(C, (LOAD_US, 2 * MB), 0, busy) == [BeginUnload(C), refusal]
    assert residency.residence(C) is LoadState.LEAVING
    assert residency.held_bytes == 4 * MB
    assert residency.unloaded(C, 1) == []
    assert residency.held_bytes == residency.planned_bytes == 2 * MB


def test_nothing_more_is_loaded_ahead_where_estimates_prove_wrong() -> None:
    residency = residency_of(3, dict.fromkeys(keys, LoadFigures(1, LOAD_US)), there=())
    residency.loaded(A, (LOAD_US, 2 * MB), 0)
    assert residency.loaded(B, (LOAD_US, 2 * MB), 0) == [BeginUnload(B)]
    assert residency.unloaded(B, 0) == []
    assert residency.residence(C) is LoadState.ABSENT


def test_that_a_model_is_larger_than_the_slice_is_not_believed_the_first_time() -> None:
    """It may have brought libraries along, which the next load finds there."""
    residency = residency_of(2, there=(A,))
    residency.loaded(B, (LOAD_US, 9 * MB), 0)
    residency.unloaded(B, 0)
    assert residency.ask(B, {}, (), 0) == [BeginLoad(B), Ready(B, LOAD_US)]
    assert residency.loaded(B, (LOAD_US, MB), 0) == []
    assert residency.planned_bytes == 2 * MB


def test_a_model_that_is_larger_than_the_slice_twice_is_not_tried_again_by_this_worker() -> None:
    residency = residency_of(2, there=(A,))
    for _ in range(2):
        residency.ask(B, {}, (), 0)
        residency.loaded(B, (LOAD_US, 9 * MB), 0)
        residency.unloaded(B, 0)
    reason = "it takes 9 MB, and its slice has 2 MB for models (memory_mb)"
    assert residency.ask(B, {}, (), 0) == (Refuse(B, reason),)
    residency.lost(1)
    residency.fill({}, 1)
    assert residency.ready_in_us(B, 1) < NEVER_US


def test_the_time_and_room_that_loads_took_are_what_is_expected_of_the_next() -> None:
    residency = residency_of(5, dict.fromkeys((A, B), LoadFigures(4 * MB, LOAD_US)), there=())
    now = 0
    for took, taken_mb, next_us, next_mb in (
        (4000, 1, 4000, 2),  # at least half of the estimate
        (8000, 2, 6000, 2),
        (2000, 1, 4000, 2),
        (4000, 1, 4000, 1),
    ):
        residency.loaded(A, (took, taken_mb * MB), now)
        assert residency.planned_bytes == next_mb * MB
        assert residency.failed(A, now) == [BeginUnload(A)]
        assert residency.unloaded(A, now) == []
        now += RETRY_FIRST_US
        assert residency.ready_in_us(A, now) == next_us
        assert residency.ask(A, {}, (), now) == [BeginLoad(A), Ready(A, now + next_us)]
        assert residency.held_bytes == next_mb * MB


def test_what_a_load_took_while_others_went_is_not_believed_where_it_is_less() -> None:
    """The process grows by the one and shrinks by the other."""
    residency = residency_of(3, there=(A, B))
    residency.ask(C, {}, (), 0)  # is being loaded
    assert BeginUnload(A) in residency.ask(D, {}, {"b"}, 0)
    residency.loaded(C, (LOAD_US, 0), 0)
    residency.unloaded(A, 0)
    assert residency.planned_bytes == 3 * MB
    # D's load begins when nobody goes any more
    residency.loaded(D, (LOAD_US, 0), 0)
    assert residency.planned_bytes == 2.5 * MB


def test_neither_is_it_where_others_were_still_to_go_when_the_load_began() -> None:
    residency = residency_of(9, dict.fromkeys((A, B), LoadFigures(MB, LOAD_US)))
    residency.want(dict.fromkeys((A, C), LoadFigures(MB, LOAD_US)), 0)
    assert residency.ask(C, {}, (), 0) == [BeginLoad(C), Ready(C, LOAD_US)]
    residency.unloaded(B, 0)
    residency.loaded(C, (LOAD_US, 0), 0)
    assert residency.planned_bytes == 2 * MB


def test_a_load_that_fails_is_told_and_tried_again_later_each_time_after_twice_as_long() -> None:
    residency = residency_of(2, there=(A,))
    now, pause = 0, RETRY_FIRST_US
    for _ in range(8):
        residency.ask(B, {}, (), now)
        told = Refuse(B, f"it could not be loaded; the next try is in {pause / 1e6:g} s")
        assert residency.failed(B, now) == [told]
        refusal = Refuse(B, f"it could not be loaded; the next try is in {pause / 1e6:.1f} s")
        assert residency.ask(B, {}, (), now) == (refusal,)
        assert residency.ready_in_us(B, now) == pause + LOAD_US
        assert residency.residence(B) is LoadState.ABSENT
        now += pause
        pause = min(2 * pause, RETRY_MAX_US)
    residency.ask(B, {}, (), now)
    residency.loaded(B, (LOAD_US, MB), now)
    assert residency.failed(B, now) == [BeginUnload(B)]  # it is there, but does not work
    residency.unloaded(B, now)
    assert residency.ready_in_us(B, now) == RETRY_FIRST_US + LOAD_US


def test_what_failed_is_not_loaded_ahead_meanwhile() -> None:
    residency = residency_of(3, dict.fromkeys((A, B), LoadFigures(MB, LOAD_US)), there=())
    assert residency.failed(A, 0) == [BeginLoad(B), Ready(B, LOAD_US)]
    residency.loaded(B, (LOAD_US, MB), 0)
    assert residency.fill({"a": 1.0}, RETRY_FIRST_US - 1) == []
    assert BeginLoad(A) in residency.fill({"a": 1.0}, RETRY_FIRST_US)


def test_who_waits_for_a_worker_that_is_lost_is_told() -> None:
    residency = residency_of()
    residency.ask(C, {}, (), 0)
    residency.ask(D, {}, (), 0)
    assert residency.lost(1) == [Refuse(C, LOST), Refuse(D, LOST)]
    assert residency.planned_bytes == 0


# what is wanted changes


def test_what_is_not_wanted_any_more_goes_whatever_it_is_at() -> None:
    residency = residency_of(3, there=(A, B))
    residency.ask(C, {}, (), 0)  # is being loaded
    residency.ask(D, {}, (), 0)
    orders = residency.want({A: LoadFigures(MB, LOAD_US)}, 1)
    assert orders == [BeginUnload(B), Refuse(C, UNWANTED), BeginUnload(C), Refuse(D, UNWANTED)]
    assert residency.unloaded(B, 2) == []
    assert residency.loaded(C, (LOAD_US, MB), 2) == []  # said before it was told to go
    assert residency.residence(C) is LoadState.LEAVING
    assert residency.unloaded(C, 3) == []
    assert residency.held_bytes == MB


def test_a_model_that_is_wanted_again_before_it_has_gone_is_loaded_once_it_has() -> None:
    residency = residency_of(9, dict.fromkeys((A, B), LoadFigures(MB, LOAD_US)))
    both = dict.fromkeys((A, B), LoadFigures(MB, LOAD_US))
    assert residency.want({A: LoadFigures(MB, LOAD_US)}, 0) == [BeginUnload(B)]
    assert residency.want(both, 0) == []
    assert residency.ask(B, {}, (), 0) == [Ready(B, LOAD_US)]
    assert residency.unloaded(B, 9) == [BeginLoad(B), Ready(B, 9 + LOAD_US)]


def test_of_equal_models_the_one_goes_that_has_been_there_longest() -> None:
    residency = residency_of()
    for turn, (old, new) in enumerate([(A, C), (B, D), (C, E), (D, A)]):
        replace(residency, old, new, (turn + 1) * 10 * HOLD_US)


def test_what_is_wanted_again_and_then_fails_is_refused() -> None:
    residency = residency_of(3, there=(A, B))
    assert residency.want(dict.fromkeys((A, B), LoadFigures(MB, LOAD_US)), 0) == [BeginUnload(C)]
    residency.want(dict.fromkeys((A, B, C), LoadFigures(MB, LOAD_US)), 0)
    assert residency.ask(C, {}, (), 0) == [Ready(C, 2 * LOAD_US)]
    told = Refuse(C, f"it could not be loaded; the next try is in {RETRY_FIRST_US / 1e6:g} s")
    assert residency.failed(C, 1) == [told]
    assert residency.planned_bytes == residency.held_bytes == 2 * MB


def test_what_is_there_holds_what_it_did_whatever_is_said_of_it_later() -> None:
    residency = residency_of(4, {A: LoadFigures(4 * MB, LOAD_US)}, there=(A,))
    residency.want({A: LoadFigures(MB, LOAD_US), B: LoadFigures(4 * MB, LOAD_US)}, 0)
    assert residency.ask(B, {}, (), 0) == [BeginUnload(A), Ready(B, LOAD_US)]
