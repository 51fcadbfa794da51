"""What `hpa` promises: the decisions of Kubernetes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.scaling.baselines.hpa import Behavior, Hpa, is_near, recommend
from serving.policy.scaling.interface import LoadReport
from tests.policy.scaling.baselines.fleets import Fleet, shown
from tests.seeds import drawn

# The utilisations of those of Kubernetes's own tests of its replica calculator that have no missing metrics.
GOLDEN = [
    # ready, not ready, per cent of each that is ready, target, what it wants
    (3, 0, (30, 50, 70), 30, 5),
    (2, 1, (50, 70), 30, 4),  # those that are not ready count as idle on the way up
    (1, 2, (40,), 40, 3),  # within the tolerance
    (1, 2, (70,), 40, 3),  # the direction would turn: nothing is done
    (5, 0, (10, 30, 50, 25, 25), 50, 3),
    (3, 2, (10, 30, 50), 50, 2),  # those that are not ready are set aside on the way down
    (3, 0, (101, 103, 102), 100, 3),
    # the documentation: 200m of 100m doubles, 50m halves
    (2, 0, (200, 200), 100, 4),
    (2, 0, (50, 50), 100, 1),
    # the edges of the tolerance
    (10, 0, (88,) * 10, 80, 10),
    (10, 0, (89,) * 10, 80, 12),
    (10, 0, (72,) * 10, 80, 10),
    (10, 0, (71,) * 10, 80, 9),
]


@pytest.mark.parametrize(("ready", "coming", "shares", "target", "wanted"), GOLDEN)
def test_it_wants_what_kubernetes_wants(
    ready: int, coming: int, shares: tuple[int, ...], target: int, wanted: int
) -> None:
    assert recommend(sum(shares) / 100, ready, ready + coming, target) == wanted


def test_a_tenth_more_or_less_is_within_the_tolerance() -> None:
    assert is_near(1.1)
    assert is_near(0.9)
    assert not is_near(1.101)
    assert not is_near(0.899)


@pytest.mark.parametrize(("count", "most"), [(1, 5), (3, 7), (4, 8), (5, 10), (20, 40)])
def test_in_one_period_it_doubles_or_adds_four_whichever_is_more(count: int, most: int) -> None:
    behavior = Behavior()
    behavior.count = count
    assert behavior.settle(1000, shown(15, most=1000)) == most


def test_down_it_goes_to_the_highest_recommendation_of_five_minutes() -> None:
    behavior = Behavior()
    behavior.count = 9
    counts = [behavior.settle(7 if second == 150 else 4, shown(second)) for second in range(15, 600, 15)]
    assert counts[:19] == [9] * 19  # what was there at the start counts as a recommendation
    assert set(counts[20:28]) == {7}
    assert set(counts[29:]) == {4}


def test_a_spike_during_the_wait_starts_it_anew_at_the_height_of_the_spike() -> None:
    behavior = Behavior()
    behavior.count = 4
    assert behavior.settle(8, shown(15)) == 8
    assert [behavior.settle(2, shown(15 * each)) for each in range(2, 22)] == [8] * 19 + [2]


def test_while_nothing_is_ready_it_leaves_the_count_as_it_is() -> None:
    assert Hpa().decide(shown(15, ready=0, coming=3)).count == 3


def test_it_keeps_one_replica_even_where_none_would_be_allowed() -> None:
    fleet = Fleet(Hpa(), lambda second: 0.0, bounds=(0, 8))
    assert set(fleet.run(1000)) == {1}


@given(st.integers(20, 95))
@settings(max_examples=drawn(20))
def test_constant_load_settles_where_utilisation_is_within_a_tenth_of_the_target_or_just_below(
    target: int,
) -> None:
    fleet = Fleet(Hpa(target / 100), lambda second: 1200.0)
    fleet.run(900)
    settled = fleet.run(600)
    assert len(set(settled)) == 1
    assert fleet.wish.pressure <= 1.1
    assert settled[0] - 1 < 12 / (0.9 * target / 100) + 1


def test_the_target_defaults_to_eighty_per_cent() -> None:
    half = LoadReport("m", busy_us=15_000_000)
    wish = Hpa().decide(shown(15, seen=half, period_us=15_000_000, ready=2))
    assert wish.pressure == pytest.approx(50 / 80)
    assert "50 %" in wish.why
    assert "80 %" in wish.why


def test_utilisation_cannot_exceed_the_whole_so_it_climbs_by_a_quarter_at_a_time() -> None:
    """Why it lags behind a step: what it measures ends at 100 %."""
    fleet = Fleet(Hpa(), lambda second: 4000.0, bounds=(10, 64), start_s=1)
    assert fleet.run(60)[14::15] == [13, 17, 22, 28]
