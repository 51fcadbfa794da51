"""What is promised of moves: each replica starts, ends or stays, as few as can be, and only if it pays."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.terms.geometry import A100_80
from serving.policy.placement.terms.moves import (
    FACTOR,
    SETTLE_US,
    Moves,
    accept,
    lacking,
    move_cost,
    moves,
    replica,
)
from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot, residents
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share
from tests.seeds import drawn

HALF, MIG = Share("mps", 50.0), Share("mig", 3.0, "3g.40gb")
SHARES = (HALF, Share("mps", 25.0))


def resident(model: str, share: Share = HALF, capacity: float = 100.0, load_s: int = 30) -> PlacedReplica:
    option = Option("gpu", share, "v", ((1, 1000.0), (8, 4000.0)), load_us=load_s * 1_000_000)
    return PlacedReplica(model, option, 1, capacity)


def slot(*models: str, share: Share = HALF, start: int = -1) -> Slot:
    return Slot(share, tuple(resident(model, share) for model in models), start)


def counts(moved: Moves) -> tuple[int, int, int]:
    return len(moved.started), len(moved.ended), len(moved.kept)


slots = st.lists(
    st.builds(
        lambda models, share: slot(*models, share=share),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
        st.sampled_from(SHARES),
    ),
    max_size=3,
).map(tuple)
placements = st.dictionaries(st.sampled_from(["p0", "p1"]), slots)


@settings(max_examples=drawn(50))
@given(placements, placements)
def test_every_replica_starts_ends_or_stays(old: Placement, new: Placement) -> None:
    moved, back = moves(old, new), moves(new, old)
    assert len(moved.started) + len(moved.kept) == len(list(residents(new)))
    assert len(moved.ended) + len(moved.kept) == len(list(residents(old)))
    assert (counts(back)[0], counts(back)[1]) == (counts(moved)[1], counts(moved)[0])
    by_model = moved.by_model.values()
    assert tuple(sum(each[part] for each in by_model) for part in range(3)) == counts(moved)


@given(slots, slots)
def test_slices_are_paired_so_that_most_stays(old: tuple[Slot, ...], new: tuple[Slot, ...]) -> None:
    """All pairings are tried."""
    longer, shorter = (old, new) if len(old) > len(new) else (new, old)
    best = max(
        sum(
            sum((Counter(map(replica, one.residents)) & Counter(map(replica, other.residents))).values())
            for one, other in zip(order, shorter, strict=False)
            if one.share == other.share
        )
        for order in permutations(longer)
    )
    assert len(moves({"p0": old}, {"p0": new}).kept) == best


def test_a_batch_or_capacity_of_another_size_moves_nothing() -> None:
    larger = Slot(HALF, (replace(resident("a"), rows=8, capacity=500.0),))
    moved = moves({"p0": (slot("a"),)}, {"p0": (larger,)})
    assert counts(moved) == (0, 0, 1)
    assert moved.kept[0].resident.rows == 8


@pytest.mark.parametrize(
    "new",
    [
        {"p1": (slot("a"),)},
        {"p0": (slot("b"),)},
        {"p0": (slot("a", share=SHARES[1]),)},
        {"p0": (slot("a", start=4),)},
        {"p0": (Slot(HALF, (replace(resident("a"), option=replace(resident("a").option, variant="w")),)),)},
        {"p0": (Slot(HALF, (replace(resident("a"), option=replace(resident("a").option, processes=2)),)),)},
    ],
)
def test_another_place_or_way_to_run_is_another_replica(new: Placement) -> None:
    assert counts(moves({"p0": (slot("a"),)}, new)) == (1, 1, 0)


def test_a_replica_does_not_stay_when_it_changes_slices() -> None:
    """Beside each other, then in turns on one of them: one process has both models now."""
    moved = moves({"p0": (slot("a"), slot("b"))}, {"p0": (slot("a", "b"),)})
    assert counts(moved) == (1, 1, 1)
    assert moved.by_model in ({"a": (1, 1, 0), "b": (0, 0, 1)}, {"a": (0, 0, 1), "b": (1, 1, 0)})


def problem(*models: str, price: float = 3.6, rate: float = 50.0, **asked: int) -> PlacementProblem:
    """Two devices divided by amounts and two by MIG instances, each in a domain of its own."""
    parts = tuple(PlacementDevice(f"p{n}", f"host{n}") for n in range(2))
    migs = tuple(PlacementDevice(f"m{n}", f"host{n}") for n in range(2))
    demands = tuple(
        Demand(each, rate, 1e6, (resident(each).option,), domains_min=asked.get(each, 1)) for each in models
    )
    pools = (
        Pool("parts", "gpu", Parts("mps", 100.0), parts, price),
        Pool("mig", "gpu", Instances(A100_80), migs, price),
    )
    return PlacementProblem(demands, pools)


def test_a_started_replica_costs_its_part_of_the_device_until_it_can_be_counted_on() -> None:
    """30 s of loading and a minute, on half a device of 3.6 an hour; a 3g has half the memory slices."""
    assert SETTLE_US == 60_000_000
    for place in ({"p0": (slot("a"),)}, {"m0": (slot("a", share=MIG, start=4),)}):
        moved = moves({}, place)
        assert move_cost(problem("a"), moved, 1.0) == pytest.approx(0.5 * 90 * 3.6 / 3600)
        assert move_cost(problem("a"), moved) == pytest.approx(FACTOR * 0.045)
    assert move_cost(problem("a"), moves(place, {})) == 0.0


ONE: Placement = {"p0": (slot("a"), slot("b"))}
TWO: Placement = {"p0": (slot("a"),), "p1": (slot("b"),)}


def test_a_plan_is_taken_when_what_it_saves_outweighs_what_it_moves() -> None:
    """A device of 3.6 an hour less for one replica of 0.09: paid back in a minute and a half."""
    asked = problem("a", "b")
    late = accept(asked, TWO, ONE, 91.0)
    assert late.taken
    assert late.reason == "it saves 0.091 in 91 s, starting 1 replica costs 0.09"
    assert [late.saving, late.cost] == pytest.approx([0.091, 0.09])
    early = accept(asked, TWO, ONE, 89.0)
    assert (early.taken, early.reason) == (
        False,
        "it saves only 0.089 in 89 s, starting 1 replica costs 0.09",
    )


@settings(max_examples=drawn(50))
@given(st.sampled_from([ONE, TWO]), st.sampled_from([ONE, TWO]), st.lists(st.integers(0, 10_000), min_size=2))
def test_what_is_taken_for_an_hour_is_taken_for_longer(
    old: Placement, new: Placement, horizons_s: list[int]
) -> None:
    taken = [accept(problem("a", "b"), old, new, float(each)).taken for each in sorted(horizons_s)]
    assert taken == sorted(taken)


@pytest.mark.parametrize("price", [0.0, 3.6])
def test_what_saves_nothing_is_not_taken(price: float) -> None:
    same = accept(problem("a", "b", price=price), ONE, ONE, 1e9)
    assert (same.taken, same.reason) == (False, "it saves nothing in 1e+09 s, starting 0 replicas costs 0")
    assert not accept(problem("a", "b", price=price), ONE, TWO, 1e9).taken
    assert accept(problem("a", "b"), TWO, ONE, 1e9).taken


def test_a_plan_that_no_longer_carries_the_demands_is_left_whatever_it_costs() -> None:
    verdict = accept(problem("a", "b"), {"p0": (slot("a"),)}, TWO, 0.0)
    assert (verdict.taken, verdict.reason) == (
        True, "the old plan falls short: b: 50 of 50 rows/s are not carried"
    )  # fmt: skip
    spread = accept(problem("a", a=2), {"p0": (slot("a"),)}, {"p0": (slot("a"),), "p1": (slot("a"),)}, 0.0)
    assert (spread.taken, spread.reason) == (
        True, "the old plan falls short: a: in 1 failure domains, not 2"
    )  # fmt: skip


def test_a_plan_that_breaks_a_rule_is_left_whatever_it_costs() -> None:
    gone = accept(problem("a"), {"elsewhere": (slot("a"),)}, {"p0": (slot("a"),)}, 0.0)
    assert (gone.taken, gone.reason) == (
        True, "the old plan does not hold any more: there is no device elsewhere"
    )  # fmt: skip
    assert accept(problem("a"), ONE, {"p0": (slot("a"),)}, 0.0).taken  # b is no longer asked for


def test_a_new_plan_that_is_none_or_carries_less_is_never_taken() -> None:
    full = {"p0": (slot("a"), slot("a"), slot("a"))}
    verdict = accept(problem("a"), {}, full, 1e9)
    assert not verdict.taken
    assert verdict.reason.startswith("the new plan is none: p0: mps come to 150 of 100")
    less = accept(problem("a", "b"), TWO, {"p0": (slot("a"),)}, 1e9)
    assert (less.taken, less.reason) == (
        False, "the new plan falls short: b: 50 of 50 rows/s are not carried"
    )  # fmt: skip


def test_where_both_fall_short_alike_the_price_decides() -> None:
    """A fleet that is too small is not rearranged for nothing at every look."""
    asked = problem("a", "b", rate=150.0)
    assert lacking(asked, ONE) == lacking(asked, TWO) > 0
    assert not accept(asked, ONE, TWO, 1e9).taken
    assert accept(asked, TWO, ONE, 1e9).taken


@settings(max_examples=drawn(30))
@given(placements, placements)
def test_a_verdict_is_given_on_any_two_plans(old: Placement, new: Placement) -> None:
    verdict = accept(problem("a", "b", "c", rate=1.0), old, new, 3600.0)
    assert verdict.reason
    assert verdict.taken <= (new != old)
