"""What a way back promises: from any step to the old placement, whatever was carried out at the same time.

That it passes only states that keep all promises is shown with the way there (`test_planning.py`)."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.transition import State, Transition, rollback, transition, violations
from serving.policy.transition.steps import Drain, LoadStep, RouteStep, UnloadStep
from tests.policy.transition.fleets import pair
from tests.policy.transition.walk import is_at_rest, states

BUSY = 7  # a seed of which both placements have something


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_it_leads_back_whichever_steps_of_the_failed_group_were_done(seed: int, random: Random) -> None:
    problem, old, new = pair(Random(seed), devices_max=4)
    found = transition(problem, old, new, 3, trials=0)
    if not isinstance(found, Transition) or not found.groups:
        return
    place = random.randrange(len(found.groups))
    first = sum(len(group) for group in found.groups[:place])
    numbers = list(range(first, first + len(found.groups[place])))
    failed_at = random.choice(numbers)
    others = [each for each in numbers if each != failed_at]
    done = random.sample(others, random.randint(0, len(others)))
    state = states(State.of(old), Transition(found.groups[:place]))[-1]
    for number in done:
        state = state.apply(found.steps[number])
    back = states(state, rollback(found, failed_at, done))
    assert is_at_rest(back[-1], old)
    assert not [each for state in back for each in violations(problem, state, old, new, 3)]


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_the_way_back_of_a_way_back_leads_on(seed: int) -> None:
    problem, old, new = pair(Random(seed), devices_max=3)
    found = transition(problem, old, new, 3, trials=0)
    if not isinstance(found, Transition) or not found.groups:
        return
    last = len(found.steps) - 1
    back = rollback(found, last)
    there = states(State.of(old), found)[last]
    assert is_at_rest(states(there, back)[-1], old)
    if back.groups:
        on = rollback(back, len(back.steps) - 1)
        before_last = states(there, back)[-2]
        assert states(before_last, on)[-1].routed == there.routed


def test_a_failed_first_step_leaves_nothing_to_undo() -> None:
    problem, _, new = pair(Random(BUSY))
    found = transition(problem, {}, new)
    assert isinstance(found, Transition)
    assert rollback(found, 0) == Transition()


def test_what_was_routed_is_drained_before_it_is_unloaded_and_what_was_drained_is_loaded_again() -> None:
    problem, old, _ = pair(Random(BUSY))
    up = transition(problem, {}, old, 9)
    down = transition(problem, old, {}, 9)
    assert isinstance(up, Transition)
    assert isinstance(down, Transition)
    back = [type(group[0]) for group in rollback(up, len(up.steps) - 1, range(len(up.steps))).groups]
    assert back[:3] == [RouteStep, Drain, UnloadStep]
    back = [type(group[0]) for group in rollback(down, len(down.steps) - 1).groups]
    assert Drain not in back
    assert back.index(LoadStep) < back.index(RouteStep)


@pytest.mark.parametrize("failed_at", [-1, 10**6])
def test_a_step_that_is_not_there_cannot_have_failed(failed_at: int) -> None:
    problem, _, new = pair(Random(BUSY))
    found = transition(problem, {}, new)
    assert isinstance(found, Transition)
    with pytest.raises(IndexError, match=f"there is no step {failed_at}"):
        rollback(found, failed_at)
