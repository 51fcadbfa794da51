"""Plans of many models keep to what there is, shed only where they must, and are near the bound."""

from math import inf

import numpy as np
import pytest

from loadtests.scaling.scaling_plan import draw
from serving.policy.scaling.slow.objective_value import carry, worth
from serving.policy.scaling.slow.problem import make_problem
from serving.policy.scaling.slow.rounding import round_covers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slices", "cost_max", "shed"),
    [(10.0, inf, False), (0.5, inf, False), (0.2, inf, True), (10.0, 0.95, True)],
)
def test_hundreds_of_models_are_within_half_a_percent_of_the_bound(
    slices: float, cost_max: float, shed: bool
) -> None:
    task, expected = draw(400, 3, slices, cost_max)
    problem = make_problem(task, [each.high for each in expected])
    rounded = round_covers(problem)
    used = np.bincount(problem.offers.kind, rounded.replicas, len(task.kinds))
    assert (used <= problem.kinds.count).all()
    assert used @ problem.kinds.paid <= task.cost_max
    assert worth(problem, rounded.replicas) <= rounded.bound * 1.005
    assert shed or not carry(problem, rounded.replicas).shed.any()
    assert (round_covers(problem).replicas == rounded.replicas).all()
