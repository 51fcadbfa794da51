"""What `penstock check` says of the gateway's own core."""

from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.verbs.feeding import SPIN_NS, Feed, feed_lines, row_us, slowness
from serving.values.specs import ModelSpec, TensorSpec, VariantSpec


def _model(*dims: int) -> ModelSpec:
    tensor = TensorSpec("X", "FP32", (-1, *dims))
    return ModelSpec("m", Path(), (tensor,), (tensor,), (VariantSpec("a", None),), "a", 1000, 8)


def test_a_machine_is_as_slow_as_its_best_try() -> None:
    ticks = count(0, 2 * SPIN_NS)
    assert slowness(lambda: next(ticks)) == 2.0


def test_large_rows_cost_more_than_small_ones() -> None:
    small, large = row_us(_model(64), 1.0), row_us(_model(3, 224, 224), 1.0)
    assert large > 10 * small
    assert row_us(_model(64), 3.0) == pytest.approx(3 * small)


def test_an_open_dimension_counts_as_one() -> None:
    assert row_us(_model(-1), 1.0) == row_us(_model(1), 1.0)


def test_the_range_names_the_cheapest_and_the_dearest_model() -> None:
    (line,) = feed_lines([Feed("a", 50.0, ()), Feed("b", 20.0, (100.0,)), Feed("c", 2000.0, ())])
    assert "about 50,000 requests/s of b, or 500 of c," in line


def test_slices_to_spare_are_named() -> None:
    lines = [*feed_lines([Feed("a", 1000.0, (400.0, 400.0, 300.0, 300.0)), Feed("b", 1000.0, (10.0, 10.0))])]
    assert len(lines) == 2
    assert "a: 3 of its 4 slices" in lines[1]


@given(st.floats(1, 1e5), st.lists(st.floats(1, 1e6), max_size=6))
def test_slices_that_are_all_needed_are_never_named(cost_us: float, rates: list[float]) -> None:
    feed = Feed("a", cost_us, tuple(sorted(rates, reverse=True)))
    spare = len([*feed_lines([feed])]) > 1
    assert spare == (sum(feed.slices_rows_s[:-1]) >= 1e6 / cost_us and len(rates) > 1)


def test_nothing_is_said_of_no_model() -> None:
    assert not [*feed_lines([])]
