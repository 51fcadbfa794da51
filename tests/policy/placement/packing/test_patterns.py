"""The ways to divide one device: all of them, and none for nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, combinations_with_replacement, product

import pytest
from hypothesis import given, settings

from serving.policy.placement.packing import patterns as module
from serving.policy.placement.packing.patterns import patterns
from serving.policy.placement.terms.check import device_faults
from serving.policy.placement.terms.plan import PlacedReplica, Slot
from serving.policy.placement.terms.problem import Demand, Instances, Option, PlacementProblem, Pool
from tests.policy.placement.parts_fleets import demands, flat, option, pool, pools
from tests.seeds import drawn

NEAR = 1e-6


def parts_carried(problem: PlacementProblem, slots: Sequence[Slot]) -> list[float]:
    """Of each rate, at most 1."""
    return [
        min(
            1.0,
            sum(each.capacity for slot in slots for each in slot.residents if each.model == demand.model)
            / demand.rate,
        )
        for demand in problem.demands
        if demand.rate > 0
    ]


def covers(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(left >= right - NEAR for left, right in zip(one, other, strict=True))


def legal_bundles(problem: PlacementProblem, there: Pool) -> Iterator[list[Slot]]:
    """Of up to three slices, each with one model in a measured batch, or with two in batches of any size in
    which both carry their whole rates. By trying all; `check.py` says what is legal."""
    slices: list[tuple[tuple[Demand, Option, int], ...]] = [
        ((demand, way, rows),)
        for demand in problem.demands
        for way in demand.options
        if there.fits(way) and demand.rate > 0
        for rows, _ in way.curve
    ]
    for one, other in combinations([each for each in problem.demands if each.rate > 0], 2):
        for left, right in product(one.options, other.options):
            if left.share == right.share:
                slices += [
                    ((one, left, few), (other, right, many))
                    for few in range(1, left.curve[-1][0] + 1)
                    for many in range(1, right.curve[-1][0] + 1)
                ]
    for count in (1, 2, 3):
        for chosen in combinations_with_replacement(slices, count):
            slots = [
                Slot(
                    each[0][1].share,
                    tuple(PlacedReplica(demand.model, way, rows, 0.0) for demand, way, rows in each),
                )
                for each in chosen
            ]
            if sum(slot.share.amount for slot in slots) > 100 or any(device_faults(problem, there, slots)):
                continue
            full = [carrying(slot, slots[:at] + slots[at + 1 :]) for at, slot in enumerate(slots)]
            if all(
                len(slot.residents) == 1 or each.capacity >= problem.demand_of[each.model].rate
                for slot in full
                for each in slot.residents
            ):
                yield full


def carrying(slot: Slot, others: Sequence[Slot]) -> Slot:
    pressure = sum(each.pressure for each in others)
    took_us = [
        each.option.latency_us(each.rows) * (1 + each.option.sensitivity * pressure)
        for each in slot.residents
    ]
    return replace(
        slot,
        residents=tuple(replace(each, capacity=each.rows * 1e6 / sum(took_us)) for each in slot.residents),
    )


@pytest.mark.slow
@given(demands(2), pools(1))
@settings(max_examples=drawn(40))
def test_whatever_can_be_done_with_a_device_some_pattern_does_as_well(
    asked: tuple[Demand, ...], there: Pool
) -> None:
    problem = PlacementProblem(asked, (there,))
    found = patterns(problem, there, 4_000)
    assert found is not None
    carried = [parts_carried(problem, slots) for slots in found]
    for bundle in legal_bundles(problem, there):
        wanted = parts_carried(problem, bundle)
        assert any(covers(each, wanted) for each in carried), bundle


@given(demands(3), pools(1))
@settings(max_examples=drawn(25))
def test_patterns_are_legal_and_none_does_what_another_does(asked: tuple[Demand, ...], there: Pool) -> None:
    problem = PlacementProblem(asked, (there,))
    found = patterns(problem, there, 4_000)
    assert found is not None
    for slots in found:
        assert [*device_faults(problem, there, slots)] == []
    carried = [parts_carried(problem, slots) for slots in found]
    for one, other in combinations(carried, 2):
        assert one != other
        assert not all(left >= right for left, right in zip(one, other, strict=True))
        assert not all(left <= right for left, right in zip(one, other, strict=True))


def test_neighbours_that_would_miss_their_budgets_are_in_no_pattern() -> None:
    """Alone a batch takes 40 of 45 ms; beside the other 56."""
    way = option(50.0, (4, 40_000.0), pressure=1.0, sensitivity=0.4)
    pair = tuple(flat(name, 100.0, way, slo_us=100_000.0) for name in "ab")
    problem = PlacementProblem(pair, (pool(),))
    found = patterns(problem, problem.pools[0], 10)
    assert found is not None
    assert sorted([each.model for slot in slots for each in slot.residents] for slots in found) == [
        ["a"],
        ["b"],
    ]


def test_a_batch_that_neighbours_make_too_slow_is_taken_smaller() -> None:
    quiet = option(50.0, (1, 15_000.0), (4, 40_000.0), sensitivity=0.4)
    loud = option(50.0, (4, 40_000.0), pressure=1.0)
    problem = PlacementProblem(
        (flat("quiet", 50.0, quiet, slo_us=100_000.0), flat("loud", 100.0, loud)), (pool(),)
    )
    found = patterns(problem, problem.pools[0], 10)
    assert found is not None
    rows = {
        tuple(sorted((each.model, each.rows) for slot in slots for each in slot.residents)) for slots in found
    }
    assert (("loud", 4), ("quiet", 1)) in rows


def test_small_models_share_one_slice_and_leave_the_rest_to_others() -> None:
    way = option(50.0, (1, 5_000.0), (8, 10_000.0))
    asked = tuple(flat(name, rate, way) for name, rate in (("a", 20.0), ("b", 20.0), ("c", 700.0)))
    problem = PlacementProblem(asked, (pool(),))
    found = patterns(problem, problem.pools[0], 10)
    assert found is not None
    assert len(found) == 1
    assert sorted([each.model for each in slot.residents] for slot in found[0]) == [["a", "b"], ["c"]]


def test_what_replicas_of_its_own_leave_of_a_model_shares_a_slice() -> None:
    """a needs 1.2 slices of the three, b and c 0.3: so a fifth of a goes with them."""
    way = option(50.0, (1, 2_000.0), (8, 10_000.0))
    asked = (flat("a", 960.0, way), flat("b", 120.0, way), flat("c", 120.0, way))
    problem = PlacementProblem(asked, (pool(),))
    found = patterns(problem, problem.pools[0], 10)
    assert found is not None
    assert len(found) == 1
    assert parts_carried(problem, found[0]) == [1.0, 1.0, 1.0]


def test_an_option_that_another_is_as_good_as_is_not_used() -> None:
    good = option(50.0, (1, 5_000.0), (8, 10_000.0))
    slow = replace(good, variant="slow", curve=((1, 6_000.0), (8, 10_000.0)))
    equal = replace(good, variant="equal")
    problem = PlacementProblem((flat("a", 100.0, slow, good, equal),), (pool(),))
    found = patterns(problem, problem.pools[0], 10)
    assert found is not None
    assert [[each.option.variant for slot in slots for each in slot.residents] for slots in found] == [
        ["fp32"]
    ]


def test_none_says_that_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [option(amount, (1, 50_000.0 / amount)) for amount in (20.0, 50.0)]
    asked = tuple(flat(name, 5_000.0, *ways) for name in "abc")
    problem = PlacementProblem(asked, (pool(),))
    every = patterns(problem, problem.pools[0], 4_000)
    assert every is not None
    assert len(every) > 20
    assert patterns(problem, problem.pools[0], len(every)) == every
    assert patterns(problem, problem.pools[0], len(every) - 1) is None
    monkeypatch.setattr(module, "LOOKS", 20)
    assert patterns(problem, problem.pools[0], 4_000) is None
    monkeypatch.setattr(module, "SLICES_MAX", 3)
    assert patterns(problem, problem.pools[0], 4_000) is None


def test_nothing_asked_or_nothing_fast_enough_is_no_pattern() -> None:
    way = option(50.0, (1, 5_000.0))
    for asked in ((), (flat("a", 0.0, way),), (flat("a", 1.0, way, slo_us=9_000.0),), (flat("a", 1.0),)):
        problem = PlacementProblem(asked, (pool(),))
        assert patterns(problem, problem.pools[0], 10) == ()


def test_a_pool_that_is_not_divided_by_amounts_is_refused() -> None:
    problem = PlacementProblem((), (replace(pool(), division=Instances(())),))
    with pytest.raises(ValueError, match="gpus is not divided by amounts"):
        patterns(problem, problem.pools[0], 10)


def test_what_carries_all_is_found_where_there_is_much_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is as good, however much remains to be looked at."""
    ways = [option(amount, (1, 50_000.0 / amount)) for amount in (1.0, 2.0, 5.0, 10.0)]
    asked = tuple(flat(name, rate, *ways) for name, rate in (("a", 100.0), ("b", 200.0), ("c", 500.0)))
    problem = PlacementProblem(asked, (pool(),))
    monkeypatch.setattr(module, "LOOKS", 2_000)
    found = patterns(problem, problem.pools[0], 1)
    assert found is not None
    assert parts_carried(problem, found[0]) == [1.0, 1.0, 1.0]
