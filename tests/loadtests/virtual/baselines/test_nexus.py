"""Nexus: nodes that are full, and residuals merged into nodes in turns."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines.nexus import solve
from tests.loadtests.virtual.baselines.models import asks, cut, on_parts
from tests.seeds import drawn


def test_a_rate_is_full_nodes_and_a_rest() -> None:
    assert cut(solve(on_parts(asks("a", 250, {100: 100.0})))) == [[("a", 100)]] * 3
    assert cut(solve(on_parts(asks("a", 200, {100: 100.0})))) == [[("a", 100)]] * 2


def test_a_node_is_the_largest_slice_that_a_model_has() -> None:
    assert cut(solve(on_parts(asks("a", 30, {20: 20.0, 50: 30.0})))) == [[("a", 50)]]


def test_rests_share_nodes_the_fullest_first_each_where_least_is_idle() -> None:
    rates = {"a": 60.0, "b": 50.0, "c": 30.0, "d": 45.0}
    draft = solve(on_parts(*(asks(model, rate, {100: 100.0}) for model, rate in rates.items())))
    assert cut(draft) == [[("a+c", 100)], [("b+d", 100)]]


def test_models_of_different_shares_are_in_different_nodes() -> None:
    draft = solve(on_parts(asks("a", 10, {50: 100.0}), asks("b", 10, {40: 100.0})))
    assert cut(draft) == [[("a", 50), ("b", 40)]]


def test_one_that_runs_several_batches_at_once_has_a_node_alone() -> None:
    demand = asks("a", 10, {100: 100.0})
    several = replace(demand, options=(replace(demand.options[0], processes=2),))
    draft = solve(on_parts(several, asks("b", 10, {100: 100.0})))
    assert cut(draft) == [[("a", 100)], [("b", 100)]]


@given(st.lists(st.integers(1, 250), min_size=1, max_size=6))
@settings(max_examples=drawn(30))
def test_merging_takes_no_more_nodes_than_each_model_for_itself(rates: list[int]) -> None:
    demands = [asks(f"m{place}", rate, {100: 100.0}) for place, rate in enumerate(rates)]
    apart = sum(len(solve(on_parts(each, count=99)).bundles) for each in demands)
    together = len(solve(on_parts(*demands, count=99)).bundles)
    assert -(-sum(rates) // 100) <= together <= apart
