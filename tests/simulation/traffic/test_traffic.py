"""Generated traffic has the rates, bursts and mixes that were asked for, the same for the same seed."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.simulation.traffic.patterns import Flash, Seconds, diurnal, due_times, flash, length_s, mmpp
from serving.simulation.traffic.traffic import (
    Mix,
    constant,
    long_tailed,
    merge,
    popularity,
    read_mix,
    stream,
    uniform,
)
from serving.values.specs import SizeHint

SEEDS = st.integers(0, 50)
SHAPES = ["mmpp(50,400,dwell=2)", "diurnal(100,peak=300,period=6)", "flash(100,peak=10,at=2,hold=1)"]


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def due(pattern: str, seconds: float, seed: int = 1, scale: float = 1.0) -> Seconds:
    return due_times(pattern, seconds, 1.0, generator(seed), scale)


def dispersion(instants: Seconds, seconds: float, window_s: float) -> float:
    """Variance over mean of the counts in windows: 1 for Poisson."""
    counts = np.histogram(instants, np.arange(0, seconds + window_s / 2, window_s))[0]
    return float(counts.var() / counts.mean())


@given(st.sampled_from(SHAPES), SEEDS)
def test_a_pattern_repeats_with_its_seed_and_keeps_within_its_time(pattern: str, seed: int) -> None:
    first = due(pattern, 10, seed)
    assert np.array_equal(first, due(pattern, 10, seed))
    assert not np.array_equal(first, due(pattern, 10, seed + 1))
    assert np.all(np.diff(first) >= 0)
    assert first[0] >= 0
    assert first[-1] < 10
    assert length_s(pattern, 10) == 10


@given(st.sampled_from(["200", "100:2+300:3", *SHAPES]), st.sampled_from([0.5, 2.0, 3.0]), SEEDS)
def test_scaled_a_pattern_asks_so_many_times_as_often(pattern: str, scale: float, seed: int) -> None:
    plain, scaled = len(due(pattern, 20, seed)), len(due(pattern, 20, seed, scale))
    assert abs(scaled - scale * plain) < 5 * ((scale + scale**2) * plain) ** 0.5


def test_rates_that_take_turns_have_their_shares_of_time_and_bursts_that_poisson_has_not() -> None:
    steps = mmpp([50, 400], [3.0, 1.0], 20_000, generator(1))
    fast_s = sum(step.seconds for step in steps if step.rate == 400)
    assert fast_s / 20_000 == pytest.approx(0.25, abs=0.02)
    assert sum(step.seconds for step in steps) == pytest.approx(20_000)
    assert dispersion(due("mmpp(50,400,dwell=2)", 2000), 2000, 1.0) > 50
    assert dispersion(due("225", 2000), 2000, 1.0) == pytest.approx(1, abs=0.2)


@given(SEEDS)
def test_of_three_rates_each_follows_each_other(seed: int) -> None:
    rates = [step.rate for step in mmpp([1, 2, 3], [0.1], 100, generator(seed))]
    assert set(pairwise(rates)) == {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}


def test_a_day_swings_between_its_low_and_its_peak() -> None:
    steps = diurnal(100, 300, 60, 120)
    rates = [step.rate for step in steps]
    assert min(rates) == pytest.approx(100, abs=1)
    assert max(rates) == pytest.approx(300, abs=1)
    assert sum(step.rate * step.seconds for step in steps) == pytest.approx(200 * 120)
    day = due("diurnal(100,peak=300,period=60)", 60)
    assert len(day) == pytest.approx(200 * 60, rel=0.05)
    noon = np.count_nonzero((day > 25) & (day < 35))
    assert noon > 2 * np.count_nonzero((day < 5) | (day > 55))


def test_a_crowd_comes_at_its_time_stays_and_leaves() -> None:
    steps = flash(100, Flash(peak=10, at_s=5, ramp_s=1, hold_s=2, decay_s=1), 20)
    edges = np.cumsum([0, *(step.seconds for step in steps)])

    def rate(at_s: float) -> float:
        return steps[int(np.searchsorted(edges, at_s, side="right")) - 1].rate

    assert [rate(at_s) for at_s in (0, 4.9, 6.1, 7.9, 14)] == [100, 100, 1000, 1000, 100]
    assert rate(5.5) == pytest.approx(550, rel=0.1)
    assert rate(9) == pytest.approx(100 + 900 / np.e, rel=0.15)
    assert edges[-1] == pytest.approx(20)


@given(st.integers(0, 8), st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([0.0, 1.0]), st.integers(1, 12))
def test_a_crowd_lasts_as_long_as_the_run_whatever_its_times(
    at_s: int, ramp_s: float, rest_s: float, seconds: int
) -> None:
    steps = flash(10, Flash(3, at_s, ramp_s, rest_s, rest_s), seconds)
    assert sum(step.seconds for step in steps) == pytest.approx(seconds)
    assert all(9.99 <= step.rate <= 30.01 for step in steps)


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("mmp(50,400)", r"no pattern; expected mmpp\(50,400,dwell=2\), diurnal.* or flash"),
        ("mmpp(50,dwell=2)", r"two rates or more; expected something like mmpp\("),
        ("mmpp(50,400)", "one dwell above 0 s, or one for each rate"),
        ("mmpp(50,400,dwell=1:2:3)", "one dwell above 0 s, or one for each rate"),
        ("mmpp(50,-1,dwell=1)", "rate >= 0"),
        ("mmpp(1,2,dwell=1e-9)", "the rate would change"),
        ("diurnal(100,peak=300)", r"period must be given; expected something like diurnal\("),
        ("diurnal(100,peak=3,period=60)", "0 <= low <= peak"),
        ("diurnal(1,2,peak=3,period=1)", "takes one rate"),
        ("flash(100)", r"peak must be given; expected something like flash\("),
        ("flash(100,peak=x)", "'x' is no number"),
        ("flash(100,peak=nan)", "'nan' is no number"),
        ("flash(100,peak=2,until=3)", "unknown 'until', it takes peak, at, ramp, hold, decay"),
        ("1e12", "requests are too many for a run"),
    ],
)
def test_a_pattern_that_cannot_be_played_is_refused_with_what_would_be_right(
    pattern: str, fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        due(pattern, 10)


MIXES = [constant(4), uniform(1, 8), long_tailed(64), Mix((128, 512), (0.8, 0.2))]


@given(st.sampled_from(MIXES), SEEDS)
def test_drawn_values_have_the_mean_of_their_mix(mix: Mix, seed: int) -> None:
    drawn = mix.draw(20_000, generator(seed))
    assert set(drawn.tolist()) <= set(mix.values)
    assert np.array_equal(drawn, mix.draw(20_000, generator(seed)))
    deviation = np.sqrt(np.average((np.array(mix.values) - mix.mean) ** 2, weights=mix.shares))
    assert abs(drawn.mean() - mix.mean) <= 5 * deviation / 20_000**0.5


def test_most_of_a_long_tail_is_small_and_some_is_large() -> None:
    drawn = long_tailed(64).draw(20_000, generator(1))
    assert np.median(drawn) == 1
    assert drawn.max() == 64


@given(st.integers(1, 30), st.sampled_from([0.0, 0.9, 2.0]))
def test_popularity_falls_as_zipf_says(count: int, exponent: float) -> None:
    shares = popularity(count, exponent)
    assert sum(shares) == pytest.approx(1)
    assert [share / shares[0] for share in shares] == pytest.approx(
        [rank**-exponent for rank in range(1, count + 1)]
    )


def test_mixes_are_read_as_written() -> None:
    assert read_mix("4") == constant(4)
    assert read_mix(" uniform(1, 8)") == uniform(1, 8)
    assert read_mix("tail(64)") == long_tailed(64)
    assert read_mix("tail(64,1.5)") == long_tailed(64, 1.5)
    assert read_mix("1:0.9+16:0.1") == Mix((1, 16), (0.9, 0.1))


@pytest.mark.parametrize(
    "text", ["", "many", "0", "-1", "1.5", "uniform(8,1)", "uniform(3)", "tail()", "1:0", "1:-1+2:1", "1:nan"]
)
def test_what_is_no_mix_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no mix; expected a number \(4\)"):
        read_mix(text)


def test_sizes_come_as_decisions_see_them_each_with_its_bucket() -> None:
    sizes = (Mix((7, 65, 9999), (1.0, 1.0, 1.0)), SizeHint("X", (64, 128)))
    drawn = merge([stream(0, np.arange(60.0), constant(1), sizes, generator(0))])
    assert {(each.size, each.bucket) for each in drawn} == {(7, 64), (68, 128), (128, 128)}


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4))
def test_merged_streams_are_in_order_and_nothing_is_lost(instants: list[list[int]]) -> None:
    streams = [
        stream(number, np.sort(np.array(each, float)), constant(number + 1), None, generator(0), f"t{number}")
        for number, each in enumerate(instants)
    ]
    merged = list(merge(streams))
    at_us = [max(at * 1_000_000, 1) for each in instants for at in each]
    assert [arrival.at_us for arrival in merged] == sorted(at_us)
    assert Counter((each.at_us, each.model) for each in merged) == Counter(
        (max(at * 1_000_000, 1), number) for number, each in enumerate(instants) for at in each
    )
    for arrival in merged:
        assert (arrival.rows, arrival.tenant, arrival.slack_us, arrival.size) == (
            arrival.model + 1, f"t{arrival.model}", None, 0,
        )  # fmt: skip
    ties = [(arrival.at_us, arrival.model) for arrival in merged]
    assert ties == sorted(ties)
