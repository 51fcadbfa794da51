"""Several replicas that work off one queue leave a batch more of the SLO."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.placement.terms.check import faults
from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot
from serving.policy.placement.terms.pooling import pooled, slack_of
from serving.policy.placement.terms.problem import (
    SLACK,
    Demand,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share

ONE = Share("cores", 1.0)
OPTION = Option("cpu", ONE, "v", ((1, 1_000.0), (8, 4_000.0), (16, 7_000.0)))


def fleet(demands: tuple[Demand, ...], count: int = 4) -> PlacementProblem:
    devices = tuple(PlacementDevice(f"d{number}", f"d{number}") for number in range(count))
    return PlacementProblem(demands, (Pool("p", "cpu", Parts("cores", 1.0), devices),))


def replicas(count: int, rows: int) -> Placement:
    each = PlacedReplica("m", OPTION, rows, rows * 1e6 / OPTION.latency_us(rows))
    return {f"d{number}": (Slot(ONE, (each,)),) for number in range(count)}


@given(st.integers(1, 100))
def test_the_wait_for_the_next_start_and_the_own_batch_are_within_nine_tenths_of_the_slo(count: int) -> None:
    batch = slack_of(count)
    assert batch / count + batch == pytest.approx(0.9)


def test_one_replica_has_what_the_planner_gives_by_default() -> None:
    assert slack_of(1) == SLACK


def test_a_batch_that_is_too_long_for_one_replica_is_right_for_three() -> None:
    problem = fleet((Demand("m", 1_000.0, 11_000.0, (OPTION,)),))
    assert faults(problem, replicas(1, 16))
    assert faults(problem, replicas(2, 16))  # 7 ms of 6.6
    assert not faults(problem, replicas(3, 16))  # of 7.4


def test_a_replica_in_turns_with_others_leaves_its_model_what_it_had() -> None:
    demands = (Demand("m", 10.0, 20_000.0, (OPTION,)), Demand("n", 10.0, 20_000.0, (OPTION,)))
    problem = fleet(demands)
    one = replicas(3, 1)
    both = (PlacedReplica("m", OPTION, 1, 100.0), PlacedReplica("n", OPTION, 1, 100.0))
    assert pooled(problem, one).demand_of["m"].slack > SLACK
    assert pooled(problem, {**one, "d3": (Slot(ONE, both),)}) == problem


def test_a_slack_that_was_set_is_kept() -> None:
    problem = fleet((Demand("m", 10.0, 20_000.0, (OPTION,), slack=0.3),))
    assert pooled(problem, replicas(4, 1)) == problem


def test_batches_at_once_count_as_replicas() -> None:
    twice = replace(OPTION, processes=2)
    placement = {"d0": (Slot(ONE, (PlacedReplica("m", twice, 1, 100.0),)),)}
    problem = fleet((Demand("m", 10.0, 20_000.0, (twice,)),))
    assert pooled(problem, placement).demand_of["m"].slack == slack_of(2)
