"""The rates at which another variant carries the load are those at which the ladder itself changes over."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.verbs.explain.body import Explanation, LadderOfSlice, RungBody
from router.verbs.explain.figures import capacity, carried, room_us, slices_more, stretches
from serving.policy.variants.climbing import LOAD_SHARE, Climber, climb
from tests.router.verbs.explain.explanations import explanation, ladder, promise
from tests.seeds import drawn

ladders_us = st.lists(st.integers(50, 20_000), min_size=2, max_size=5, unique=True).map(
    lambda times: sorted(times, reverse=True)
)


def of(times_us: Sequence[int], carrying: int, where: str = "s0") -> LadderOfSlice:
    """Rungs that take so long for a row, each less accurate than the one before."""
    rungs: list[RungBody] = [
        {"variant": f"v{place}", "accuracy": 0.99 - place / 100, "row_us": float(us), "rows": 8,
         "one_us": 2.0 * us, "cost": 0.0, "profiled_capacity": None,
         "capacity_today": {"rows_per_s": 1e6 / us, "batch_rows": 8}}
        for place, us in enumerate(times_us)
    ]  # fmt: skip
    return {"slice": where, "rungs": rungs, "preferred": 0, "carrying": carrying}


def afforded_us(times_us: Sequence[int], rate: float, slices: int) -> float:
    """What a row may take, as the ladder reckons it; `rate` in rows a second."""
    rungs = [(float(us), 1.0 - place / 10) for place, us in enumerate(times_us)]
    return climb([Climber(rate / 1e6, rungs)], LOAD_SHARE * slices)[0]


def carrying(times_us: Sequence[int], afford_us: float) -> int:
    enough = [place for place, us in enumerate(times_us) if us <= afford_us]
    return enough[0] if enough else len(times_us) - 1


def standing(times_us: Sequence[int], rate: float, slices: int) -> Explanation:
    afford_us = afforded_us(times_us, rate, slices)
    place = carrying(times_us, afford_us)
    own = promise([of(times_us, place, f"s{number}") for number in range(slices)])
    return explanation(own, rate, None if afford_us == float("inf") else afford_us)


@settings(max_examples=drawn(50))
@given(ladders_us, st.floats(1, 50_000), st.integers(1, 3))
def test_below_a_rungs_rate_it_carries_the_load_and_above_it_does_not(
    times_us: list[int], rate: float, slices: int
) -> None:
    now = standing(times_us, rate, slices)
    room = room_us(now, now["promises"][0])
    for place, us in enumerate(times_us[:-1]):
        most = carried(us, room)
        assert carrying(times_us, afforded_us(times_us, most * 0.99, slices)) <= place
        assert carrying(times_us, afforded_us(times_us, most * 1.01, slices)) > place


@settings(max_examples=drawn(50))
@given(ladders_us, st.floats(100, 50_000), st.integers(1, 3))
def test_with_so_many_slices_more_a_better_rung_carries_the_load_and_with_one_less_it_does_not(
    times_us: list[int], rate: float, slices: int
) -> None:
    now = standing(times_us, rate, slices)
    room = room_us(now, now["promises"][0])
    for place in range(now["promises"][0]["ladders"][0]["carrying"]):
        more = slices_more(times_us[place], now, room)
        assert carrying(times_us, afforded_us(times_us, rate * 0.999, slices + more)) <= place
        assert carrying(times_us, afforded_us(times_us, rate * 1.001, slices + more - 1)) > place


def test_all_that_can_be_answered_is_what_the_lowest_rungs_do_in_all_their_time() -> None:
    own = promise([of([400, 100], 0, "s0"), of([400, 200], 0, "s1")])
    now = explanation(own, 10.0)
    assert capacity(now, own, room_us(now, own)) == pytest.approx(10_000 + 5_000)


def test_others_on_the_same_slices_leave_less_of_their_time() -> None:
    own = promise([of([400, 100], 1)])
    now = explanation(own, 1_000.0, 300.0)  # alone it would have 800 us for a row
    assert room_us(now, own) == pytest.approx(300_000)
    assert capacity(now, own, room_us(now, own)) == pytest.approx(10_000 * 3 / 8)


def test_slices_that_stand_alike_are_one_stretch_whose_slowest_counts() -> None:
    found = stretches(
        [
            ladder(["cnn", "mlp"], 1, where="a"),
            ladder(["cnn", "mlp"], 0, where="b"),
            ladder([], where="none"),
            ladder(["cnn", "mlp"], 1, where="c", factor=2),
        ]
    )
    assert [each.slices for each in found] == [("a", "c"), ("b",)]
    assert (found[0].carries.variant, found[0].carries.row_us) == ("mlp", 820)


@given(
    ladders_us, st.floats(0, 50_000), st.floats(0, 50_000), st.integers(0, 4), st.sampled_from(["", "gold"])
)
def test_whatever_leaves_how_little_time_the_rates_agree_with_what_the_ladder_does(
    times_us: list[int], rate: float, afford_us: float, place: int, tier: str
) -> None:
    place = min(place, len(times_us) - 1)
    own = promise([of(times_us, place)], tier=tier)
    room = room_us(explanation(own, rate, afford_us), own)
    if place:
        assert carried(times_us[place - 1], room) <= rate * 1.000_001
    if place < len(times_us) - 1:
        assert carried(times_us[place], room) >= rate * 0.999_999


def test_what_the_models_own_promise_affords_says_nothing_of_a_tier() -> None:
    own = promise([of([400, 100], 0)], tier="gold")
    assert room_us(explanation(own, 10.0, 900.0), own) == pytest.approx(800_000)
