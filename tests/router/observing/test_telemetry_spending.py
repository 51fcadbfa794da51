"""What is paid is known at any moment, and whom it is for."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.observing.telemetry.counting.spending import GRAIN_US, HOUR_US, WINDOW_US, Spending

SECOND_US = 1_000_000
slices = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 5).map(float))
steps = st.lists(
    st.tuples(st.integers(0, 40), slices | st.tuples(st.sampled_from("xyz"), st.sampled_from("ab"))),
    max_size=30,
)
Step = tuple[int, dict[str, float] | tuple[str, str]]


@given(steps, st.integers(0, 400))
def test_the_total_is_what_was_held_for_as_long_as_it_was(steps: Sequence[Step], rest_s: int) -> None:
    spending, now_us, held, total = Spending(), 0, dict[str, float](), 0.0
    spending.hold({}, now_us)
    for pause_s, step in [*steps, (rest_s, {})]:
        total += sum(held.values()) * pause_s / 3600
        now_us += pause_s * SECOND_US
        if isinstance(step, dict):
            spending.hold(step, now_us)
            held = step
        else:
            spending.ran(*step, 100, now_us)
    bill = spending.bill({}, now_us)
    assert bill.total == pytest.approx(total)
    assert bill.per_hour == sum(held.values())
    assert 0 <= bill.window_us <= max(now_us, 0)
    assert all(cost >= 0 for cost in (*bill.parts.values(), *bill.lately.values()))


@given(steps, slices)
def test_the_parts_add_up_to_what_slices_with_models_cost_an_hour(
    steps: Sequence[Step], held: dict[str, float]
) -> None:
    spending, now_us = Spending(), 0
    for pause_s, step in steps:
        now_us += pause_s * SECOND_US
        if isinstance(step, dict):
            spending.hold(step, now_us)
        else:
            spending.ran(*step, 100, now_us)
    spending.hold(held, now_us)
    bill = spending.bill(dict.fromkeys(held, ("a",)), now_us)
    assert sum(bill.parts.values()) == pytest.approx(sum(held.values()))


def test_a_slice_is_paid_for_by_who_computed_on_it_lately() -> None:
    spending = Spending()
    spending.hold({"s": 4.0}, 0)
    spending.ran("s", "a", 300, SECOND_US)
    spending.ran("s", "b", 100, SECOND_US)
    here = {"s": ("a", "b", "idle")}
    assert spending.bill(here, 2 * SECOND_US).parts == {"a": 3.0, "b": 1.0, "idle": 0.0}
    for at_us in range(GRAIN_US, 2 * WINDOW_US, GRAIN_US):
        spending.ran("s", "b", 100, at_us)
    assert spending.bill(here, 2 * WINDOW_US).parts == {"a": 0.0, "b": 4.0, "idle": 0.0}


def test_a_slice_that_nobody_computes_on_is_paid_in_equal_parts_by_who_is_there() -> None:
    spending = Spending()
    spending.hold({"s": 4.0, "starting": 1.0}, 0)
    bill = spending.bill({"s": ("a", "b")}, SECOND_US)
    assert bill.parts == {"a": 2.0, "b": 2.0}
    assert bill.per_hour == 5.0


def test_what_was_held_for_a_part_of_the_window_costs_that_part() -> None:
    spending = Spending()
    spending.hold({"s": 4.0}, 0)
    spending.ran("s", "a", 100, 0)
    spending.hold({}, 30 * SECOND_US)
    bill = spending.bill({}, 120 * SECOND_US)
    assert bill.lately == pytest.approx({"a": 1.0})
    assert bill.parts == {}
    assert bill.total == pytest.approx(4.0 * 30 * SECOND_US / HOUR_US)


def test_a_long_silence_is_reckoned_by_its_own_length() -> None:
    spending = Spending()
    spending.hold({"s": 4.0}, 0)
    spending.ran("s", "a", 100, 0)
    bill = spending.bill({"s": ("a",)}, 10 * HOUR_US)
    assert bill.lately == pytest.approx({"a": 4.0})
    assert bill.total == pytest.approx(40.0)


def test_what_a_model_computes_in_its_own_process_is_of_the_slice_that_is_paid_for() -> None:
    spending = Spending()
    spending.hold({"x": 4.0}, 0)
    spending.ran("x", "a", 100, SECOND_US)
    spending.ran("x", "b", 100, SECOND_US)
    spending.ran("x+b", "b", 200, SECOND_US)
    assert spending.bill({"x": {"a", "b"}}, 2 * SECOND_US).parts == {"a": 1.0, "b": 3.0}
