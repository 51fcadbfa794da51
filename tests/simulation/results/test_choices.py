"""Which variants answered: the figures of a report are those that the engine counts."""

from collections import Counter
from dataclasses import replace
from math import isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.virtual_world import VirtualModel, World, offer
from serving.simulation.devices.device import ExactDevice
from serving.simulation.engine import Simulation
from serving.simulation.results.choices import choice, course
from serving.simulation.results.series import Chronicle, Span, series
from serving.simulation.tally import mean_accuracy
from serving.values.objectives import Needs
from serving.values.specs import BatchingSpec

ACCURACY = {"low": 0.9, "top": 0.99}
CHOOSING = VirtualModel(50_000, variants=(("low", 0.9, 300, 1000), ("top", 0.99, 1500, 4000)))
WORLD = World(
    BatchingSpec("slo"),
    unlike=(CHOOSING, VirtualModel(100_000, 500, 500)),
    row_mix=((1, 0.7), (90, 0.3)),
)
SECONDS = 1.0
ALL = Span(0, 10_000_000)  # with what runs after the last arrival


@given(st.sampled_from([20, 60, 200]), st.integers(0, 20))
@settings(max_examples=6)
def test_shares_accuracy_and_course_are_those_of_the_rows_that_the_engine_counts(
    rate: int, seed: int
) -> None:
    arrivals = list(offer(WORLD, rate, SECONDS, seed))
    tally = Simulation(WORLD.site(), ExactDevice(WORLD.truths())).play(arrivals)
    run = Chronicle(WORLD.site(), ExactDevice(WORLD.truths()))
    run.play(arrivals)
    model = run.site.served[0]
    found = choice([run.by_variant()], 0, model, ALL)
    rows = {name: count for (of, name), count in tally.answered_rows.items() if of == "m0"}
    total = sum(rows.values())
    assert found.shares == pytest.approx({name: count / total for name, count in rows.items()})
    assert [*found.shares] == [name for name in ("top", "low") if name in rows]
    mean = sum(count * ACCURACY[name] for name, count in rows.items()) / (total or 1)
    assert found.accuracy == pytest.approx(mean) if total else isnan(found.accuracy)
    downgraded = sum(found.downgrades.values()) * total
    assert downgraded == pytest.approx(tally.downgraded_rows.total())
    seen = series(run.columns(), 0, SECONDS)
    over_time = course(run.by_variant(), 0, model, seen)
    assert [*over_time.rates] == ["top", "low"]
    for name, rates in over_time.rates.items():
        assert sum(rates) * seen.bin_s == pytest.approx(rows.get(name, 0))
    for number, accuracy in enumerate(over_time.accuracy):
        parts = {name: rates[number] for name, rates in over_time.rates.items()}
        weights = [*parts.values()] if any(parts.values()) else None
        expected = np.average([ACCURACY[name] for name in parts], weights=weights) if weights else np.nan
        assert accuracy == pytest.approx(expected, nan_ok=True)


def test_of_one_variant_alone_the_accuracy_is_known_where_it_was_measured() -> None:
    run = Chronicle(WORLD.site(), ExactDevice(WORLD.truths()))
    run.play(offer(WORLD, 50, SECONDS, 0))
    seen = series(run.columns(), 1, SECONDS)
    plain = run.site.served[1]
    assert choice([run.by_variant()], 1, plain, ALL).shares == {"v": 1.0}
    assert isnan(choice([run.by_variant()], 1, plain, ALL).accuracy)
    measured = replace(
        plain, spec=replace(plain.spec, variants=(replace(plain.spec.variants[0], accuracy=0.5),))
    )
    assert choice([run.by_variant()], 1, measured, ALL).accuracy == 0.5
    assert set(course(run.by_variant(), 1, measured, seen).accuracy) == {0.5}


def test_what_came_outside_the_span_does_not_count() -> None:
    run = Chronicle(WORLD.site(), ExactDevice(WORLD.truths()))
    run.play(offer(WORLD, 100, SECONDS, 0))
    model, kept = run.site.served[0], run.by_variant()
    assert choice([kept], 0, model, Span(2_000_000, 3_000_000)).shares == {}
    halves = [choice([kept], 0, model, Span(at_us, at_us + 500_000)) for at_us in (0, 500_000)]
    twice = choice([kept, kept], 0, model, ALL)
    assert twice.shares == choice([kept], 0, model, ALL).shares
    low, high = sorted(each.accuracy for each in halves)
    assert low <= twice.accuracy <= high


def test_variants_of_unknown_accuracy_do_not_count_in_the_mean() -> None:
    rows = Counter({("m", "a"): 30, ("m", "b"): 10, ("m", "c"): 60})
    assert mean_accuracy(rows, {("m", "a"): 0.9, ("m", "b"): 0.5}) == pytest.approx(0.8)
    assert isnan(mean_accuracy(rows, {}))


def test_a_model_that_is_fixed_to_one_of_its_variants_shows_what_was_pinned() -> None:
    world = replace(WORLD, unlike=(replace(CHOOSING, needs=Needs()),), row_mix=((1, 1.0),))
    run = Chronicle(world.site(), ExactDevice(world.truths()))
    arrivals = list(offer(world, 100, SECONDS, 0))
    pinned = [each._replace(variant="top") if place % 2 else each for place, each in enumerate(arrivals)]
    run.play(pinned)
    found = choice([run.by_variant()], 0, run.site.served[0], ALL)
    assert found.shares == {"top": pytest.approx(0.5, abs=0.01), "low": pytest.approx(0.5, abs=0.01)}
    assert found.downgrades == {}
