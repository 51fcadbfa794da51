"""Several pools: the cheapest for what is asked first, the next what is left."""

from dataclasses import replace

import pytest

from loadtests.virtual.baselines.first_fit import solve
from loadtests.virtual.baselines.pools import offers, single
from serving.policy.placement.terms.problem import (
    Demand,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share
from tests.policy.placement.drafts import carried

WHOLE = Share("mps", 100.0)


def fleet(**prices: float) -> tuple[Pool, ...]:
    """Two devices of each kind."""
    return tuple(
        Pool(
            kind, kind, Parts("mps", 100), (PlacementDevice(f"{kind}.0"), PlacementDevice(f"{kind}.1")), price
        )
        for kind, price in prices.items()
    )


def model(rate: float, **throughputs: float) -> Demand:
    options = tuple(
        Option(kind, WHOLE, "fp32", ((1, 1e6 / throughput),)) for kind, throughput in throughputs.items()
    )
    return Demand("a", rate, 1e6, options)


@pytest.mark.parametrize(("price", "first"), [(1.5, "new"), (2.5, "old")])
def test_the_pool_where_a_row_is_cheapest_comes_first(price: float, first: str) -> None:
    problem = PlacementProblem((model(10.0, old=10.0, new=20.0),), fleet(old=1.0, new=price))
    assert [bundle.pool for bundle in solve(problem).bundles] == [first]


def test_what_a_pool_cannot_carry_goes_to_the_next() -> None:
    problem = PlacementProblem((model(50.0, old=10.0, new=20.0),), fleet(new=1.0, old=1.0))
    draft = solve(problem)
    assert [bundle.pool for bundle in draft.bundles] == ["new", "new", "old"]
    assert carried(draft) == {"a": 50.0}


def test_devices_that_cost_nothing_are_no_division_by_zero() -> None:
    problem = PlacementProblem((model(10.0, old=10.0, new=20.0),), fleet(old=0.0, new=0.0))
    assert len(solve(problem).bundles) == 1


def test_an_option_that_does_not_fit_hides_none_that_does() -> None:
    """The one with more throughput needs more memory than a device has."""
    large = Option("old", WHOLE, "fp32", ((1, 1e4),), memory_bytes=9)
    small = Option("old", WHOLE, "fp16", ((1, 1e5),), memory_bytes=3)
    (pool,) = fleet(old=1.0)
    demand = Demand("a", 1.0, 1e6, (large, small))
    assert [each.option for each in offers(replace(pool, memory_bytes=5), demand)] == [small]
    assert [each.option for each in offers(pool, demand)] == [large]


def test_only_options_of_one_batch_at_a_time_may_take_turns() -> None:
    several = Option("old", WHOLE, "fp32", ((1, 1e4),), processes=2)
    one = replace(several, processes=1)
    (pool,) = fleet(old=1.0)
    assert single(pool, Demand("a", 1.0, 1e6, (several, one)), WHOLE) == one
    assert single(pool, Demand("a", 1.0, 1e6, (several,)), WHOLE) is None
