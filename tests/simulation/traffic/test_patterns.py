"""Arrivals have the rate and the burstiness that was asked for, and are the same for the same seed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.simulation.traffic.patterns import (
    RateStep,
    draw,
    due_times,
    length_s,
    read_steps,
    scale_minutes,
    scale_times,
)

SEEDS = st.integers(0, 50)
STEPS = st.lists(st.builds(RateStep, st.integers(0, 40), st.integers(1, 5)), min_size=1, max_size=4)


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(STEPS, st.sampled_from([0.0, 0.5, 1.0, 4.0]), SEEDS)
def test_arrivals_ascend_within_the_steps_and_repeat_with_the_seed(
    steps: list[RateStep], cv: float, seed: int
) -> None:
    due = draw(steps, cv, generator(seed))
    assert np.all(np.diff(due) >= 0)
    assert not len(due) or (due[0] >= 0 and due[-1] <= sum(step.seconds for step in steps))
    assert np.array_equal(due, draw(steps, cv, generator(seed)))
    start = 0.0
    for step in steps:  # nothing comes while the rate is 0
        if step.rate == 0:
            assert not np.any((due > start + 1e-9) & (due < start + step.seconds - 1e-9))
        start += step.seconds


@pytest.mark.slow
@given(st.sampled_from([0.5, 1.0, 2.0, 4.0]), SEEDS)
def test_mean_and_cv_of_the_gaps_are_those_asked_for(cv: float, seed: int) -> None:
    due = draw([RateStep(1000, 60)], cv, generator(seed))
    # the count of n gaps varies by CV / sqrt(n); five times that, and the renewal's (CV^2 - 1) / 2 surplus
    assert abs(len(due) - 60_000) < 5 * cv * 60_000**0.5 + cv**2
    gaps = np.diff(due)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)


@given(SEEDS)
def test_other_seeds_give_other_arrivals(seed: int) -> None:
    first, second = (draw([RateStep(50, 2)], 1.0, generator(one)) for one in (seed, seed + 1))
    assert not np.array_equal(first, second)


@given(STEPS)
def test_a_metronome_sends_each_step_its_exact_count(steps: list[RateStep]) -> None:
    due = draw(steps, 0.0, generator(0))
    edges = np.concatenate(([0], np.cumsum([step.seconds for step in steps]))).tolist()
    counts = np.histogram(due, edges)[0]
    assert counts.tolist() == [step.rate * step.seconds for step in steps]


@given(st.lists(st.integers(0, 600), min_size=1, max_size=6).filter(any), st.integers(1, 20))
def test_minutes_keep_their_rates_unless_a_mean_is_asked_for(counts: list[int], seconds: int) -> None:
    kept = scale_minutes(counts, seconds)
    assert [step.rate * 60 for step in kept] == pytest.approx(counts)
    scaled = scale_minutes(counts, seconds, mean=300.0)
    for steps in (kept, scaled):
        assert sum(step.seconds for step in steps) == pytest.approx(seconds)
    assert sum(step.rate * step.seconds for step in scaled) == pytest.approx(300.0 * seconds)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=20, unique=True), st.integers(1, 20))
def test_recorded_times_are_all_replayed_with_their_gaps_in_proportion(
    times: list[int], seconds: int
) -> None:
    due = scale_times(times, seconds)
    assert len(due) == len(times)
    assert (due[0], due[-1]) == (0, pytest.approx(seconds))
    factor = seconds / (max(times) - min(times))
    assert np.diff(due) == pytest.approx(np.diff(sorted(times)) * factor)


def test_files_are_read_and_their_faults_named_by_line(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    file.write_text("# requests a minute\n600\n\n1200\n")
    assert len(due_times(f"minutes@{file}", 4, 0.0, generator(0))) == 2 * 10 + 2 * 20
    assert len(due_times(f"minutes@{file}@300", 4, 0.0, generator(0))) == 1200
    assert due_times(f"times@{file}", 4, 0.0, generator(0)).tolist() == [0, 4]
    file.write_text("600\nmany\n")
    with pytest.raises(ValueError, match=r"trace\.txt:2: expected one number per line, got 'many'"):
        due_times(f"minutes@{file}", 4, 1.0, generator(0))


def test_steps_are_read_as_written_and_say_how_long_they_last() -> None:
    assert read_steps("300", 5) == [RateStep(300, 5)]
    assert read_steps("100:5+300:2.5", 9) == [RateStep(100, 5), RateStep(300, 2.5)]
    assert (length_s("100:5+300:2.5", 9), length_s("300", 9), length_s("times@x", 9)) == (7.5, 9, 9)


@pytest.mark.parametrize("pattern", ["fast", "", "100:5+", "100:5:1", "-3", "10:0", "10+20"])
def test_what_is_no_rate_is_refused_with_the_forms_that_are(pattern: str) -> None:
    with pytest.raises(ValueError, match="is no rate; expected requests a second"):
        due_times(pattern, 5, 1.0, generator(0))


def test_files_that_cannot_be_played_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("0\n0\n")
    for pattern, fault in [
        (f"minutes@{file}", "at least one count above 0"),
        (f"times@{file}", "two different instants"),
        (f"times@{file}@5", "leave out '@5'"),
        (f"minutes@{tmp_path}/none", "cannot read"),
    ]:
        with pytest.raises(ValueError, match=fault):
            due_times(pattern, 5, 1.0, generator(0))
