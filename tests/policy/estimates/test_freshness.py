"""What is said of profiles: noise flags none, one that is wrong is flagged soon, and flags do not flicker."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.estimates.freshness import (
    BACK_OVER,
    BATCHES,
    COLD_US,
    LATELY,
    OVER,
    WARM_US,
    Freshness,
    ProfileWatch,
    ratio_of,
)

FRESH, STALE, INTERFERED = Freshness.FRESH, Freshness.STALE, Freshness.INTERFERED
SOON = 40  # batches
noise = st.lists(st.floats(0.9, 1.1), min_size=SOON, max_size=SOON)
rows = st.integers(1, 64)


def watched(
    ratios: Iterable[float], beside: bool = False, count: int = 1, watch: ProfileWatch | None = None
) -> ProfileWatch:
    """Told of batches of `count` rows."""
    watch = watch or ProfileWatch()
    for ratio in ratios:
        watch.add(count, 0, ratio, beside)
    return watch


@given(st.lists(st.tuples(rows, st.floats(0.9, 1.1), st.booleans()), max_size=300))
def test_noise_of_a_tenth_flags_nothing(batches: list[tuple[int, float, bool]]) -> None:
    watch = ProfileWatch()
    for count, ratio, beside in batches:
        assert not watch.add(count, 0, ratio, beside)
        assert (watch.freshness, watch.ratio) == (FRESH, 1.0)


@given(st.integers(0, 300), st.integers(0, 10_000))
def test_a_profile_that_is_off_by_a_third_is_flagged_within_forty_batches_of_whatever_size(
    before: int, seed: int
) -> None:
    draw = random.Random(seed)
    watch = watched(draw.uniform(0.9, 1.1) for _ in range(before))
    for _ in range(SOON):
        watch.add(draw.randint(1, 64), 0, 1.3 * draw.uniform(0.9, 1.1), False)
    assert watch.freshness is STALE
    assert watch.ratio == pytest.approx(1.3, abs=0.14)


@given(noise)
def test_a_profile_that_is_too_slow_is_flagged_as_well(ratios: list[float]) -> None:
    assert watched(0.7 * ratio for ratio in ratios).freshness is STALE


def test_a_few_batches_flag_nothing_however_slow() -> None:
    assert watched([5.0] * (BATCHES - 1)).freshness is FRESH
    assert watched([1.0] * 100 + [5.0] * (BATCHES // 2)).freshness is FRESH


def test_where_only_batches_beside_others_are_slow_the_neighbours_are_blamed() -> None:
    watch = watched([1.4] * SOON, beside=True, watch=watched([1.0] * SOON))
    assert (watch.freshness, watch.ratio) == (INTERFERED, 1.4)
    assert (watch.median(beside=False), watch.median(beside=True)) == (1.0, 1.4)


@pytest.mark.parametrize("first", [False, True])
def test_where_batches_alone_are_slow_too_the_profile_is_blamed(first: bool) -> None:
    watch = watched([1.4] * SOON, first, watch=watched([1.4] * SOON, not first))
    assert watch.freshness is STALE


def test_no_neighbour_makes_a_batch_faster() -> None:
    assert watched([0.7] * SOON, beside=True).freshness is STALE


def test_a_flag_is_taken_back_only_well_within_the_bound() -> None:
    watch = watched([1.3] * BATCHES)
    between = (OVER + BACK_OVER) / 2
    assert watched([between] * SOON, watch=watch).freshness is STALE
    assert watched([1.0] * BATCHES, watch=watch).freshness is FRESH
    assert watched([between] * SOON, watch=watch).freshness is FRESH


def test_what_was_too_slow_may_turn_out_too_fast() -> None:
    watch = watched([0.6] * BATCHES, watch=watched([1.5] * BATCHES))
    assert (watch.freshness, watch.ratio) == (STALE, 0.6)


def test_one_size_that_is_off_among_others_that_are_not_is_found() -> None:
    watch = ProfileWatch()
    for _ in range(BATCHES):
        for count in (1, 2, 4, 64):
            watch.add(count, 0, 1.5 if count == 64 else 1.0, False)
    assert (watch.freshness, watch.ratio) == (STALE, 1.5)
    assert watch.median(beside=False) == 1.0


def test_sizes_that_have_not_run_for_long_say_nothing_of_today() -> None:
    watch = watched([1.5] * BATCHES, count=64)
    assert watched([1.0] * 2 * LATELY, watch=watch).freshness is FRESH


@given(st.lists(st.tuples(st.sampled_from([0.8, 0.88, 1.0, 1.12, 1.3]), st.booleans()), max_size=200))
def test_a_change_is_told_when_it_happens_and_only_then(batches: list[tuple[float, bool]]) -> None:
    watch = ProfileWatch()
    said = FRESH
    for ratio, beside in batches:
        if watch.add(1, 0, ratio, beside):
            assert watch.freshness is not said
            said = watch.freshness
        assert watch.freshness is said
        assert (watch.ratio == 1.0) is (said is FRESH)


def test_of_batches_that_never_ran_nothing_is_said() -> None:
    assert ProfileWatch().median(beside=False) is ProfileWatch().median(beside=True) is None


@given(st.floats(1, 1e6), st.floats(0, COLD_US))
def test_what_a_cold_start_explains_speaks_against_no_profile(profiled_us: float, excess_us: float) -> None:
    assert ratio_of(profiled_us + excess_us, profiled_us, cold=True) == pytest.approx(1.0)
    warm = ratio_of(profiled_us + excess_us, profiled_us, cold=False)
    assert warm == pytest.approx(1 + max(excess_us - WARM_US, 0) / profiled_us)


@given(st.floats(1, 1e6), st.booleans())
def test_a_batch_that_is_too_quick_is_so_cold_or_warm(profiled_us: float, cold: bool) -> None:
    explained = min(0.5 * profiled_us, WARM_US)
    assert ratio_of(0.5 * profiled_us, profiled_us, cold) == pytest.approx(0.5 + explained / profiled_us)


@given(st.integers(7000, 10**6))
def test_longer_batches_show_a_third_more_even_cold(profiled_us: int) -> None:
    assert watched([ratio_of(1.3 * profiled_us, profiled_us, cold=True)] * BATCHES).freshness is STALE
