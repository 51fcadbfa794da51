"""Slices fit onto devices that are divided by amounts, and within all limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.placement.fitting import fit
from serving.policy.placement.plan import Bundle, Draft, PlacedReplica, Slot
from serving.policy.placement.problem import Demand, Option, Parts, PlacementProblem, Pool
from serving.specs import Share
from tests.policy.placement.builders import SLO_US, demand, devices, mps_pool
from tests.policy.placement.drafts import faults


def slot(
    model: str, amount: float, memory_bytes: int = 0, pressure: float = 0.0, us: float = 100_000.0
) -> Slot:
    share = Share("mps", amount)
    way = Option("gpu", share, "v", ((1, us),), memory_bytes, pressure=pressure, sensitivity=pressure)
    return Slot(share, (PlacedReplica(model, way, 1, 1e6 / us),))


def fitted(pool: Pool, slots: list[Slot], asked: tuple[Demand, ...] | None = None) -> list[Bundle]:
    models = sorted({each.residents[0].model for each in slots})
    problem = PlacementProblem(asked or tuple(demand(model, 1.0) for model in models), (pool,))
    assert isinstance(pool.division, Parts)
    bundles = fit(problem, pool, pool.division, slots)
    assert faults(problem, Draft(tuple(bundles), "")) == []
    return bundles


def test_large_slices_come_first_and_small_ones_fill_what_they_leave() -> None:
    bundles = fitted(mps_pool(9), [slot("a", amount) for amount in (10, 20, 70, 60, 30, 10)])
    assert [[each.share.amount for each in bundle.slots] for bundle in bundles] == [
        [70, 30],
        [60, 20, 10, 10],
    ]


def test_amounts_that_come_to_the_whole_but_for_rounding_fit() -> None:
    pool = Pool("gpu", "gpu", Parts("mps", 1.0), devices("gpu", 2))
    assert len(fitted(pool, [slot("a", 0.1) for _ in range(10)])) == 1


def test_what_finds_no_room_is_left_out() -> None:
    bundles = fitted(mps_pool(2), [slot("a", 60) for _ in range(3)])
    assert [len(bundle.slots) for bundle in bundles] == [1, 1]
    assert fitted(mps_pool(0), [slot("a", 60)]) == []


def test_slices_that_would_slow_each_other_down_too_much_are_apart() -> None:
    """A batch takes 0.4 of 0.45 s: beside one of pressure 0.3 it takes 0.436 s, beside two 0.472 s."""
    bundles = fitted(mps_pool(9), [slot("a", 10, pressure=0.3, us=400_000.0) for _ in range(4)])
    assert [len(bundle.slots) for bundle in bundles] == [2, 2]
    carried = bundles[0].slots[0].residents[0].capacity
    assert carried == pytest.approx(2.5 / 1.09)


def test_replicas_of_a_model_that_is_to_be_spread_are_on_as_many_devices() -> None:
    asked = (Demand("a", 1.0, SLO_US, (), domains_min=2),)
    bundles = fitted(mps_pool(9), [slot("a", 10) for _ in range(5)], asked)
    assert [len(bundle.slots) for bundle in bundles] == [4, 1]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.integers(0, 5)), max_size=12),
    st.integers(1, 5),
    st.integers(0, 3),
    st.sampled_from((0, 5, 8)),
    st.sampled_from((0.0, 0.5, 2.0)),
)
def test_no_limit_is_ever_broken(
    drawn: list[tuple[str, int, int]], count: int, slices_max: int, memory_bytes: int, pressure: float
) -> None:
    slots = [slot(model, float(amount), held, pressure) for model, amount, held in drawn]
    bundles = fitted(mps_pool(count, slices_max=slices_max, memory_bytes=memory_bytes), slots)
    there = sum(len(bundle.slots) for bundle in bundles)
    assert there == len(slots) or len(bundles) == count
