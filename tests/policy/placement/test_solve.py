"""Plans come better and better, and each is one that can be carried out."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.solve import Task, plans, rank
from serving.policy.placement.terms.check import faults, shortfalls
from serving.policy.placement.terms.geometry import known_geometry
from serving.policy.placement.terms.moves import moves
from serving.policy.placement.terms.plan import PlacementPlan
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share

CPU, GPU = "cpu-x", "gpu-nvidia-h200"
GEOMETRY = known_geometry(GPU)
LIMIT_S = 20.0


def option(kind: str, share: str, row_us: float) -> Option:
    return Option(
        kind, Share.parse(share), "v", tuple((rows, 500 + row_us * rows) for rows in (1, 2, 4, 8, 16))
    )


def cpu(count: int, cores: float = 4.0, price: float = 1.0) -> Pool:
    devices = tuple(PlacementDevice(f"cpu-{number}", f"host-{number}") for number in range(count))
    return Pool("cpus", CPU, Parts("cores", cores), devices, price)


def gpu(count: int, price: float = 4.0) -> Pool:
    assert GEOMETRY
    devices = tuple(PlacementDevice(f"gpu-{number}", f"box-{number}") for number in range(count))
    return Pool("gpus", GPU, Instances(GEOMETRY), devices, price)


def demand(model: str, rate: float, slo_ms: float = 50.0, row_us: float = 1_000.0) -> Demand:
    on_cpu = [option(CPU, f"cores:{cores}", row_us / cores**0.8) for cores in (1, 2, 4)]
    on_gpu = [
        option(GPU, f"mig:{name}", row_us / 30 / int(name[0]) ** 0.9)
        for name in ("1g.18gb", "3g.71gb", "7g.141gb")
    ]
    return Demand(model, rate, slo_ms * 1e3, (*on_cpu, *on_gpu))


rates = st.lists(st.sampled_from((0.0, 5.0, 200.0, 1_500.0, 20_000.0)), max_size=4)


def solved(problem: PlacementProblem) -> list[PlacementPlan]:
    return list(plans(Task(problem, limit_s=LIMIT_S)))


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(rates, st.integers(0, 3), st.integers(0, 2))
def test_every_plan_is_legal_carries_what_it_says_and_is_better_than_the_one_before(
    asked: list[float], cpus: int, gpus: int
) -> None:
    demands = tuple(demand(f"m{number}", rate) for number, rate in enumerate(asked))
    problem = PlacementProblem(demands, (*([cpu(cpus)] if cpus else []), *([gpu(gpus)] if gpus else [])))
    found = solved(problem)
    assert found
    for plan in found:
        assert not faults(problem, plan.placement)
        assert bool(plan.short) == bool(shortfalls(problem, plan.placement))
        if not plan.short:
            assert plan.cost >= plan.bound * (1 - 1e-6)
    for worse, better in pairwise(found):
        assert rank(problem, better) < rank(problem, worse)


@pytest.mark.slow
def test_a_fleet_that_is_too_small_has_a_plan_too_and_says_what_is_missing() -> None:
    (*_, last) = solved(PlacementProblem((demand("m", 1e6),), (cpu(1),)))
    assert 0 < last.short["m"] < 1e6


def test_no_device_no_plan_of_anything() -> None:
    (*_, last) = solved(PlacementProblem((demand("m", 1.0),), ()))
    assert (last.placement, last.short) == ({}, {"m": 1.0})


def test_nothing_asked_nothing_used() -> None:
    (first, *_) = solved(PlacementProblem((), (cpu(2), gpu(1))))
    assert (first.placement, first.cost) == ({}, 0.0)


@pytest.mark.slow
def test_a_dear_gpu_is_used_only_where_cheap_processors_cannot_do_it() -> None:
    pools = (cpu(2), gpu(1, price=40.0))
    few, many = demand("m", 200.0), demand("m", 20_000.0)
    assert all(name.startswith("cpu") for name in solved(PlacementProblem((few,), pools))[-1].placement)
    assert any(name.startswith("gpu") for name in solved(PlacementProblem((many,), pools))[-1].placement)


def test_what_is_in_place_already_stays() -> None:
    problem = PlacementProblem(tuple(demand(f"m{number}", 700.0) for number in range(3)), (cpu(4), gpu(2)))
    first = solved(problem)[-1]
    again = list(plans(Task(problem, first.placement, LIMIT_S)))[-1]
    assert not moves(first.placement, again.placement).started


def test_many_replicas_run_larger_batches_than_one_and_so_are_fewer() -> None:
    batches = tuple((rows, 2_000 + 500.0 * rows) for rows in (1, 2, 4, 8, 16, 32))
    one = Option(CPU, Share("cores", 4.0), "v", batches)
    problem = PlacementProblem((Demand("m", 15_000.0, 20_000.0, (one,)),), (cpu(40),))
    first, *_, last = solved(problem)
    (alone,) = {slot.residents[0].rows for slots in first.placement.values() for slot in slots}
    (pooled,) = {slot.residents[0].rows for slots in last.placement.values() for slot in slots}
    assert alone < pooled
    assert len(last.placement) < len(first.placement)


def test_a_model_in_two_domains_is_in_two_devices_though_one_would_do() -> None:
    asked = replace(demand("m", 5.0), domains_min=2)
    assert len(solved(PlacementProblem((asked,), (cpu(3),)))[-1].placement) == 2


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_pools_and_demands_changes_no_cost(order: int) -> None:
    demands = tuple(demand(f"m{number}", rate) for number, rate in enumerate((5.0, 900.0, 9_000.0)))
    pools = (cpu(3), gpu(2))
    assert (
        solved(PlacementProblem(demands[::order], pools[::order]))[-1].cost
        == solved(PlacementProblem(demands, pools))[-1].cost
    )
