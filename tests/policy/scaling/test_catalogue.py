"""Every policy that may be named can be made, and each model has its own."""

import pytest

from serving.policy.scaling.catalogue import POLICIES, create_policy
from serving.values.objectives import SCALING_POLICIES, ScalingSpec
from tests.policy.scaling.closed_loop import EACH, Loop


def test_what_may_be_named_is_what_there_is() -> None:
    assert set(POLICIES) == set(SCALING_POLICIES)


@pytest.mark.parametrize("name", SCALING_POLICIES)
@pytest.mark.parametrize("target", [None, 0.5])
def test_each_has_its_own_state_and_goes_up_under_a_load_that_is_too_much(
    name: str, target: float | None
) -> None:
    policy = create_policy(ScalingSpec(name, target))
    assert policy is not create_policy(ScalingSpec(name, target))
    loop = Loop(policy, least=2, most=9, ready=2)
    for _ in range(900):
        loop.second(100)
    assert max(loop.counts) >= 100 / EACH


def test_fixed_is_always_the_most() -> None:
    loop = Loop(create_policy(ScalingSpec("fixed")), most=7)
    assert loop.second(0).count == loop.second(500).count == 7
