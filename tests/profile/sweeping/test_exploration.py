"""What a sweep promises: it ends, measures little where little is to be learnt, and knows the curve then."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.profile.curve import Curve, fit
from serving.profile.sweeping.exploration import (
    RUNS_MAX,
    TOLERANCE,
    Exploration,
    Trial,
    coarse_rows,
)
from tests.seeds import drawn

Truth = Callable[[int], float]
LONG = 1e9


def affine(rows: int) -> float:
    return 400 + 95.0 * rows


def stepped(rows: int) -> float:
    """Another kernel from 20 rows on."""
    return affine(rows) + (900 if rows >= 20 else 0)


def run(trial: Trial, truth: Truth, rng: Random, noise: float = 0.03) -> list[int]:
    """A trial's runs, as a worker makes them."""
    found: list[int] = []
    while not found or (len(found) < trial.repeats and sum(found) + found[-1] <= trial.budget_us):
        found.append(max(round(truth(trial.rows) * (1 + abs(rng.gauss(0, noise)))), 1))
    return found


def explore(exploration: Exploration, truth: Truth, seed: int = 1) -> list[Trial]:
    rng, trials = Random(seed), []
    while (trial := exploration.next()) is not None:
        trials.append(trial)
        exploration.take(trial, run(trial, truth, rng), [500])
        assert len(trials) < 10_000
    return trials


def curve(exploration: Exploration) -> Curve:
    return fit(exploration.points())


def cost(exploration: Exploration) -> int:
    return sum(sum(seen.latencies_us) for seen in exploration.seen.values())


@pytest.mark.parametrize("truth", [affine, stepped])
def test_what_was_not_measured_is_known_from_what_was(truth: Truth) -> None:
    exploration = Exploration(64, (0,), LONG, 3e6)
    explore(exploration, truth)
    found = curve(exploration)
    middle = 1 + 0.03 * 0.6745  # the median of the noise
    errors = sorted(abs(found.at(rows) / (middle * truth(rows)) - 1) for rows in range(1, 65))
    assert errors[-4] <= 2 * TOLERANCE  # all but those next to the step


@pytest.mark.parametrize("truth", [affine, stepped])
def test_it_takes_less_than_the_full_grid(truth: Truth) -> None:
    few, all_of_them = Exploration(64, (0,), LONG, 3e6), Exploration(64, (0,), LONG, 3e6, full=True)
    for each in (few, all_of_them):
        explore(each, truth)
    assert cost(few) < 0.8 * cost(all_of_them)
    assert {point.rows for point in few.points()} <= {point.rows for point in all_of_them.points()}


def test_the_coarse_grid_comes_first_and_one_row_before_all() -> None:
    exploration = Exploration(64, (16, 128), LONG, 3e6)
    trials = explore(exploration, affine)
    coarse = [(trial.size, trial.rows) for trial in trials[:6]]
    assert coarse == [(size, rows) for size in (128, 16) for rows in (1, 8, 64)]
    assert coarse_rows(64) == [1, 8, 64]


def test_what_tells_more_for_its_time_goes_first() -> None:
    """Of two batches that are as little known, the one that takes a tenth of the time is run again first."""
    exploration = Exploration(64, (0,), LONG, 3e6, rows=(1, 64))
    rng = Random(2)
    for rows, factor in ((1, 100), (64, 1000)):
        trial = exploration.next()
        assert trial is not None
        assert trial.rows == rows
        exploration.take(trial, [round(factor * (1 + abs(rng.gauss(0, 0.3)))) for _ in range(12)])
    following = exploration.next()
    assert following is not None
    assert following.rows == 1


def test_no_batch_is_measured_that_should_take_too_long_but_one_row() -> None:
    exploration = Exploration(64, (0,), 2000, 3e6)
    explore(exploration, affine)
    assert max(point.rows for point in exploration.points()) == 15
    alone = Exploration(64, (0,), 100, 3e6)
    explore(alone, affine)
    assert [point.rows for point in alone.points()] == [1]


def test_batches_that_are_named_are_measured_and_no_others() -> None:
    exploration = Exploration(64, (0,), LONG, 3e6, rows=(2, 9))
    explore(exploration, stepped)
    assert [point.rows for point in exploration.points()] == [2, 9]


def test_runs_end_with_certainty_not_with_a_count() -> None:
    steady, unsteady = (Exploration(1, (0,), LONG, 1e9) for _ in range(2))
    rng = Random(3)
    for exploration, noise in ((steady, 0.001), (unsteady, 0.4)):
        while (trial := exploration.next()) is not None:
            exploration.take(trial, run(trial, lambda rows: 100_000 * rows, rng, noise))
    assert steady.points()[0].count < unsteady.points()[0].count <= RUNS_MAX + 40


def test_points_have_the_quantiles_of_their_runs_and_the_yardstick_beside_them() -> None:
    exploration = Exploration(1, (0,), LONG, 3e6)
    trial = Trial(1, 0, 200, 10**9)
    exploration.take(trial, list(range(1, 201)), [7, 9, 8])
    (point,) = exploration.points()
    assert (point.p50_us, point.p95_us, point.p99_us, point.count) == (100, 190, 198, 200)
    assert point.yardstick_us == 8


@settings(max_examples=drawn(60))
@given(
    st.integers(1, 128), st.sampled_from([(0,), (16, 128)]), st.tuples(st.floats(1, 1e5), st.floats(0, 1e4)),
    st.floats(1e3, 1e6), st.booleans(), st.integers(0, 9),
)  # fmt: skip
def test_it_always_ends_within_its_time_and_has_one_row_of_every_size(
    batch_max: int, sizes: tuple[int, ...], law: tuple[float, float], point_us: float, full: bool, seed: int
) -> None:
    fixed, row = law
    exploration = Exploration(batch_max, sizes, 50_000, point_us, full=full)
    explore(exploration, lambda rows: fixed + row * rows, seed)
    assert {size for size, rows in exploration.seen if rows == 1} == set(sizes)
    assert exploration.remaining_us >= 0
    for seen in exploration.seen.values():
        slowest = max(seen.latencies_us)
        assert sum(seen.latencies_us) <= point_us + 2 * slowest


@given(st.integers(0, 60))
def test_an_exploration_that_is_taken_up_again_goes_on_where_it_was(stop: int) -> None:
    whole, rng = Exploration(64, (0,), LONG, 1e5), Random(4)
    for _ in range(stop):
        trial = whole.next()
        if trial is None:
            break
        whole.take(trial, run(trial, stepped, rng))
    again = Exploration(64, (0,), LONG, 1e5, seen=dict(whole.seen))
    assert again.next() == whole.next()
    assert again.points() == whole.points()
