"""What stands in and what makes way, where the rounds decide alone: as little as possible, where it may."""

from dataclasses import replace

from serving.policy.placement.terms.plan import Placement, Slot
from serving.policy.placement.terms.problem import Option, Parts, PlacementDevice, PlacementProblem, Pool
from serving.policy.transition import State, Transition, transition, violations
from serving.policy.transition.steps import LoadStep
from serving.values.slice_specs import Share
from tests.policy.transition.small import HALF, WHOLE, devices, mps, option, problem_of, slot
from tests.policy.transition.walk import broken, is_at_rest, states

SIXTY = Share("mps", 60.0)
A, B = slot("a", WHOLE, 100), slot("b", WHOLE, 100)
APART: Placement = {"gpu-0": (A,), "gpu-1": (B,)}
SWAPPED: Placement = {"gpu-0": (B,), "gpu-1": (A,)}


def by_rounds(problem: PlacementProblem, old: Placement, new: Placement) -> Transition:
    """The transition, where all promises are kept; small fleets are not searched."""
    found = transition(problem, old, new, 1, trials=0)
    assert isinstance(found, Transition), found
    way = states(State.of(old), found)
    assert [fault for state in way for fault in violations(problem, state, old, new, 1)] == []
    assert [fault for state in way for fault in broken(problem, state, old, new)] == []
    assert is_at_rest(way[-1], new)
    return found


def stand_ins(found: Transition) -> list[LoadStep]:
    there = {(each.device, each.slice) for each in found.temporary}
    loads = [step for step in found.steps if isinstance(step, LoadStep)]
    return [each for each in loads if (each.address.device, each.address.slice) in there]


def with_option(problem: PlacementProblem, model: str, more: Option) -> PlacementProblem:
    """The model may also be run so."""
    demands = tuple(
        replace(each, options=(*each.options, more)) if each.model == model else each
        for each in problem.demands
    )
    return replace(problem, demands=demands)


def test_what_stands_in_for_a_failure_domain_is_in_one_that_the_model_is_not_in() -> None:
    names = (("gpu-0", "x"), ("gpu-1", "y"), ("gpu-2", "y"), ("gpu-3", "x"))
    pool = replace(mps(1, memory_gib=1), devices=tuple(PlacementDevice(*each) for each in names))
    old: Placement = {"gpu-0": (A,), "gpu-1": (A,)}
    new: Placement = {"gpu-0": (slot("a", HALF, 100), slot("b", HALF, 50, gib=0)), "gpu-1": (A,)}
    problem = problem_of(pool, old, new, domains_min=2)
    (load,) = stand_ins(by_rounds(problem, old, new))
    assert load.address.device == "gpu-3"


def test_a_stand_in_of_another_share_has_batches_that_keep_its_slo_beside_what_is_there() -> None:
    quiet, loud = slot("a", WHOLE, 100), slot("c", HALF, 100, gib=1, pressure=1.0)
    old: Placement = {"gpu-0": (quiet,), "gpu-1": (B,), "gpu-2": (loud,)}
    new: Placement = {"gpu-0": (B,), "gpu-1": (quiet,), "gpu-2": (loud,)}
    curve = ((1, 5_000.0), (2, 8_000.0), (64, 300_000.0))
    small = replace(option(HALF, 100, gib=0, sensitivity=1.0), curve=curve)
    problem = with_option(problem_of(mps(3, memory_gib=1), old), "a", small)
    (load,) = stand_ins(by_rounds(problem, old, new))
    assert load.address.device == "gpu-2"
    assert (load.resident.rows, load.resident.capacity) == (2, 2 * 1e6 / 16_000)


def test_a_stand_in_may_be_of_another_kind_of_device() -> None:
    pool = mps(2, memory_gib=1)
    other = Pool("c", "C", Parts("whole", 1.0), (PlacementDevice("cpu-0"),))
    problem = problem_of(pool, APART)
    more = replace(option(WHOLE, 120), kind="C", share=Share("whole", 1.0))
    problem = replace(with_option(problem, "a", more), pools=(pool, other))
    (load,) = stand_ins(by_rounds(problem, APART, SWAPPED))
    assert load.address.device == "cpu-0"


def test_several_small_ones_stand_in_for_a_large_one() -> None:
    small = option(Share("mps", 40.0), 50, gib=0)
    problem = with_option(problem_of(mps(3, memory_gib=1), APART), "a", small)
    taken = slot("c", Share("mps", 20.0), 10, gib=0)
    old: Placement = {**APART, "gpu-2": (taken,)}
    new: Placement = {**SWAPPED, "gpu-2": (taken,)}
    more = problem_of(mps(3, memory_gib=1), {"gpu-2": (taken,)}).demands
    problem = replace(problem, demands=(*problem.demands, *more))
    assert [each.address.device for each in stand_ins(by_rounds(problem, old, new))] == ["gpu-2", "gpu-2"]


def test_only_what_is_in_the_way_goes_and_rather_what_can_be_spared() -> None:
    """Of two that are to go one would do; the other one cannot be missed before its successor is there."""
    scarce, plenty = slot("a", Share("mps", 30.0), 100), slot("b", HALF, 100)
    old: Placement = {"gpu-0": (scarce, plenty), "gpu-1": (slot("c", WHOLE, 100),), "gpu-2": (plenty, plenty)}
    new: Placement = {"gpu-0": (slot("c", SIXTY, 100),), "gpu-1": (scarce,), "gpu-2": (plenty, plenty)}
    assert by_rounds(problem_of(mps(3), old, new), old, new).temporary == ()


def test_the_copy_of_a_shared_slice_has_only_what_would_be_missing() -> None:
    (a,), (b,) = slot("a", WHOLE, 50).residents, slot("b", WHOLE, 50).residents
    both = Slot(WHOLE, (replace(a, capacity=25.0), replace(b, capacity=25.0)))
    old: Placement = {
        "gpu-0": (both,),
        "gpu-1": (slot("c", WHOLE, 50, gib=2),),
        "gpu-2": (slot("b", WHOLE, 50),),
    }
    new: Placement = {
        "gpu-0": (slot("c", WHOLE, 50, gib=2),),
        "gpu-1": (both,),
        "gpu-2": (slot("b", WHOLE, 50),),
    }
    problem = problem_of(replace(mps(1, memory_gib=2), devices=devices(4)), old)
    (load,) = stand_ins(by_rounds(problem, old, new))
    assert (load.resident.model, load.address.device) == ("c", "gpu-3")
