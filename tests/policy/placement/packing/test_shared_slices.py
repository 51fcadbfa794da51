"""Several models on one slice: what is promised of the batches that they take turns in."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.packing.shared_slices import (
    NEAR,
    Stack,
    Turn,
    batches,
    settle,
    settle_all,
    stretch,
)
from serving.policy.placement.terms.check import cycle_us, device_faults
from serving.policy.placement.terms.plan import Slot
from serving.policy.placement.terms.problem import Option, PlacementProblem
from serving.values.slice_specs import Share
from tests.policy.placement.parts_fleets import flat, option, pool
from tests.seeds import drawn


@st.composite
def options(draw: st.DrawFn) -> Option:
    """Some rows of 1 to 6 were measured, latencies do not fall."""
    rows = sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=3)))
    took_us = sorted(draw(st.integers(1, 20)) * 1000.0 for _ in rows)
    sensitivity = draw(st.sampled_from((0.0, 0.5)))
    return option(50.0, *zip(rows, took_us, strict=True), sensitivity=sensitivity)


@st.composite
def stacks(draw: st.DrawFn, least: int = 1, rate_min: int = 0) -> Stack:
    return tuple(
        Turn(
            f"m{place}",
            draw(options()),
            float(draw(st.integers(rate_min, 150))),
            draw(st.integers(2, 120)) * 1000.0,
        )
        for place in range(draw(st.integers(least, 3)))
    )


PRESSURES = st.sampled_from((0.0, 1.0))


def carries(stack: Stack, rows: tuple[int, ...], pressure: float, times: float = 1.0) -> bool:
    """Written down as it is defined: in a cycle one batch of each."""
    took_us = [
        turn.option.latency_us(count) * (1 + turn.option.sensitivity * pressure)
        for turn, count in zip(stack, rows, strict=True)
    ]
    return all(
        sum(took_us) + own_us <= turn.bound_us * (1 + NEAR)
        and count * 1e6 / sum(took_us) >= times * turn.rate * (1 - NEAR)
        for turn, count, own_us in zip(stack, rows, took_us, strict=True)
    )


def every_batch(stack: Stack) -> list[tuple[int, ...]]:
    return [*product(*(range(1, turn.option.curve[-1][0] + 1) for turn in stack))]


@pytest.mark.slow
@given(stacks(), PRESSURES)
@settings(max_examples=drawn(400))
def test_they_are_the_smallest_batches_that_carry_all_in_time_or_there_are_none(
    stack: Stack, pressure: float
) -> None:
    solutions = [rows for rows in every_batch(stack) if carries(stack, rows, pressure)]
    found = batches(stack, pressure)
    assert (found is None) == (not solutions)
    if found:
        assert found in solutions
        assert all(mine <= other for rows in solutions for mine, other in zip(found, rows, strict=True))


@pytest.mark.slow
@given(stacks(), PRESSURES)
@settings(max_examples=drawn(400))
def test_stretched_all_carry_the_same_multiple_and_no_batches_carry_more_than_a_percent_more(
    stack: Stack, pressure: float
) -> None:
    least, found = batches(stack, pressure), stretch(stack, pressure)
    assert (found is None) == (least is None)
    if found and least and any(turn.rate for turn in stack):
        assert carries(stack, found, pressure)
        whole_us = sum(
            turn.option.latency_us(count) * (1 + turn.option.sensitivity * pressure)
            for turn, count in zip(stack, found, strict=True)
        )
        times = min(
            count * 1e6 / whole_us / turn.rate for turn, count in zip(stack, found, strict=True) if turn.rate
        )
        assert not any(carries(stack, rows, pressure, 1.01 * times) for rows in every_batch(stack))


@given(stacks(least=2, rate_min=1), st.booleans())
@settings(max_examples=drawn(25))
def test_a_settled_slice_is_legal_and_carries_the_rates(stack: Stack, stretched: bool) -> None:
    slot = settle(stack, 0.0, stretched)
    if slot is None:
        return
    demands = tuple(flat(turn.model, turn.rate, turn.option, slo_us=turn.bound_us / 0.9) for turn in stack)
    there = pool()
    assert [*device_faults(PlacementProblem(demands, (there,)), there, [slot])] == []
    assert all(
        each.capacity >= turn.rate * (1 - NEAR) for each, turn in zip(slot.residents, stack, strict=True)
    )


def test_a_model_alone_runs_the_measured_batch_with_the_most_throughput() -> None:
    way = option(50.0, (1, 10_000.0), (4, 20_000.0), (8, 60_000.0))
    slot = settle((Turn.of(flat("a", 50.0, way), way, 50.0),))
    assert slot is not None
    assert [(each.rows, each.capacity) for each in slot.residents] == [(4, 200.0)]
    assert settle((Turn.of(flat("a", 50.0, way), way, 201.0),)) is None
    tight = flat("a", 50.0, way, slo_us=40_000.0)  # a batch may take 18 ms
    slot = settle((Turn.of(tight, way, 50.0),))
    assert slot is not None
    assert slot.residents[0].rows == 1


def test_neighbours_count() -> None:
    """Alone a batch of 4 takes 20 of 22.5 ms, beside a pressure of 1 it takes 30, and one of 1 takes 15."""
    way = option(50.0, (1, 10_000.0), (4, 20_000.0), pressure=1.0, sensitivity=0.5)
    turn = Turn.of(flat("a", 50.0, way, slo_us=50_000.0), way, 0.0)
    alone, beside = settle((turn,)), settle((turn,), 1.0)
    assert alone is not None
    assert beside is not None
    assert (alone.residents[0].rows, beside.residents[0].rows) == (4, 1)
    both = settle_all([(turn,), (turn,)])
    assert both == (beside, beside)
    assert settle_all([(turn,)] * 4) == (None,) * 4


def test_two_models_share_a_slice_in_a_cycle_of_both_batches() -> None:
    """A cycle of 40 ms carries 2 * 50 rows/s; for 51 it would have to be larger than was measured."""
    way = option(100.0, (1, 15_000.0), (2, 20_000.0))
    pair = [Turn.of(flat(name, 50.0, way), way, 50.0) for name in "ab"]
    slot = settle(tuple(pair))
    assert slot is not None
    assert cycle_us(slot, ()) == (40_000.0, (20_000.0, 20_000.0))
    assert [each.capacity for each in slot.residents] == [50.0, 50.0]
    assert batches(tuple(Turn(each.model, way, 51.0, each.bound_us) for each in pair)) is None
    assert batches(tuple(Turn(each.model, way, 50.0, 59_000.0) for each in pair)) is None


def test_what_runs_batches_at_once_shares_no_slice() -> None:
    way = Option("gpu", Share("mps", 50.0), "fp32", ((1, 1000.0),), processes=2)
    turn = Turn.of(flat("a", 1.0, way), way, 1500.0)
    other = Turn.of(flat("b", 1.0, option(50.0, (1, 1000.0))), option(50.0, (1, 1000.0)), 1.0)
    assert batches((turn, other)) is None
    slot = settle((turn,))
    assert slot is not None
    assert slot.residents[0].capacity == pytest.approx(2000.0)


def test_nothing_asked_takes_the_smallest_batches() -> None:
    way = option(50.0, (2, 1000.0), (8, 2000.0))
    pair = tuple(Turn.of(flat(name, 0.0, way), way, 0.0) for name in "ab")
    assert batches(pair) == stretch(pair) == (1, 1)
    assert isinstance(settle(pair), Slot)
