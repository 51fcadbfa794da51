"""The figures of a report are those of the run: nothing is counted twice, and nothing is left out."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.virtual_world import VirtualModel, World, offer
from serving.simulation.devices.device import ExactDevice
from serving.simulation.engine import Simulation
from serving.simulation.results.series import (
    ENDINGS,
    IN_TIME,
    LATE,
    Chronicle,
    Span,
    busy_slices,
    figures,
    series,
)
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import COMPLETED

MIXED = World(BatchingSpec("slo"), slices=2, unlike=(VirtualModel(25_000), VirtualModel(100_000)))
SECONDS = 2.0
ALL = Span(0, int(SECONDS * 1e6))


def chronicle(world: World, rate: float, seed: int) -> Chronicle:
    run = Chronicle(world.site(), ExactDevice(world.truths()))
    run.play(offer(world, rate, SECONDS, seed))
    return run


@pytest.mark.slow
@settings(max_examples=15)
@given(st.sampled_from(["slo", "static"]), st.sampled_from([50, 400, 900]), st.integers(0, 20))
def test_figures_are_those_that_the_engine_counts(policy: str, rate: int, seed: int) -> None:
    world = replace(MIXED, policy=BatchingSpec(policy))
    run = Simulation(world.site(), ExactDevice(world.truths()))
    tally = run.play(offer(world, rate, SECONDS, seed))
    columns = chronicle(world, rate, seed).columns()
    total = figures([columns], None, 2, ALL)
    assert total.offered == tally.offered == sum(total.endings.values())
    assert total.endings.get(IN_TIME, 0) == tally.good
    assert total.endings.get(LATE, 0) == tally.late
    refused = {each.reason.value: count for each, count in tally.outcomes.items() if each is not COMPLETED}
    assert {name: count for name, count in total.endings.items() if name not in (IN_TIME, LATE)} == refused
    assert set(total.endings) <= set(ENDINGS)
    waits_ms = np.array(tally.waits_us) / 1000
    assert total.p99_ms == pytest.approx(np.percentile(waits_ms, 99, method="inverted_cdf"))
    unbounded = figures([columns], None, 2, Span(0, 1 << 60))
    assert unbounded.batches == tally.batches
    assert unbounded.batch_rows == pytest.approx(tally.rows / tally.batches)
    assert unbounded.busy * unbounded.seconds * 2e6 == pytest.approx(tally.busy_us)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.sampled_from([50, 400, 900]), st.integers(0, 20))
def test_models_add_up_to_all_and_bins_to_the_run(rate: int, seed: int) -> None:
    columns = chronicle(MIXED, rate, seed).columns()
    total = figures([columns], None, 2, ALL)
    each = [figures([columns], number, 2, ALL) for number in range(2)]
    assert sum((Counter(one.endings) for one in each), Counter[str]()) == Counter(total.endings)
    assert sum(one.busy for one in each) == pytest.approx(total.busy)
    assert np.mean(busy_slices([columns], 2, ALL)) == pytest.approx(total.busy)
    assert total.busy <= 1
    for number, one in enumerate(each):
        course = series(columns, number, SECONDS)
        assert sum(course.offered) * course.bin_s == pytest.approx(one.offered)
        assert sum(course.in_time) * course.bin_s == pytest.approx(one.endings.get(IN_TIME, 0))
        assert np.nanmax(course.p99_ms) >= one.p99_ms


def test_runs_are_pooled_and_each_is_told() -> None:
    runs = [chronicle(MIXED, 900, seed).columns() for seed in (1, 2)]
    both = figures(runs, None, 2, ALL)
    single = [figures([run], None, 2, ALL) for run in runs]
    assert both.by_run == tuple(one.attainment for one in single)
    assert both.offered == sum(one.offered for one in single)
    assert both.goodput == pytest.approx(np.mean([one.goodput for one in single]))
    assert both.busy == pytest.approx(np.mean([one.busy for one in single]))


def test_only_what_lies_in_the_span_counts() -> None:
    columns = chronicle(MIXED, 200, 1).columns()
    halves = [figures([columns], None, 2, span) for span in (Span(0, 1_000_000), Span(1_000_000, 2_000_000))]
    whole = figures([columns], None, 2, ALL)
    assert sum(half.offered for half in halves) == whole.offered
    assert sum(half.busy for half in halves) == pytest.approx(2 * whole.busy)


def test_of_nothing_there_are_no_figures() -> None:
    none = figures([chronicle(MIXED, 0, 1).columns()], None, 2, ALL)
    assert (none.offered, none.goodput, none.busy, none.endings) == (0, 0, 0, {})
    assert all(np.isnan([none.attainment, none.p50_ms, none.p99_ms, none.batch_rows, *none.by_run]))
