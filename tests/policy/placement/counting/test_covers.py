"""The covers that are found are the cheapest, and the bound of whole replicas is one."""

from itertools import product
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.formulation.choices import choices
from serving.policy.placement.formulation.covers import Item, Search, items
from serving.policy.placement.formulation.whole import next_cost, whole_bound
from serving.policy.placement.solvers.exact import solve_exact
from serving.policy.placement.terms.problem import PlacementProblem
from tests.policy.placement.builders import demand, mig_pool, option
from tests.policy.placement.drafts import missing_and_cost
from tests.policy.placement.small_fleets import MIG, problems
from tests.seeds import drawn

known = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=3).map(
    lambda drawn: sorted(
        (Item(place, float(price), float(throughput)) for place, (price, throughput) in enumerate(drawn)),
        key=lambda item: item.price / item.throughput,
    )
)


def costs(of: list[Item], rate: int, replicas_min: int) -> list[float]:
    """Of every cover that is no more than is needed, ascending."""
    most = [max(ceil(rate / item.throughput), replicas_min) for item in of]
    return sorted(
        sum(count * item.price for count, item in zip(counts, of, strict=True))
        for counts in product(*(range(count + 1) for count in most))
        if sum(counts) >= replicas_min
        and sum(count * item.throughput for count, item in zip(counts, of, strict=True)) >= rate
    )


@given(known, st.integers(1, 20), st.integers(1, 3))
@settings(max_examples=drawn(40))
def test_the_cheapest_cover_is_found(of: list[Item], rate: int, replicas_min: int) -> None:
    search = Search(of, most=1).run(rate, replicas_min)
    ((cost, counts),) = search.found
    assert cost == costs(of, rate, replicas_min)[0]
    assert sum(count * item.throughput for count, item in zip(counts, of, strict=True)) >= rate
    assert sum(counts) >= replicas_min


@given(known, st.integers(1, 20), st.integers(2, 4), st.sampled_from((0.0, 2.5)))
@settings(max_examples=drawn(40))
def test_what_is_left_out_costs_as_much_as_is_said(of: list[Item], rate: int, most: int, near: float) -> None:
    found = [cost for cost, _ in Search(of, most, near=near).run(rate).found]
    every = costs(of, rate, 1)
    assert found == sorted(found)
    assert every[0] <= found[0] <= every[0] + near
    assert len(found) <= most


@given(known, st.integers(1, 20))
@settings(max_examples=drawn(40))
def test_nothing_is_found_below_the_cheapest(of: list[Item], rate: int) -> None:
    assert Search(of, most=3, below=costs(of, rate, 1)[0]).run(rate).found == []


def test_a_search_that_is_cut_short_still_says_what_it_costs_at_least() -> None:
    """Two choices carry a row for nearly the same: there is always one that might fit better."""
    of = [Item(0, 1.0, 1.0), Item(1, 1.0001 * 2**0.5, 2**0.5), Item(2, 1.0002 * 3**0.5, 3**0.5)]
    search = Search(of, most=1).run(100_000.3)
    assert 100_000.3 <= search.floor <= search.found[0][0] <= 100_001.0


def test_a_choice_that_a_cheaper_one_outdoes_is_no_item() -> None:
    asked = demand(
        "a", 15.0, option("mig:1g.10gb", 10.0), option("mig:2g.20gb", 9.0), option("mig:3g.40gb", 20.0)
    )
    every = choices(PlacementProblem((asked,), (mig_pool(1),)))
    prices = dict(zip(every.divisions[0].sizes, (0.1, 0.2, 0.3), strict=True))
    ((first, second),) = items(every, (tuple(prices.values()),))
    assert [(each.price, each.throughput) for each in (first, second)] == [(0.1, 10.0), (0.3, 20.0)]


@pytest.mark.slow
@given(problems((MIG, MIG), models_max=3, prices=(1.0, 2.5)), st.data())
@settings(max_examples=drawn(60))
def test_whole_replicas_cost_at_least_the_bound_at_any_prices(
    problem: PlacementProblem, data: st.DataObject
) -> None:
    every = choices(problem)
    draft = solve_exact(problem, {}, 20.0)
    assert draft is not None
    missing, cost = missing_and_cost(problem, draft)
    parts = st.floats(0, 1)
    prices = tuple(tuple(data.draw(parts) for _ in division.gives[0]) for division in every.divisions)
    if missing == 0 and every.each:
        bound = whole_bound(every, prices)
        assert bound <= cost + 1e-6
        assert next_cost(every, bound) <= cost + 1e-6


def test_costs_go_by_steps_of_what_all_prices_are_multiples_of() -> None:
    def at(bound: float, *prices: float) -> float:
        pools = tuple(mig_pool(1, f"p{place}", price) for place, price in enumerate(prices))
        ways = [option("mig:7g.80gb", 100.0, pool.name) for pool in pools]
        return next_cost(choices(PlacementProblem((demand("a", 1.0, *ways),), pools)), bound)

    assert at(3.2, 1.0) == 4.0
    assert at(4.0, 1.0) == 4.0
    assert at(4.0 + 1e-9, 1.0) == 4.0
    assert at(3.2, 1.0, 2.5) == 3.5
    assert at(3.21, 0.1, 0.25) == pytest.approx(3.25)
    assert at(3.2, 0.0) == 3.2
    assert at(3.2, 1.0, 2**0.5) == 3.2
