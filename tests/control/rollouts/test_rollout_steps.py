"""A transition becomes states that control can go through: the same replicas, on slices of lasting names."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.control.rollouts.rollout_steps import Specs, rollout_steps
from serving.control.state.desired import DesiredReplica, DesiredSlice
from serving.policy.placement.terms.plan import Placement
from serving.policy.transition import Transition, transition
from serving.policy.transition.state import State, TransitionReplica
from serving.policy.transition.steps import Create
from serving.values.slice_specs import SliceSpec
from tests.policy.transition.fleets import pair
from tests.policy.transition.small import HALF, mps, problem_of, slot
from tests.policy.transition.walk import contents
from tests.seeds import drawn


def spec_of(created: Create, name: str) -> SliceSpec:
    return SliceSpec(name, (), device=created.device, part=created.share)


def named(placement: Placement) -> Specs:
    """Any names."""
    return {
        device: tuple(
            SliceSpec(f"{device}/{place}", (), device=device, part=each.share)
            for place, each in enumerate(slots)
        )
        for device, slots in placement.items()
    }


@settings(max_examples=drawn(20))
@given(st.integers(0, 10**6))
def test_the_states_are_those_after_each_group_and_end_at_the_new_placement(seed: int) -> None:
    problem, old, new = pair(Random(seed), devices_max=3, models_max=3)
    found = transition(problem, old, new, 1, trials=10)
    if not isinstance(found, Transition):
        return
    way = rollout_steps(old, named(old), found, spec_of)
    assert contents(way.placement) == contents(new)
    assert {device: len(slots) for device, slots in way.placement.items()} == {
        device: len(specs) for device, specs in way.specs.items()
    }
    state, states = State.of(old), []
    for group in found.groups:
        for step in group:
            state = state.apply(step)
        states.append(_counted(state))
    counted = [_replicas(each) for each in way.states]
    assert [each for each in counted if each in states or not found.groups] == counted
    for several in way.states:
        names = [each.spec.name for each in several]
        assert len(set(names)) == len(names)


def _counted(state: State) -> dict[str, list[set[tuple[str, str, bool]]]]:
    return {
        device: [
            {
                (one.resident.model, one.resident.option.variant, _routed(each.replicas, one))
                for one in each.replicas
            }
            for each in slices
        ]
        for device, slices in state.devices.items()
    }


def _routed(replicas: tuple[TransitionReplica, ...], one: TransitionReplica) -> bool:
    """A variant that is twice on a slice is one replica there, routed where either is."""
    key = (one.resident.model, one.resident.option.variant)
    return any(each.routed for each in replicas if (each.resident.model, each.resident.option.variant) == key)


def _replicas(slices: tuple[DesiredSlice, ...]) -> dict[str, list[set[tuple[str, str, bool]]]]:
    found: dict[str, list[set[tuple[str, str, bool]]]] = {}
    for each in slices:
        there = {(one.model, one.variant, one.routed) for one in each.replicas}
        found.setdefault(each.spec.device, []).append(there)
    return found


A, B = slot("a", HALF, 100), slot("b", HALF, 100)


def test_a_model_that_moves_is_made_there_before_it_is_broken_here() -> None:
    problem = problem_of(mps(2), {"gpu-0": (A, B)})
    found = transition(problem, {"gpu-0": (A, B)}, {"gpu-0": (B,), "gpu-1": (A,)})
    assert isinstance(found, Transition)
    way = rollout_steps({"gpu-0": (A, B)}, named({"gpu-0": (A, B)}), found, spec_of)
    of_a = [
        [
            (each.spec.name, one.routed)
            for each in state
            for one in each.replicas
            if one == DesiredReplica("a", "fp16", one.routed)
        ]
        for state in way.states
    ]
    assert of_a[:2] == [[("gpu-0/0", True)], [("gpu-0/0", True), ("gpu-1/0", False)]]
    assert all(any(routed for _, routed in state) for state in of_a)
    assert of_a[-1] == [("gpu-1/0", True)]


def test_a_placement_that_stays_is_one_state() -> None:
    problem = problem_of(mps(1), {"gpu-0": (A,)})
    found = transition(problem, {"gpu-0": (A,)}, {"gpu-0": (A,)})
    assert isinstance(found, Transition)
    (state,) = rollout_steps({"gpu-0": (A,)}, named({"gpu-0": (A,)}), found, spec_of).states
    assert [each.spec.name for each in state] == ["gpu-0/0"]
