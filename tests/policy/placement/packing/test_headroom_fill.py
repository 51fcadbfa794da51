"""What is left of devices goes to whom it helps, and takes nothing from anyone."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from serving.policy.placement.packing.headroom_fill import fill
from serving.policy.placement.packing.packing import pack
from serving.policy.placement.terms.geometry import A100_80
from serving.policy.placement.terms.plan import Bundle, PlacedReplica, Slot
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share
from tests.policy.placement.parts_fleets import (
    carried,
    demands,
    faults,
    flat,
    generated,
    option,
    pool,
    pools,
    short,
)


def bundle(*slots: tuple[str, Option, int, float]) -> Bundle:
    """Each slice one model's."""
    return Bundle(
        "gpus",
        tuple(
            Slot(way.share, (PlacedReplica(model, way, rows, capacity),))
            for model, way, rows, capacity in slots
        ),
    )


def held(found: Bundle) -> list[tuple[str, float]]:
    return [(each.model, slot.share.amount) for slot in found.slots for each in slot.residents]


def keeps_its_promises(problem: PlacementProblem) -> None:
    before = pack(problem).bundles
    after = fill(problem, before)
    assert [(each.pool, each.domain) for each in after] == [(each.pool, each.domain) for each in before]
    assert faults(problem, after) == []
    had, has = carried(before), carried(after)
    assert all(has[model] >= rate * (1 - 1e-8) for model, rate in had.items())
    for old, new in zip(before, after, strict=True):
        one, other = carried([old]), carried([new])
        assert all(other[model] >= rate * (1 - 1e-8) for model, rate in one.items())


@given(demands(), pools())
@settings(max_examples=12)
def test_nobody_carries_less_on_any_device_and_no_device_is_added(
    asked: tuple[Demand, ...], there: Pool
) -> None:
    keeps_its_promises(PlacementProblem(asked, (there,)))


@pytest.mark.slow
@pytest.mark.parametrize("interference", [0.0, 0.1])
def test_nor_do_they_in_a_fleet(interference: float) -> None:
    keeps_its_promises(PlacementProblem(generated(5, 150, interference), (pool(count=300, memory=20),)))


def test_the_model_with_the_least_headroom_is_served_first() -> None:
    """There is room for one more slice; a has 1.5 times its rate, b 1.2 times."""
    way = option(30.0, (1, 10_000.0))
    asked = flat("a", 100 / 1.5, way), flat("b", 100 / 1.2, way)
    problem = PlacementProblem(asked, (pool(),))
    (found,) = fill(problem, [bundle(("a", way, 1, 100.0), ("b", way, 1, 100.0))])
    assert held(found) == [("a", 30.0), ("b", 30.0), ("b", 30.0)]


def test_a_share_grows_where_that_brings_more_for_its_amount_than_a_replica_does() -> None:
    small, large = option(40.0, (1, 10_000.0)), option(60.0, (1, 6_000.0))
    problem = PlacementProblem((flat("a", 90.0, small, large),), (pool(total=60.0),))
    (found,) = fill(problem, [bundle(("a", small, 1, 100.0))])
    assert held(found) == [("a", 60.0)]
    assert carried([found])["a"] == pytest.approx(1e6 / 6_000)


def test_what_brings_nothing_is_not_given() -> None:
    small, large = option(40.0, (1, 10_000.0)), option(60.0, (1, 10_000.0))
    problem = PlacementProblem((flat("a", 90.0, small, large),), (pool(total=60.0),))
    before = (bundle(("a", small, 1, 100.0)),)
    assert fill(problem, before) == before


def test_a_full_device_stays_as_it_is() -> None:
    way = option(50.0, (1, 10_000.0))
    problem = PlacementProblem((flat("a", 90.0, way), flat("b", 90.0, way)), (pool(),))
    before = (bundle(("a", way, 1, 100.0), ("b", way, 1, 100.0)),)
    assert fill(problem, before) == before
    assert fill(problem, ()) == ()


@pytest.mark.parametrize(("slices_max", "memory"), [(1, 0), (0, 3)])
def test_slices_and_memory_are_limits(slices_max: int, memory: int) -> None:
    way = option(30.0, (1, 10_000.0), memory=2)
    problem = PlacementProblem((flat("a", 90.0, way),), (pool(slices_max=slices_max, memory=memory),))
    before = (bundle(("a", way, 1, 100.0)),)
    assert fill(problem, before) == before


def test_a_neighbour_that_would_carry_less_keeps_its_quiet() -> None:
    frail = option(50.0, (1, 10_000.0), sensitivity=0.2)
    loud = option(30.0, (1, 10_000.0), pressure=1.0)
    problem = PlacementProblem((flat("frail", 10.0, frail), flat("loud", 300.0, loud)), (pool(2),))
    before = (bundle(("frail", frail, 1, 100.0)), bundle(("loud", loud, 1, 100.0)))
    first, second = fill(problem, before)
    assert {model for model, _ in held(first)} == {"frail"}
    assert held(second) == [("loud", 30.0)] * 3


def test_what_was_short_is_mended_first() -> None:
    way = option(40.0, (1, 10_000.0))
    problem = PlacementProblem((flat("a", 10.0, way), flat("b", 50.0, way)), (pool(1),))
    before = (bundle(("a", way, 1, 100.0)),)
    assert short(problem, before) == {"b"}
    after = fill(problem, before)
    assert held(after[0]) == [("a", 40.0), ("b", 40.0)]
    assert short(problem, after) == set()


def test_the_batches_of_a_shared_slice_grow_until_the_cycle_is_as_long_as_it_may_be() -> None:
    way = option(100.0, (1, 10_000.0), (8, 20_000.0))
    problem = PlacementProblem(tuple(flat(name, 50.0, way, slo_us=200_000.0) for name in "ab"), (pool(1),))
    before = pack(problem).bundles
    assert [each.rows for slot in before[0].slots for each in slot.residents] == [1, 1]
    after = fill(problem, before)
    assert [each.rows for slot in after[0].slots for each in slot.residents] == [8, 8]
    assert carried(after)["a"] == pytest.approx(200.0)


def test_instances_and_slices_that_are_run_otherwise_stay_as_they_are() -> None:
    mig = Pool("mig", "gpu", Instances(A100_80), (PlacementDevice("mig0"),))
    seven = Option("gpu", Share.parse("mig:7g.80gb"), "fp32", ((1, 10_000.0),))
    between = option(50.0, (1, 10_000.0), (4, 20_000.0))  # 2 rows were not measured
    problem = PlacementProblem((flat("a", 90.0, seven, between), flat("b", 0.0)), (mig, pool(1)))
    before = (
        Bundle("mig", (Slot(seven.share, (PlacedReplica("a", seven, 1, 100.0),), 0),), "x"),
        bundle(("a", between, 3, 181.0)),
        bundle(("stranger", between, 1, 100.0)),
    )
    narrow = replace(problem, demands=(replace(problem.demands[0], slo_us=40_000.0), problem.demands[1]))
    assert fill(narrow, before) == before
