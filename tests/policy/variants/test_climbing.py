"""How high loads climb: never beyond the room that there is, and as high as the linear program says."""

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from serving.policy.variants.climbing import RISE_US, Allowance, Climber, climb

NEAR = 1e-6
Rungs = list[tuple[float, float]]

rungs = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=4, unique_by=(lambda r: r[0])
).map(lambda found: _pareto([(float(us), float(merit)) for us, merit in found]))
rates = st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.4])
climbers = st.builds(Climber, rates, rungs)
pauses = st.sampled_from([0, RISE_US // 5, RISE_US // 3, RISE_US])
rooms = st.sampled_from([0.3, 0.8, 1.6, 3.2])


def _pareto(found: Rungs) -> Rungs:
    """Those that nothing quicker equals, the most merit first."""
    return sorted(
        (one for one in found if not any(o[0] < one[0] and o[1] >= one[1] for o in found)), reverse=True
    )


def merit_of(climber: Climber, afford_us: float) -> float:
    """The most merit a row has in the mean that takes so long in the mean: the best mix of two rungs."""
    best = -inf
    for us, merit in climber.rungs:
        if us <= afford_us + NEAR:
            best = max(best, merit)
        for other_us, other in climber.rungs:
            if us < afford_us < other_us:
                best = max(best, merit + (other - merit) * (afford_us - us) / (other_us - us))
    return best


def spent_us(climber: Climber, afford_us: float) -> float:
    """What a row takes that takes as long as it may, and no less than the quickest rung."""
    return max(climber.rungs[-1][0], min(afford_us, climber.rungs[0][0]))


def gained(found: Sequence[Climber], room: float) -> float:
    affords = climb(found, room)
    return sum(
        each.rate * merit_of(each, spent_us(each, afford))
        for each, afford in zip(found, affords, strict=True)
    )


def least(found: Sequence[Climber]) -> float:
    return sum(each.rate * each.rungs[-1][0] for each in found)


def programmed(found: Sequence[Climber], room: float) -> float | None:
    """The linear program: what share of each load runs at which rung. None where it has no solution."""
    columns = [(place, us, merit) for place, each in enumerate(found) for us, merit in each.rungs]
    owned = [[float(place == row) for place, _, _ in columns] for row in range(len(found))]
    solved = linprog(
        [-found[place].rate * merit for place, _, merit in columns],
        A_ub=[[found[place].rate * us for place, us, _ in columns]],
        b_ub=[room],
        A_eq=np.array(owned),
        b_eq=[1.0] * len(found),
    )
    return -float(solved.fun) if solved.success else None


@given(st.lists(climbers, min_size=1, max_size=3), rooms)
def test_what_is_afforded_gains_what_the_linear_program_does(found: list[Climber], room: float) -> None:
    best = programmed(found, room)
    if best is None:
        assert climb(found, room) == [0.0] * len(found)
    else:
        assert gained(found, room) == pytest.approx(best, abs=1e-6)


@given(st.lists(climbers, max_size=4), rooms)
def test_the_load_is_never_above_the_room_unless_all_are_at_the_bottom(
    found: list[Climber], room: float
) -> None:
    affords = climb(found, room)
    load = sum(each.rate * spent_us(each, afford) for each, afford in zip(found, affords, strict=True))
    assert load <= room + NEAR or not any(affords)


@given(st.lists(climbers, max_size=4), rooms)
def test_where_the_quickest_rungs_fit_each_may_take_what_its_own_does_and_never_more_than_its_best(
    found: list[Climber], room: float
) -> None:
    fits = least(found) <= room - NEAR
    for each, afford in zip(found, climb(found, room), strict=True):
        assert afford >= each.rungs[-1][0] or not fits
        assert afford == inf or afford <= each.rungs[0][0]


@given(st.lists(climbers, min_size=1, max_size=3), rooms, st.data())
def test_a_rung_less_never_gains_anything(found: list[Climber], room: float, data: st.DataObject) -> None:
    long = [place for place, each in enumerate(found) if len(each.rungs) > 1]
    if not long or least(found) > room:
        return
    place = data.draw(st.sampled_from(long))
    gone = data.draw(st.integers(0, len(found[place].rungs) - 2))  # without the quickest it may not fit
    left = [rung for number, rung in enumerate(found[place].rungs) if number != gone]
    fewer = [*found[:place], Climber(found[place].rate, left), *found[place + 1 :]]
    assert gained(fewer, room) <= gained(found, room) + NEAR


@given(st.lists(climbers, min_size=1, max_size=3), rooms, st.integers(0, 2), st.sampled_from([1.1, 2.0, 9.0]))
def test_when_one_load_grows_nobody_may_take_more_than_before(
    found: list[Climber], room: float, place: int, times: float
) -> None:
    place %= len(found)
    grown = [*found]
    grown[place] = Climber(times * found[place].rate, found[place].rungs)
    for each, before, after in zip(found, climb(found, room), climb(grown, room), strict=True):
        assert spent_us(each, after) <= spent_us(each, before) + NEAR


@given(st.lists(climbers, min_size=1, max_size=3), rooms, rooms)
def test_in_more_room_nobody_may_take_less(found: list[Climber], one: float, other: float) -> None:
    small, large = sorted((one, other))
    for each, before, after in zip(found, climb(found, small), climb(found, large), strict=True):
        assert spent_us(each, before) <= spent_us(each, after) + NEAR


def test_room_goes_where_a_microsecond_buys_the_most_accuracy() -> None:
    """Both want 4 us more a row: the first gains 0.4 by it, the second 0.1."""
    dear, cheap = Climber(0.1, [(5.0, 0.9), (1.0, 0.5)]), Climber(0.1, [(5.0, 0.9), (1.0, 0.8)])
    assert climb([dear, cheap], 0.6) == [inf, 1.0]
    assert climb([cheap, dear], 0.6) == [1.0, inf]


def test_a_step_of_which_there_is_time_for_a_part_is_taken_in_part() -> None:
    assert climb([Climber(0.1, [(9.0, 0.9), (1.0, 0.5)])], 0.5) == [pytest.approx(5.0)]


def test_a_rung_below_the_line_between_its_neighbours_is_passed_over() -> None:
    """Half the time at the ends is worth more than all of it there."""
    sagging = Climber(0.1, [(9.0, 0.9), (5.0, 0.55), (1.0, 0.5)])
    assert climb([sagging], 0.9 - NEAR) == [pytest.approx(9.0, abs=1e-3)]
    (afford_us,) = climb([sagging], 0.5)
    assert afford_us == pytest.approx(5.0)


def test_who_asks_for_nothing_holds_nobody_back_and_is_held_back_by_nobody_that_fits() -> None:
    idle, busy = Climber(0.0, [(900.0, 0.9), (1.0, 0.1)]), Climber(0.5, [(1.0, 0.9)])
    assert climb([idle, busy], 0.8) == [inf, inf]


@given(
    st.lists(st.tuples(pauses, st.sampled_from([1.0, 2.0, 3.0, 5.0, inf])), max_size=25),
)
def test_what_may_be_spent_falls_at_once_and_rises_late_to_what_could_be_spent_all_the_while(
    updates: list[tuple[int, float]],
) -> None:
    allowance, now_us = Allowance(), 0
    seen: list[tuple[int, float]] = []  # since it last fell, was borne out or rose
    since_us = 0
    for pause_us, afford_us in updates:
        now_us += pause_us
        before_us = allowance.afford_us
        allowance.update(afford_us, now_us)
        seen.append((now_us, afford_us))
        assert allowance.afford_us <= afford_us, "it falls at once"
        if allowance.afford_us > before_us:
            assert now_us - since_us >= RISE_US, "it rises late"
            assert allowance.afford_us == min(each for _, each in seen)
        elif afford_us > before_us:
            assert allowance.afford_us == before_us
            assert now_us - since_us < RISE_US, "it rises in the end"
            continue
        since_us, seen = now_us, []


def test_load_that_comes_and_goes_within_a_second_never_raises_it() -> None:
    allowance = Allowance()
    for turn in range(20):
        allowance.update(1.0 if turn % 2 else 9.0, turn * RISE_US // 2 * 9 // 10)
        assert turn == 0 or allowance.afford_us == 1.0


def test_it_rises_to_the_least_that_could_be_spent_since() -> None:
    allowance = Allowance()
    for tenths, afford_us in ((0, 1.0), (4, 5.0), (8, 3.0), (9, 9.0)):
        allowance.update(afford_us, tenths * RISE_US // 10)
    assert allowance.afford_us == 1.0
    allowance.update(7.0, RISE_US)
    assert allowance.afford_us == 3.0
