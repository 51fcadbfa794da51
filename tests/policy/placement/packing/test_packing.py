"""The greedy placement on devices that are divided by amounts."""

from collections import Counter
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings

from serving.policy.placement.packing.device_packing import DevicePacking, ShareLadder, hold
from serving.policy.placement.packing.packing import pack
from serving.policy.placement.packing.shared_slices import Turn
from serving.policy.placement.terms.plan import Draft
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from tests.policy.placement.brute import cheapest
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
from tests.seeds import drawn


def together(draft: Draft) -> list[list[str]]:
    """The models of each device."""
    return sorted(
        sorted({each.model for slot in bundle.slots for each in slot.residents}) for bundle in draft.bundles
    )


def taken(draft: Draft) -> float:
    """Of devices, by amount."""
    return sum(slot.share.amount for bundle in draft.bundles for slot in bundle.slots) / 100


@given(demands(), pools())
@settings(max_examples=12)
def test_every_slice_is_legal_and_no_device_is_used_that_is_not_there(
    asked: tuple[Demand, ...], there: Pool
) -> None:
    problem = PlacementProblem(asked, (there,))
    assert faults(problem, pack(problem).bundles) == []


@given(demands())
@settings(max_examples=12)
def test_where_devices_suffice_all_is_carried_that_any_share_is_fast_enough_for(
    asked: tuple[Demand, ...],
) -> None:
    problem = PlacementProblem(asked, (pool(count=500),))
    draft = pack(problem)
    assert short(problem, draft.bundles) == {each.model for each in asked if each.rate and not each.offers}
    assert pack(problem) == draft


@pytest.mark.slow
@given(demands(interference=False), pools(3))
@settings(max_examples=drawn(150))
def test_it_is_never_better_than_the_best_and_where_all_fits_no_more_than_a_device_worse(
    asked: tuple[Demand, ...], there: Pool
) -> None:
    problem = PlacementProblem(asked, (there,))
    draft = pack(problem)
    missing, cost = cheapest(problem)
    if short(problem, draft.bundles):
        lacking = sum(
            max(0.0, 1 - carried(draft.bundles)[each.model] / each.rate) for each in asked if each.rate
        )
        assert lacking >= cheapest(problem, pieces=False)[0] - 1e-5
    else:
        assert missing == 0
        assert cost <= len(draft.bundles) <= cost + 1


@pytest.mark.parametrize("seed", range(4))
def test_without_interference_devices_are_nearly_full(seed: int) -> None:
    problem = PlacementProblem(generated(seed, 60), (pool(count=200),))
    draft = pack(problem)
    assert faults(problem, draft.bundles) == []
    assert short(problem, draft.bundles) == set()
    assert len(draft.bundles) <= ceil(1.05 * taken(draft)) + 1


@pytest.mark.slow
@pytest.mark.parametrize("interference", [0.0, 0.2])
def test_a_thousand_models_are_packed_on_hundreds_of_devices(interference: float) -> None:
    fleet = pool(count=800, slices_max=8, memory=24)
    problem = PlacementProblem(generated(1, 1_000, interference, (0.02, 0.4)), (fleet,))
    draft = pack(problem)
    assert faults(problem, draft.bundles) == []
    assert short(problem, draft.bundles) == set()


def test_models_that_slow_each_other_down_too_much_get_a_device_each_where_there_is_one() -> None:
    """Alone a batch takes 40 of 45 ms; beside the other 56."""
    way = option(50.0, (4, 40_000.0), pressure=1.0, sensitivity=0.4)
    pair = tuple(flat(name, 100.0, way, slo_us=100_000.0) for name in "ab")
    assert together(pack(PlacementProblem(pair, (pool(2),)))) == [["a"], ["b"]]
    alone = PlacementProblem(pair, (pool(1),))
    draft = pack(alone)
    assert len(draft.bundles) == 1
    assert faults(alone, draft.bundles) == []
    assert len(short(alone, draft.bundles)) == 1


def test_the_loud_goes_beside_the_deaf() -> None:
    """By amount either small one fits beside either large one, and the frail one would carry its rate beside
    the loud one, too."""
    loud, quiet = (option(60.0, (4, 10_000.0), pressure=level) for level in (1.0, 0.1))
    deaf = option(40.0, (4, 10_000.0))
    frail = option(40.0, (4, 10_000.0), sensitivity=0.3)
    asked = (
        flat("loud", 400.0, loud),
        flat("quiet", 400.0, quiet),
        flat("deaf", 300.0, deaf),
        flat("frail", 300.0, frail),
    )
    assert together(pack(PlacementProblem(asked, (pool(),)))) == [["deaf", "loud"], ["frail", "quiet"]]


def test_a_share_is_raised_where_a_neighbour_makes_it_too_small() -> None:
    """400 rows/s take the smaller share alone, and the larger beside the other."""
    ways = [option(amount, (4, us), sensitivity=0.3) for amount, us in ((40.0, 10_000.0), (50.0, 7_500.0))]
    loud = option(50.0, (4, 10_000.0), pressure=1.0)
    problem = PlacementProblem((flat("a", 400.0, *ways), flat("loud", 400.0, loud)), (pool(),))
    draft = pack(problem)
    assert short(problem, draft.bundles) == set()
    assert [sorted(str(slot.share) for slot in each.slots) for each in draft.bundles] == [
        ["mps:50", "mps:50"]
    ]


@given(demands(), pools(1))
@settings(max_examples=drawn(30))
def test_raising_shares_ends_and_lowers_none(asked: tuple[Demand, ...], there: Pool) -> None:
    problem = PlacementProblem(asked, (there,))
    stacks = [
        (Turn.of(each, offer.option, min(each.rate, offer.throughput)),)
        for each in asked
        for offer in each.offers[:1]
    ]
    shelf = hold(DevicePacking(there), stacks, ShareLadder(problem.demand_of))
    if shelf is not None:
        pairs = zip(stacks, shelf.stacks, strict=True)
        assert all(old[0].option.share <= new[0].option.share for old, new in pairs)


def test_small_models_share_slices() -> None:
    way = option(50.0, (1, 5_000.0), (8, 10_000.0))
    problem = PlacementProblem(tuple(flat(name, 50.0, way) for name in "abcdef"), (pool(),))
    draft = pack(problem)
    assert [[len(slot.residents) for slot in each.slots] for each in draft.bundles] == [[6]]


def test_a_row_is_computed_where_it_costs_least_for_as_long_as_there_are_such_devices() -> None:
    old, new = (
        Pool(kind, kind, Parts("mps", 100), tuple(PlacementDevice(f"{kind}{n}") for n in range(2)), price)
        for kind, price in (("old", 1.0), ("new", 3.0))
    )
    slow = replace(option(100.0, (1, 10_000.0)), kind="old")
    fast = replace(option(100.0, (1, 2_500.0)), kind="new")
    for rate, used in ((100.0, "o"), (300.0, "n"), (800.0, "nn"), (900.0, "nno"), (9_000.0, "nnoo")):
        problem = PlacementProblem((flat("a", rate, slow, fast),), (old, new))
        assert sorted(each.pool[0] for each in pack(problem).bundles) == [*used]


def test_a_small_device_is_taken_instead_of_a_dear_one_where_it_does() -> None:
    large, small = (
        Pool(name, "gpu", Parts("mps", total), (PlacementDevice(name),), price)
        for name, total, price in (("large", 100.0, 2.5), ("small", 50.0, 2.0))
    )
    problem = PlacementProblem((flat("a", 10.0, option(50.0, (1, 1_000.0))),), (large, small))
    assert [each.pool for each in pack(problem).bundles] == ["small"]


def test_a_model_has_replicas_in_as_many_domains_as_it_asks_for() -> None:
    way = option(20.0, (1, 10_000.0))
    asked = tuple(flat(name, 50.0, way, domains_min=count) for name, count in (("a", 1), ("b", 2), ("c", 3)))
    problem = PlacementProblem(asked, (pool(6, domains="xyz"),))
    draft = pack(problem)
    assert short(problem, draft.bundles) == set()
    found = {
        (each.model, bundle.domain)
        for bundle in draft.bundles
        for slot in bundle.slots
        for each in slot.residents
    }
    assert Counter(model for model, domain in found if domain) >= Counter({"b": 2, "c": 3})
    assert len(draft.bundles) == 3


def test_no_domain_is_asked_for_more_devices_than_it_has() -> None:
    way = option(100.0, (1, 10_000.0))
    asked = tuple(flat(name, 100.0, way, domains_min=2) for name in "abc")
    problem = PlacementProblem(asked, (pool(6, domains="xxxxyz"),))
    draft = pack(problem)
    assert faults(problem, draft.bundles) == []
    wanted = Counter(each.domain for each in draft.bundles if each.domain)
    assert wanted <= Counter("xxxxyz")
    assert short(problem, draft.bundles) == set()


def test_more_domains_than_there_are_do_not_multiply_replicas() -> None:
    problem = PlacementProblem(
        (flat("a", 50.0, option(20.0, (1, 10_000.0)), domains_min=5),), (pool(6, domains="xy"),)
    )
    assert len(pack(problem).bundles) == 2


def test_a_fleet_that_is_too_small_carries_what_costs_it_least() -> None:
    """One device: of the large one or the four small ones, the four."""
    small = tuple(flat(name, 100.0, option(25.0, (1, 10_000.0))) for name in "abcd")
    large = flat("large", 100.0, option(100.0, (1, 10_000.0)))
    problem = PlacementProblem((large, *small), (pool(1),))
    draft = pack(problem)
    assert len(draft.bundles) == 1
    assert short(problem, draft.bundles) == {"large"}


def test_what_is_too_large_for_the_fleet_is_carried_in_part() -> None:
    problem = PlacementProblem(
        (flat("a", 1e9, option(50.0, (1, 10_000.0)), option(30.0, (1, 20_000.0))),), (pool(2),)
    )
    draft = pack(problem)
    assert faults(problem, draft.bundles) == []
    assert carried(draft.bundles)["a"] == pytest.approx(400.0)


def test_nothing_asked_nothing_there_and_nothing_fast_enough_is_nothing() -> None:
    way = option(50.0, (1, 10_000.0))
    mig = replace(pool(), division=Instances(()))
    for problem in (
        PlacementProblem((), ()),
        PlacementProblem((flat("a", 10.0, way),), ()),
        PlacementProblem((flat("a", 10.0, way),), (mig,)),
        PlacementProblem((flat("a", 10.0, way),), (pool(0),)),
        PlacementProblem((flat("a", 0.0, way),), (pool(),)),
        PlacementProblem((flat("a", 10.0, way, slo_us=20_000.0),), (pool(),)),
        PlacementProblem((flat("a", 10.0, way),), (pool(total=40.0),)),
    ):
        assert pack(problem) == Draft((), "packing")


def test_a_price_of_nothing_is_a_price() -> None:
    free = replace(pool(3), price=0.0)
    problem = PlacementProblem(generated(3, 6), (free,))
    assert faults(problem, pack(problem).bundles) == []
