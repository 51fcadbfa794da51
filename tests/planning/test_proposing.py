"""Another plan does without what is lost; where there is none, a sentence says why."""

from dataclasses import replace

import pytest

from serving.control.reconciling import START_TRIES
from serving.control.state.replicas import SliceRecord, WorkerStatus
from serving.planning.deciding import DecisionTerms
from serving.planning.proposing import NOTHING_ASKED, NOTHING_LEFT, Proposal, lost_slices, propose
from serving.planning.remaining import Outage, remaining
from serving.planning.task import PlanningTask
from serving.policy.placement.terms.problem import Parts
from serving.values.slice_specs import SliceSpec
from tests.planning.worlds import KIND, on_one, question, resident, slot

TERMS = DecisionTerms(limit_s=1.0, seconds=2.0)


def left(task: PlanningTask, outage: Outage) -> PlanningTask:
    """The task without the outage; what was placed there is gone, too."""
    problem = remaining(task.problem, outage)
    current = {name: slots for name, slots in task.current.items() if name in problem.pool_of}
    return replace(task, problem=problem, current=current)


def test_a_lost_device_leads_to_a_plan_without_it() -> None:
    task = replace(question({"a": 20.0}, devices=2), current=on_one([slot(resident("a"))]))
    found = propose(left(task, Outage({"d-0"})), "d-0 is lost", TERMS)
    assert isinstance(found, Proposal)
    assert [name for name, slots in found.decision.plan.placement.items() if slots] == ["d-1"]
    assert found.reason == "d-0 is lost"
    assert found.verdict == "nothing is in place yet"
    assert found.refused == ()
    assert found.attainment["a"] > 0.99


def test_a_model_without_a_replica_is_placed_beside_the_others() -> None:
    task = replace(question({"a": 20.0, "b": 20.0}), current=on_one([slot(resident("a"))]))
    found = propose(task, "b was on a lost slice", TERMS)
    assert isinstance(found, Proposal)
    assert found.verdict == "as it is today, b is predicted to answer 0 % in time"
    placed = {
        each.model
        for slots in found.decision.plan.placement.values()
        for one in slots
        for each in one.residents
    }
    assert placed == {"a", "b"}


def test_a_model_that_loads_nowhere_leaves_a_sentence() -> None:
    task = left(question({"a": 20.0, "b": 20.0}), Outage(failing={(KIND, "a", None)}))
    found = propose(task, "a does not load", TERMS)
    assert found == "nothing that is left can run a"


def test_models_that_fit_on_too_few_devices_leave_a_sentence() -> None:
    names = [f"m{number}" for number in range(5)]
    tight = question(dict.fromkeys(names, 900.0), division=Parts("cores", 1.0))
    found = propose(tight, "a device is lost", TERMS)
    assert isinstance(found, str)
    assert found.startswith("what is left has too little room: m")
    nowhere = left(tight, Outage(failing={(KIND, name, None) for name in names}))
    assert propose(nowhere, "", TERMS) == "nothing that is left can run m0, m1, m2, and 2 more"


def test_what_carries_the_load_stays() -> None:
    task = replace(question({"a": 20.0}), current=on_one([slot(resident("a"))]))
    found = propose(task, "a slice is lost", TERMS)
    assert isinstance(found, str)
    assert found.startswith("what is left in place stays: ")


def test_without_devices_or_load_there_is_nothing_to_plan() -> None:
    assert propose(left(question({"a": 20.0}), Outage({"d-0"})), "lost", TERMS) == NOTHING_LEFT
    assert propose(question({"a": 0.0}), "lost", TERMS) == NOTHING_ASKED
    assert propose(question({}), "lost", TERMS) == NOTHING_ASKED


@pytest.mark.parametrize(
    ("status", "failures", "lost"),
    [
        (WorkerStatus.LOST, 0, True),
        (WorkerStatus.WAITING, START_TRIES, True),
        (WorkerStatus.WAITING, START_TRIES - 1, False),
        (WorkerStatus.READY, START_TRIES, False),
    ],
)
def test_a_slice_is_lost_with_its_device_or_where_its_worker_never_starts(
    status: WorkerStatus, failures: int, lost: bool
) -> None:
    record = SliceRecord(SliceSpec("a", (0,)), status=status, failures=failures)
    assert (lost_slices({"a": record}, ()) == {"a"}) is lost
    assert lost_slices({"a+m": record}, ()) == frozenset()  # a process of its own, on the cores of a


def test_a_slice_whose_loads_end_its_worker_is_not_lost() -> None:
    record = SliceRecord(SliceSpec("a", (0,)), status=WorkerStatus.WAITING, failures=START_TRIES)
    assert lost_slices({"a": record}, {("a", "m")}) == frozenset()
