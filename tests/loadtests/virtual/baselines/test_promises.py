"""What every baseline promises, as its plans are compared with ours: each could be carried out."""

from collections import Counter
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines import first_fit, gpulet, mig_serving, nexus, parvagpu
from serving.policy.placement.terms.problem import PlacementProblem
from tests.policy.placement.drafts import faults, short
from tests.policy.placement.small_fleets import MIG, PARTS, problems
from tests.seeds import drawn

EACH = pytest.mark.parametrize(
    ("method", "how"),
    [
        (first_fit, MIG),
        (parvagpu, MIG),
        (mig_serving, MIG),
        (first_fit, PARTS),
        (gpulet, PARTS),
        (nexus, PARTS),
    ],
    ids=lambda each: each.__name__.rpartition(".")[2] if isinstance(each, ModuleType) else each,
)
FLEETS = {how: problems((how,)) | problems((how, how), prices=(0.0, 1.0, 3.0)) for how in (MIG, PARTS)}


def holds(method: ModuleType, problem: PlacementProblem) -> None:
    """Every bundle is legal, and what is short had no device left that it could be on."""
    draft = method.solve(problem)
    assert faults(problem, draft) == []
    used = Counter(bundle.pool for bundle in draft.bundles)
    for demand in short(problem, draft):
        for pool in problem.pools:
            fitting = replace(demand, options=tuple(each for each in demand.options if pool.fits(each)))
            if fitting.offers:
                assert used[pool.name] == len(pool.devices)


@EACH
@given(data=st.data())
@settings(max_examples=8)
def test_plans_are_legal_and_short_only_of_devices(method: ModuleType, how: str, data: st.DataObject) -> None:
    holds(method, data.draw(FLEETS[how]))


@pytest.mark.slow
@EACH
@given(data=st.data())
@settings(max_examples=drawn(80))
def test_many_plans_are_legal_and_short_only_of_devices(
    method: ModuleType, how: str, data: st.DataObject
) -> None:
    holds(method, data.draw(FLEETS[how]))


@EACH
@given(data=st.data())
@settings(max_examples=6)
def test_the_same_problem_has_the_same_answer(method: ModuleType, how: str, data: st.DataObject) -> None:
    problem = data.draw(FLEETS[how])
    again = PlacementProblem(problem.demands, problem.pools)
    draft = method.solve(problem)
    assert method.solve(again) == draft
    assert (draft.method, draft.bound, draft.optimal) == (method.__name__.rpartition(".")[2], 0.0, False)


@EACH
@given(data=st.data())
@settings(max_examples=6)
def test_nothing_is_used_where_nothing_is_asked(method: ModuleType, how: str, data: st.DataObject) -> None:
    problem = data.draw(FLEETS[how])
    idle = replace(problem, demands=tuple(replace(each, rate=0.0) for each in problem.demands))
    assert method.solve(idle).bundles == ()
    assert method.solve(replace(problem, demands=())).bundles == ()
    assert method.solve(replace(problem, pools=())).bundles == ()


@pytest.mark.parametrize(
    ("method", "other"), [(parvagpu, PARTS), (mig_serving, PARTS), (gpulet, MIG), (nexus, MIG)]
)
@given(data=st.data())
@settings(max_examples=5)
def test_devices_that_a_method_knows_nothing_of_are_left_alone(
    method: ModuleType, other: str, data: st.DataObject
) -> None:
    assert method.solve(data.draw(FLEETS[other])).bundles == ()
