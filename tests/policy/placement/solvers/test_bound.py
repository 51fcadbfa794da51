"""No placement costs less than the bound."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.solvers.bound import lower_bound
from serving.policy.placement.solvers.exact import solve_exact
from serving.policy.placement.terms.problem import PlacementProblem
from tests.policy.placement.brute import cheapest
from tests.policy.placement.builders import demand, mig_pool, mps_pool, option
from tests.policy.placement.drafts import missing_and_cost
from tests.policy.placement.small_fleets import MIG, PARTS, problems
from tests.seeds import drawn

SEVEN = option("mig:7g.80gb", 100.0)
THREE = option("mig:3g.40gb", 50.0)
ONE = option("mig:1g.10gb", 10.0)


def near(bound: float) -> object:
    """But for what counts as nothing, a millionth."""
    return pytest.approx(bound, rel=1e-5)


def test_nothing_asked_costs_nothing() -> None:
    assert lower_bound(PlacementProblem((), ())) == 0.0
    assert lower_bound(PlacementProblem((demand("a", 0.0),), (mig_pool(1),))) == 0.0


def test_a_part_of_a_device_costs_that_part() -> None:
    assert lower_bound(PlacementProblem((demand("a", 25.0, SEVEN),), (mig_pool(1),))) == near(0.25)
    assert lower_bound(PlacementProblem((demand("a", 25.0, THREE),), (mig_pool(1),))) == near(0.25)
    both = demand("a", 25.0, THREE), demand("b", 15.0, ONE)
    bound = lower_bound(PlacementProblem(both, (mig_pool(1),)))
    assert bound == near(3 / 8 + 1 / 16)  # of a GPU cut into 3g and four 1g, and of one cut into two 3g
    half = demand("a", 25.0, option("mps:50", 50.0))
    assert lower_bound(PlacementProblem((half,), (mps_pool(1),))) == near(0.25)


def test_what_the_devices_cannot_carry_has_no_bound() -> None:
    assert lower_bound(PlacementProblem((demand("a", 100.0, SEVEN),), (mig_pool(1),))) == near(1.0)
    assert lower_bound(PlacementProblem((demand("a", 101.0, SEVEN),), (mig_pool(1),))) == inf
    assert lower_bound(PlacementProblem((demand("a", 1.0, SEVEN),), ())) == inf
    assert lower_bound(PlacementProblem((demand("a", 1.0),), (mig_pool(1),))) == inf
    assert lower_bound(PlacementProblem((demand("a", 1.0, SEVEN), demand("b", 1.0)), (mig_pool(1),))) == inf


def test_what_is_short_by_less_than_counts_is_not_short() -> None:
    assert lower_bound(PlacementProblem((demand("a", 100.0 * (1 + 1e-7), SEVEN),), (mig_pool(1),))) <= 1.0


def test_cheap_devices_come_first_and_dear_ones_carry_the_rest() -> None:
    ways = option("mps:100", 100.0, "old"), option("mps:100", 300.0, "new")
    pools = mps_pool(2, "old", 1.0), mps_pool(9, "new", 4.0)  # 4 / 300 a row is dearer than 1 / 100
    assert lower_bound(PlacementProblem((demand("a", 150.0, *ways),), pools)) == near(1.5)
    assert lower_bound(PlacementProblem((demand("a", 500.0, *ways),), pools)) == near(2.0 + 4.0)


def test_memory_and_the_number_of_slices_are_limits() -> None:
    lean = option("mps:10", 10.0, memory_bytes=4)
    assert lower_bound(PlacementProblem((demand("a", 100.0, lean),), (mps_pool(9),))) == near(1.0)
    limited = mps_pool(9, memory_bytes=20)
    assert lower_bound(PlacementProblem((demand("a", 100.0, lean),), (limited,))) == near(2.0)
    assert lower_bound(PlacementProblem((demand("a", 100.0, lean),), (mps_pool(9, slices_max=4),))) == near(
        2.5
    )


def test_a_lean_replica_is_thought_of_where_memory_is_what_lacks() -> None:
    ways = option("mps:10", 12.0, memory_bytes=10), option("mps:10", 10.0, memory_bytes=2)
    problem = PlacementProblem((demand("a", 100.0, *ways),), (mps_pool(9, memory_bytes=20),))
    assert lower_bound(problem) == near(1.0)


def test_too_many_amounts_to_cut_by_are_bounded_by_their_sum() -> None:
    ways = [option(f"mps:{amount}", float(amount)) for amount in range(1, 101)]
    for slices_max, bound in ((0, 0.5), (2, 0.5)):
        problem = PlacementProblem((demand("a", 50.0, *ways),), (mps_pool(9, slices_max=slices_max),))
        assert lower_bound(problem) == near(bound)


@given(problems((MIG, PARTS), models_max=3, prices=(1.0, 3.0)), st.sampled_from((0.1, 0.5)))
@settings(max_examples=10)
def test_a_part_of_all_rates_costs_that_part_at_most(problem: PlacementProblem, factor: float) -> None:
    less = tuple(replace(each, rate=factor * each.rate) for each in problem.demands)
    assert lower_bound(PlacementProblem(less, problem.pools)) <= factor * lower_bound(problem) + 1e-6


@given(problems((MIG,), prices=(0.0, 1.0), domains=("a", "b")))
@settings(max_examples=8)
def test_no_proved_placement_costs_less(problem: PlacementProblem) -> None:
    draft = solve_exact(problem, {}, 20.0)
    assert draft is not None
    missing, cost = missing_and_cost(problem, draft)
    assert missing > 0 or lower_bound(problem) <= cost + 1e-6


FLEETS = [problems(each, models_max=3, prices=(1.0, 3.0)) for each in ((MIG,), (PARTS,), (MIG, PARTS))]


@pytest.mark.slow
@given(st.one_of(FLEETS), st.booleans())
@settings(max_examples=drawn(60))
def test_no_placement_at_all_costs_less(problem: PlacementProblem, pieces: bool) -> None:
    """Nor one whose replicas take turns, in batches of whatever size."""
    missing, cost = cheapest(problem, pieces)
    assert missing > 0 or lower_bound(problem) <= cost + 1e-6
