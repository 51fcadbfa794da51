"""The slow plan is the best there is, keeps every limit, and gives up in the stated order."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings

from serving.policy.forecasting.quantiles import Quantiles
from serving.policy.scaling.slow.planning import plan_scaling, plans
from serving.policy.scaling.slow.problem import make_problem
from serving.policy.scaling.slow.rounding import round_covers
from serving.policy.scaling.slow.task import Claimant, ScalingPlan, ScalingTask, SliceKind
from serving.values.objectives import BALANCED, CHEAPEST
from tests.policy.scaling.scaling_tasks import best_worth, capacity, even, planned, task, tasks, worth_of
from tests.seeds import drawn

Drawn = tuple[ScalingTask, tuple[float, ...]]
ONE = (SliceKind("gpu", 1.0, 4),)
EXACT, QUICK = ("exact", "gpu"), ("quick", "gpu")


def claimant(model: str = "m", **other: object) -> Claimant:
    """Of two variants: 10 rows a second at 0.9, 20 at 0.8, however many replicas there are."""
    plain = Claimant(model, (), {"exact": 0.9, "quick": 0.8}, {EXACT: even(10.0), QUICK: even(20.0)}, least=0)
    return replace(plain, **other)  # type: ignore[arg-type]


def total(
    asked: ScalingTask, rates: tuple[float, ...], plan: ScalingPlan, of: ScalingTask | None = None
) -> float:
    problem = make_problem(of or asked, rates)
    return sum(
        worth_of(of or asked, problem, place, plan.granted[each.model].replicas)
        for place, each in enumerate(asked.claimants)
    )


def keeps(asked: ScalingTask, plan: ScalingPlan) -> bool:
    """Whether counts, ceilings and the most replicas are kept."""
    numbers = [granted.replicas for granted in plan.granted.values()]
    used = {
        kind.name: sum(count for each in numbers for (_, on), count in each.items() if on == kind.name)
        for kind in asked.kinds
    }
    within = all(used[kind.name] <= kind.count for kind in asked.kinds)
    cost = sum(kind.price * used[kind.name] for kind in asked.kinds)
    most = all(
        sum(plan.granted[each.model].replicas.values()) <= max(each.most, each.least)
        for each in asked.claimants
    )
    return within and most and cost <= asked.cost_max + 1e-9 and plan.cost == pytest.approx(cost)


@settings(max_examples=drawn(60), deadline=None)
@given(tasks())
@pytest.mark.slow
def test_no_other_replicas_are_better(drawn: Drawn) -> None:
    """By trying all; the last plan is the exact one, within the solver's 1e-6."""
    asked, rates = drawn
    plan = planned(asked, *rates)
    assert keeps(asked, plan)
    assert total(asked, rates, plan) == pytest.approx(best_worth(asked, rates), rel=2e-6)


@settings(max_examples=drawn(60), deadline=None)
@given(tasks())
@pytest.mark.slow
def test_each_plan_is_better_and_keeps_all_limits(drawn: Drawn) -> None:
    asked, rates = drawn
    found = list(plans(asked, [Quantiles(rate / 2, rate) for rate in rates]))
    worths = [total(asked, rates, plan) for plan in found]
    assert worths == sorted(worths, reverse=True)
    assert all(keeps(asked, plan) for plan in found)
    for plan in found:
        for granted in plan.granted.values():
            assert 0 <= granted.band.low <= granted.band.high == sum(granted.replicas.values())
            assert granted.band.until_us == 0


@settings(max_examples=drawn(40), deadline=None)
@given(tasks())
@pytest.mark.slow
def test_to_lose_a_variant_is_never_better(drawn: Drawn) -> None:
    asked, rates = drawn
    whole = total(asked, rates, planned(asked, *rates))
    first = asked.claimants[0]
    for variant in list(first.variants)[1:]:  # the first is what accuracy is lost against
        left = {name: share for name, share in first.variants.items() if name != variant}
        capacities = {key: each for key, each in first.capacities.items() if key[0] != variant}
        fewer = replace(
            asked, claimants=(replace(first, variants=left, capacities=capacities), *asked.claimants[1:])
        )
        assert total(fewer, rates, planned(fewer, *rates), asked) >= whole * (1 - 2e-6)


@settings(max_examples=drawn(60), deadline=None)
@given(tasks())
def test_no_static_choice_of_a_variant_is_below_the_linear_bound(drawn: Drawn) -> None:
    """Each claimant alone with one variant on one kind, as many as carry its rows: never under the bound."""
    asked, rates = drawn
    plenty = replace(
        asked,
        cost_max=float("inf"),
        kinds=tuple(replace(kind, count=100, spot=False) for kind in asked.kinds),
    )
    problem = make_problem(plenty, rates)
    bound = round_covers(problem).bound
    for kind in plenty.kinds:
        for variant in ("v0", "v1", "v2"):
            static = 0.0
            for place, each in enumerate(plenty.claimants):
                key = (variant if variant in each.variants else "v0"), kind.name
                count = max(each.capacities[key].needed(rates[place], each.cv), each.least)
                static += worth_of(plenty, problem, place, {key: min(count, max(each.most, each.least))})
            assert bound <= static * (1 + 1e-6)


def test_buy_then_degrade_then_shed() -> None:
    """As the rate grows on four slices: what is asked for, replicas, accuracy, and what is shed."""
    asked = task(claimant(), kinds=ONE)
    steps = [
        (5.0, 1, 0.9, 0.0),
        (15.0, 2, 0.9, 0.0),
        (40.0, 4, 0.9, 0.0),
        (50.0, 4, 0.86, 0.0),
        (70.0, 4, 0.8 + 0.1 / 7, 0.0),
        (80.0, 4, 0.8, 0.0),
        (100.0, 4, 0.8, 20.0),
    ]
    for rate, count, accuracy, shed in steps:
        plan = planned(asked, rate)
        granted = plan.granted["m"]
        assert granted.band.high == count, rate
        assert granted.accuracy == pytest.approx(accuracy), rate
        assert granted.shed == pytest.approx(shed), rate
        assert bool(granted.lacking) == (rate > 40), rate
    assert planned(asked, 100.0).granted["m"].lacking == (
        "taken are 4 of 4 gpu; so accuracy is 0.8 where it would be 0.9, and 20 of 100 rows a second are "
        "shed (priority 0, weight 1)"
    )


def test_who_wants_it_cheap_is_degraded_before_a_replica_is_bought() -> None:
    for rate, count, accuracy in ((5.0, 1, 0.9), (20.0, 1, 0.8), (25.0, 2, 0.86), (80.0, 4, 0.8)):
        plan = planned(task(claimant(optimize=CHEAPEST), kinds=ONE), rate)
        assert plan.granted["m"].band.high == count
        assert plan.granted["m"].accuracy == pytest.approx(accuracy, abs=0.03)
        assert plan.granted["m"].lacking == ""


def test_balanced_buys_accuracy_that_is_worth_its_price() -> None:
    """A point for a tenth: 0.1 of accuracy may double the cost, 0.04 may not."""
    for accuracy, bought in ((0.7, "exact"), (0.86, "quick")):
        each = claimant(optimize=BALANCED, variants={"exact": 0.9, "quick": accuracy})
        assert planned(task(each, kinds=ONE), 20.0).granted["m"].band.variant == bought


def test_the_lowest_priority_is_shed_first_then_by_weight() -> None:
    kinds = (SliceKind("gpu", 1.0, 1),)
    high, low = claimant("high", priority=1), claimant("low", weight=5.0)
    plan = planned(task(low, high, kinds=kinds), 20.0, 20.0)
    assert (plan.granted["low"].shed, plan.granted["high"].shed) == (20.0, 0.0)
    heavy, light = claimant("heavy", weight=2.0), claimant("light")
    plan = planned(task(light, heavy, kinds=kinds), 20.0, 20.0)
    assert (plan.granted["light"].shed, plan.granted["heavy"].shed) == (20.0, 0.0)


def test_the_ceiling_of_an_hour_is_kept_and_named() -> None:
    plan = planned(task(claimant(), kinds=ONE, cost_max=2.5), 40.0)
    assert plan.cost == 2.0
    assert plan.granted["m"].accuracy == pytest.approx(0.8)
    lacking = "the hour costs 2 of at most 2.5; so accuracy is 0.8 where it would be 0.9"
    assert plan.granted["m"].lacking == lacking


def test_a_kind_on_which_rows_cost_too_much_is_not_used() -> None:
    """10 rows a second for 1 an hour are 27.8 a million."""
    plan = planned(task(claimant(cost_max=20.0), kinds=ONE), 10.0)
    assert set(plan.granted["m"].replicas) == {QUICK}
    plan = planned(task(claimant(cost_max=10.0), kinds=ONE), 10.0)
    assert plan.granted["m"].replicas == {}
    assert plan.granted["m"].lacking == (
        "a million rows cost more than 10 on gpu; so 10 of 10 rows a second are shed (priority 0, weight 1)"
    )


def test_the_least_replicas_are_not_on_spot_slices_where_there_are_others() -> None:
    kinds = (SliceKind("gpu", 3.0, 4), SliceKind("spot gpu", 1.0, 4, spot=True))
    both = {("exact", kind.name): even(10.0) for kind in kinds}
    each = Claimant("m", (), {"exact": 0.9}, both, least=1)
    numbers = planned(task(each, kinds=kinds), 30.0).granted["m"].replicas
    assert numbers == {("exact", "gpu"): 1, ("exact", "spot gpu"): 2}
    only = {("exact", "spot gpu"): even(10.0)}
    plan = planned(task(replace(each, capacities=only), kinds=kinds), 5.0)
    assert plan.granted["m"].replicas == {("exact", "spot gpu"): 1}
    assert plan.granted["m"].lacking == ""


def test_of_what_costs_the_same_what_is_there_is_kept() -> None:
    kinds = (SliceKind("a", 1.0, 4), SliceKind("b", 1.0, 4))
    both = {("exact", kind.name): even(10.0) for kind in kinds}
    for had in ("a", "b"):
        each = Claimant("m", (), {"exact": 0.9}, both, current={("exact", had): 2})
        assert planned(task(each, kinds=kinds), 20.0).granted["m"].replicas == {("exact", had): 2}


def test_several_replicas_carry_more_than_as_many_times_one() -> None:
    """22 rows a second for one, 108 for two, of 100 each if they never waited."""
    each = Claimant("m", (), {"exact": 0.9}, {EXACT: capacity(100.0)})
    for rate, count in ((22.0, 1), (23.0, 2), (108.0, 2), (300.0, 4)):
        assert planned(task(each, kinds=(SliceKind("gpu", 1.0, 9),)), rate).granted["m"].band.high == count


def test_at_fixed_slices_accuracy_falls_and_nothing_grows_but_the_rate() -> None:
    each = Claimant("m", (), {"exact": 0.9, "quick": 0.8}, {EXACT: capacity(40.0), QUICK: capacity(90.0)})
    found = [planned(task(each, kinds=ONE), float(rate)).granted["m"] for rate in range(5, 305, 15)]
    accuracies = [granted.accuracy for granted in found]
    assert all(after <= before + 1e-9 for before, after in pairwise(accuracies))
    sheds = [granted.shed for granted in found]
    assert sheds == sorted(sheds)


def test_where_slices_suffice_replicas_never_fall_as_the_rate_grows() -> None:
    each = Claimant("m", (), {"exact": 0.9, "quick": 0.8}, {EXACT: capacity(40.0), QUICK: capacity(90.0)})
    kinds = (SliceKind("gpu", 1.0, 99),)
    counts = [
        planned(task(each, kinds=kinds), float(rate)).granted["m"].band.high for rate in range(0, 400, 20)
    ]
    assert counts == sorted(counts)
    assert counts[0] == 1


def test_the_median_is_the_low_end_of_the_band() -> None:
    asked = task(claimant(), kinds=ONE)
    plan = list(plans(asked, [Quantiles(12.0, 38.0)]))[-1]
    band = plan.granted["m"].band
    assert (band.low, band.high, band.variant) == (2, 4, "exact")
    assert band.why == (
        "38 rows a second at the 95th percentile of the forecast, 12 in the median: 4 of exact on gpu"
    )


def test_nothing_asked_nothing_known_or_nothing_there_is_no_error() -> None:
    assert list(plan_scaling(task(kinds=ONE))) == [ScalingPlan({}, 0.0)]
    idle = next(iter(plan_scaling(task(claimant(), kinds=ONE)))).granted["m"]
    assert (idle.replicas, idle.rate, idle.band.high) == ({}, 0.0, 0)
    held = next(iter(plan_scaling(task(claimant(least=1), kinds=ONE)))).granted["m"]
    assert (held.band.low, held.band.high) == (1, 1)
    for other in (
        claimant(capacities={}),
        claimant(capacities={("gone", "gpu"): even(1.0), ("exact", "tpu"): even(1.0)}),
    ):
        plan = planned(task(other, kinds=ONE), 10.0)
        assert plan.granted["m"].shed == 10.0
        assert "there is no slice" in plan.granted["m"].lacking
    assert planned(task(claimant(), kinds=()), 10.0).granted["m"].shed == 10.0


def test_a_steady_history_is_planned_for_as_it_is() -> None:
    """250 rows in each ten seconds: three of ten a second."""
    plan = list(plan_scaling(task(claimant(history=(250.0,) * 60), kinds=ONE)))[-1]
    assert plan.granted["m"].rate == pytest.approx(25.0, rel=0.05)
    assert plan.granted["m"].band.high == 3
