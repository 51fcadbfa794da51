"""Price-and-round: near the cheapest for fleets of any size, within the limits of every pool."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.assignment.assign import assign
from serving.policy.placement.solvers.exact import solve_exact
from serving.policy.placement.solvers.rounding import price_and_round, round_prices
from serving.policy.placement.terms.check import faults as all_faults
from serving.policy.placement.terms.check import shortfalls
from serving.policy.placement.terms.plan import Draft
from serving.policy.placement.terms.problem import PlacementProblem
from tests.policy.placement import parvagpu_data
from tests.policy.placement.brute import cheapest
from tests.policy.placement.builders import demand, mig_pool, mps_pool, option
from tests.policy.placement.drafts import faults, missing_and_cost, short
from tests.policy.placement.small_fleets import MIG, problems
from tests.seeds import drawn

pytestmark = pytest.mark.in_turn(2)

SEVEN = option("mig:7g.80gb", 100.0)
ONE = option("mig:1g.10gb", 10.0)


def rounded(problem: PlacementProblem) -> Draft:
    draft = price_and_round(problem)
    assert faults(problem, draft) == []
    return draft


def fleet(seed: int, count: int, gpus: float, spare: float = 1.5) -> PlacementProblem:
    """Generated models with rates of a heavy tail."""
    demands = parvagpu_data.generated(seed, count, gpus)
    return PlacementProblem(demands, (parvagpu_data.pool(int(spare * gpus)),))


def test_nothing_asked_takes_nothing() -> None:
    assert rounded(PlacementProblem((), ())) == Draft((), "price-and-round", 0.0, True)
    assert rounded(PlacementProblem((demand("a", 0.0, SEVEN),), (mig_pool(2),))).bundles == ()


def test_demands_that_nothing_can_carry_are_left_out() -> None:
    problem = PlacementProblem((demand("a", 10.0), demand("b", 90.0, SEVEN)), (mig_pool(2),))
    draft = rounded(problem)
    assert missing_and_cost(problem, draft) == (1.0, 1.0)
    assert not draft.optimal
    alone = rounded(PlacementProblem((demand("a", 10.0),), ()))
    assert (alone.bundles, alone.optimal) == ((), False)


@pytest.mark.slow
def test_it_is_within_three_per_cent_of_the_relaxation_where_demands_are_many() -> None:
    problem = fleet(7, 100, 300.0)
    draft = rounded(problem)
    assert short(problem, draft) == []
    assert draft.bound <= len(draft.bundles) <= 1.03 * draft.bound


@pytest.mark.slow
@pytest.mark.parametrize(("count", "gpus"), [(300, 1_000.0), (1_000, 3_000.0), (3_000, 10_200.0)])
def test_it_is_within_a_thousandth_of_what_whole_replicas_need(count: int, gpus: float) -> None:
    problem = fleet(8, count, gpus)
    draft, least = round_prices(problem)
    assert short(problem, draft) == []
    assert draft.bound <= least <= len(draft.bundles) <= max(1.001 * least, least + 1)
    assert len(draft.bundles) <= 1.03 * draft.bound


def test_it_needs_no_more_than_the_integer_program_and_that_no_more_than_the_bound() -> None:
    problem = fleet(3, 12, 20.0)
    exact = solve_exact(problem, {}, 20.0)
    assert exact is not None
    assert exact.optimal
    draft, least = round_prices(problem)
    assert draft.bound <= least <= len(exact.bundles) <= len(draft.bundles) <= len(exact.bundles) + 1


def test_what_it_says_is_the_cheapest_is_proved() -> None:
    """Of a model whose replicas carry 10 and fill a seventh each, 15 rows/s need two."""
    for rate, count in ((70.0, 1), (71.0, 2), (140.0, 2), (705.0, 11)):
        draft = rounded(PlacementProblem((demand("a", rate, ONE),), (mig_pool(99),)))
        assert (len(draft.bundles), draft.optimal) == (count, True)


# several pools


def two_kinds(seed: int, count: int, old: int, new: int) -> PlacementProblem:
    """Models that are twice as fast on GPUs that cost more, where devices of the cheap kind are few."""
    draw = random.Random(seed)
    demands = []
    for each in parvagpu_data.generated(seed, count, 40.0):
        fast = draw.uniform(1.2, 2.5)
        ways = [replace(way, kind="old") for way in each.options if way.processes == 1]
        ways += [
            replace(way, kind="new", curve=tuple((rows, us / fast) for rows, us in way.curve)) for way in ways
        ]
        demands.append(replace(each, options=tuple(ways)))
    return PlacementProblem(tuple(demands), (mig_pool(old, "old", 1.0), mig_pool(new, "new", 1.5)))


def test_a_dear_pool_is_used_only_where_it_pays() -> None:
    old, new = option("mig:7g.80gb", 100.0, "old"), option("mig:7g.80gb", 400.0, "new")
    pools = mig_pool(4, "old", 1.0), mig_pool(4, "new", 3.0)
    for rate, devices in (
        (100, {"old": 1}),
        (200, {"old": 2}),
        (350, {"new": 1}),
        (401, {"new": 1, "old": 1}),
    ):
        draft = rounded(PlacementProblem((demand("a", rate, old, new),), pools))
        assert Counter(bundle.pool for bundle in draft.bundles) == devices


@pytest.mark.slow
def test_what_the_cheap_pool_has_no_room_for_goes_to_the_dear_one() -> None:
    costs = []
    for old in (99, 5, 0):
        problem = two_kinds(5, 40, old, new=99)
        draft, least = round_prices(problem)
        assert short(problem, draft) == []
        used = Counter(bundle.pool for bundle in draft.bundles)
        assert used["old"] == old or used["old"] < old == 99
        costs.append(missing_and_cost(problem, draft)[1])
        assert draft.bound <= least <= costs[-1] <= 1.03 * least
    assert costs == sorted(costs)


@pytest.mark.slow
def test_pools_that_are_too_small_are_filled_and_no_limit_is_broken() -> None:
    lacking = []
    for old, new in ((6, 5), (8, 8)):
        problem = two_kinds(5, 60, old, new)
        draft = rounded(problem)
        assert Counter(bundle.pool for bundle in draft.bundles) == {"old": old, "new": new}
        lacking.append(missing_and_cost(problem, draft)[0])
    assert 60 > lacking[0] > lacking[1] > 0


def test_with_one_device_less_than_are_needed_little_is_missing() -> None:
    problem = fleet(7, 40, 120.0)
    enough = rounded(problem)
    less = PlacementProblem(problem.demands, (parvagpu_data.pool(len(enough.bundles) - 1),))
    draft = rounded(less)
    missing, _ = missing_and_cost(less, draft)
    assert 0 < missing < 0.1
    assert not draft.optimal


def test_demands_have_as_many_replicas_as_there_should_be_failure_domains() -> None:
    asked = [demand(f"m{place}", 5.0, ONE, SEVEN, domains_min=1 + place % 3) for place in range(12)]
    problem = PlacementProblem(tuple(asked), (mig_pool(9, domains="abc"),))
    draft = rounded(problem)
    assert len(draft.bundles) == 4  # 24 replicas, 7 on a GPU
    assert shortfalls(problem, assign(problem, draft, {})) == []


def test_a_pool_that_is_not_divided_into_instances_is_refused() -> None:
    with pytest.raises(ValueError, match="gpu is not divided into instances"):
        price_and_round(PlacementProblem((), (mps_pool(1),)))


# any problem

SMALL = st.one_of(
    problems((MIG,), prices=(0.0, 1.0), domains=("a", "b")),
    problems((MIG, MIG), models_max=3, prices=(0.0, 1.0, 1.5)),
)


@given(SMALL)
@settings(max_examples=8)
def test_on_devices_with_names_and_places_it_is_legal(problem: PlacementProblem) -> None:
    assert all_faults(problem, assign(problem, rounded(problem), {})) == []


@given(SMALL)
@settings(max_examples=5)
def test_the_same_problem_has_the_same_answer(problem: PlacementProblem) -> None:
    assert price_and_round(problem) == price_and_round(problem)


@pytest.mark.slow
@given(problems((MIG, MIG), models_max=3, prices=(1.0, 1.5)))
@settings(max_examples=drawn(80))
def test_what_it_says_is_the_cheapest_is(problem: PlacementProblem) -> None:
    draft, least = round_prices(problem)
    missing, cost = missing_and_cost(problem, draft)
    best = cheapest(problem)
    assert missing >= best[0] - 3e-6
    if best[0] == 0:
        assert least <= best[1] + 1e-6
    if draft.optimal:
        assert (missing, cost) == pytest.approx(best, abs=3e-6)
