"""The fewest GPUs for ParvaGPU's models (SC 2024), proved; generated models are a twin that always runs."""

from pathlib import Path

import pytest

from loadtests.virtual.baselines import first_fit, mig_serving, parvagpu
from serving.policy.placement.assignment.assign import assign
from serving.policy.placement.solvers.exact import solve_exact
from serving.policy.placement.solvers.rounding import price_and_round, round_prices
from serving.policy.placement.terms.check import faults, shortfalls
from serving.policy.placement.terms.plan import Draft
from serving.policy.placement.terms.problem import Demand, PlacementProblem
from tests.policy.placement.parvagpu_data import (
    COMMITTED,
    SCENARIOS,
    data_folder,
    demands,
    generated,
    pool,
    surfaces,
    within,
)

FEWEST = {3: (2, 3, 5, 7, 12, 16), 5: (2, 3, 5, 7, 12, 15)}
"""GPUs by scenario, with at most so many processes on an instance."""
BASELINES = (first_fit, mig_serving, parvagpu)


@pytest.fixture(scope="module")
def folder() -> Path:
    return data_folder()


def proved(problem: PlacementProblem) -> Draft:
    """Of exact and quick solver the same number of GPUs; legal, with nothing short."""
    draft = solve_exact(problem, {}, 20.0)
    assert draft is not None
    assert draft.optimal
    placement = assign(problem, draft, {})
    assert (faults(problem, placement), shortfalls(problem, placement)) == ([], [])
    assert len(price_and_round(problem).bundles) == len(draft.bundles) >= draft.bound
    return draft


@pytest.mark.parametrize("processes_max", FEWEST)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_fewest_gpus_of_each_scenario(folder: Path, scenario: int, processes_max: int) -> None:
    problem = PlacementProblem(demands(folder, scenario, processes_max), (pool(20),))
    fewest = len(proved(problem).bundles)
    assert fewest == FEWEST[processes_max][scenario - 1] <= COMMITTED[scenario - 1]
    assert all(len(each.solve(problem).bundles) >= fewest for each in BASELINES)


@pytest.mark.slow
def test_one_gpu_less_than_the_fewest_leaves_something_out(folder: Path) -> None:
    """Without integers 14.7 would do."""
    problem = PlacementProblem(demands(folder, 6, 3), (pool(15),))
    draft = price_and_round(problem)
    assert draft.bound < 15
    placement = assign(problem, draft, {})
    assert faults(problem, placement) == []
    assert shortfalls(problem, placement) != []


@pytest.mark.slow
@pytest.mark.parametrize(("count", "gpus"), [(100, 300.0), (1_000, 3_000.0), (3_000, 10_200.0)])
def test_large_fleets_are_within_three_per_cent_of_the_relaxation(
    folder: Path, count: int, gpus: float
) -> None:
    profiles = {name: within(options, 3) for name, options in surfaces(folder).items()}
    hold(generated(7, count, gpus, profiles))


def hold(asked: tuple[Demand, ...]) -> None:
    problem = PlacementProblem(asked, (pool(5 * len(asked)),))
    draft, least = round_prices(problem)
    used = len(draft.bundles)
    placement = assign(problem, draft, {})
    assert shortfalls(problem, placement) == []
    assert draft.bound <= least <= used <= max(least + 1, 1.001 * least)
    assert used <= 1.03 * draft.bound
    assert used <= len(parvagpu.solve(problem).bundles)


@pytest.mark.parametrize("seed", range(3))
def test_the_fewest_gpus_of_generated_models(seed: int) -> None:
    """The twin of the scenarios."""
    problem = PlacementProblem(generated(seed, 8, 6.0), (pool(20),))
    fewest = len(proved(problem).bundles)
    assert all(len(each.solve(problem).bundles) >= fewest for each in BASELINES)


@pytest.mark.slow
def test_large_fleets_of_generated_models_are_within_three_per_cent() -> None:
    """The twin of the large fleets."""
    hold(generated(7, 300, 1_000.0))
