"""Published algorithms on the same problem, for comparison: their devices and costs."""

from serving.policy.placement.assign import assign
from serving.policy.placement.baselines.catalogue import BASELINES
from serving.policy.placement.check import shortfalls
from serving.policy.placement.plan import cost
from serving.policy.placement.problem import PlacementProblem


def compared(problem: PlacementProblem) -> dict[str, tuple[int, float]]:
    """Return (devices, cost) by the name of each algorithm that carries all rates and keeps failure domains.

    No algorithm here knows of failure domains, and some cannot divide every kind of device.
    """
    found = {}
    for name, solve in BASELINES.items():
        placement = assign(problem, solve(problem), {})
        if not shortfalls(problem, placement):
            found[name] = (len(placement), cost(problem, placement))
    return found
