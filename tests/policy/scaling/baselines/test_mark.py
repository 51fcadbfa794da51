"""What `mark` promises: it launches by forecast at once, and destroys only what no recent plan wanted."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.scaling.baselines.mark import MarkReplicas
from serving.policy.scaling.interface import LoadReport
from tests.policy.scaling.baselines.fleets import TABLE, Fleet, changes, shown


def test_it_plans_for_a_fifth_more_than_the_forecast_peak() -> None:
    fleet = Fleet(MarkReplicas(), lambda second: 1000.0)
    fleet.run(600)
    peak = fleet.wish.figures["peak"]
    assert peak == pytest.approx(1000.0, rel=0.1)
    assert fleet.run(300)[-1] == TABLE.needed(1.2 * peak)


def test_the_target_is_what_the_forecast_is_multiplied_by() -> None:
    counts = []
    for target in (1.0, 2.0):
        fleet = Fleet(MarkReplicas(target), lambda second: 1000.0)
        counts.append(fleet.run(900)[-1])
    assert counts[1] > 1.8 * counts[0]


def test_nothing_is_destroyed_that_any_of_the_last_six_plans_wanted() -> None:
    fleet = Fleet(MarkReplicas(), lambda second: 2000.0 if second <= 602 else 200.0)
    before = fleet.run(602)[-1]
    after = fleet.run(900)
    first = next(each for each, count in enumerate(after) if count < before)
    assert first >= 4 * 60
    assert after[-1] <= TABLE.needed(1.2 * 300)


def test_load_that_no_plan_foresaw_gets_replicas_within_5_s() -> None:
    fleet = Fleet(MarkReplicas(), lambda second: 200.0 if second <= 302 else 3000.0)
    fleet.run(302)
    assert TABLE.rate(fleet.run(10)[-1]) >= 3000


def test_more_than_2_per_cent_missed_launches_a_tenth_once_in_five_minutes() -> None:
    fleet = Fleet(MarkReplicas(), lambda second: 1000.0)
    before = fleet.run(602)[-1]
    counts = []
    for each in range(1, 50):
        seen = LoadReport("m", offered=5000 * each, requests=5000 * each, missed=200 * each)
        was = LoadReport("m", offered=5000 * (each - 1), requests=5000 * (each - 1), missed=200 * (each - 1))
        view = shown(600 + 5 * each, seen=seen, before=was, ready=before, period_us=5_000_000)
        counts.append(fleet.policy.decide(view).count)
    assert counts[4] == before
    assert max(counts) == before + ceil(before / 10)


@given(st.integers(50, 4000))
@settings(max_examples=10)
def test_constant_load_moves_it_at_most_once_in_ten_minutes(rate: int) -> None:
    fleet = Fleet(MarkReplicas(), lambda second: float(rate))
    fleet.run(700)
    assert changes(fleet.run(600)) <= 1
