"""What the kneepoint promises: the analytic one within a step, and no word of units in it."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, tanh

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.derived.knee import efficiency, knee, knee90, knee_at_slo, kneedle
from serving.profile.derived.surface import Surface
from tests.profile.surfaces import generated, surface

ENOUGH = 0.8
counts = st.integers(1, 9).map(float)
ladders = st.lists(st.integers(1, 20).map(float), min_size=1, max_size=8, unique=True).map(sorted)
scales = st.floats(1e-3, 1e3)


@st.composite
def curves(draw: st.DrawFn) -> tuple[list[float], list[float], list[float]]:
    shares = draw(ladders)
    return shares, [draw(counts) for _ in shares], [draw(counts) for _ in shares]


@given(curves(), scales, scales, scales)
def test_a_change_of_units_changes_no_knee(
    curve: tuple[list[float], list[float], list[float]], one: float, two: float, three: float
) -> None:
    shares, rates, latency_us = curve
    other = [each * one for each in shares]
    faster, slower = [each * two for each in rates], [each * three for each in latency_us]
    assert knee(other, faster, slower) == knee(shares, rates, latency_us)
    assert knee90(other, faster) == knee90(shares, rates)
    assert kneedle(other, faster) == kneedle(shares, rates)


@given(curves())
def test_the_knee_is_the_smallest_of_the_most_efficient_shares_that_keep_four_fifths(
    curve: tuple[list[float], list[float], list[float]],
) -> None:
    chosen, (_, rates, _) = knee(*curve), curve
    measure = efficiency(*curve)
    assert rates[chosen] >= ENOUGH * max(rates) - 1e-9
    for place, each in enumerate(measure):
        if rates[place] >= ENOUGH * max(rates):
            assert each <= measure[chosen] * (1 + 1e-8)
            assert place >= chosen or each < measure[chosen]


def test_shares_that_are_alike_stay_so_in_any_unit() -> None:
    for unit in (step / 10 for step in range(1, 300)):
        assert knee([3 * unit, 7 * unit], [9.0, 10.0], [21.0, 10.0]) == 0
        assert kneedle([unit, 2 * unit, 3 * unit, 4 * unit], [10.0, 26.0, 36.0, 40.0]) == 1


def test_four_fifths_of_the_largest_throughput_are_enough_and_less_is_not() -> None:
    assert knee([1.0, 10.0], [8.0, 10.0], [1.0, 1.0]) == 0
    assert knee([1.0, 10.0], [7.9, 10.0], [1.0, 1.0]) == 1


@given(ladders, scales)
def test_where_throughput_grows_with_the_share_all_of_it_is_the_knee(
    shares: list[float], slope: float
) -> None:
    rates = [slope * share for share in shares]
    last = len(shares) - 1
    assert knee(shares, rates, [1 / rate for rate in rates]) == last
    assert kneedle(shares, rates) == last
    assert shares[knee90(shares, rates)] >= 0.9 * shares[-1] - 1e-9


@given(ladders, st.floats(0.5, 25))
def test_where_throughput_saturates_the_knee_is_there_within_a_step(shares: list[float], full: float) -> None:
    rates = [min(share, full) for share in shares]
    for place in (knee(shares, rates, [1 / rate for rate in rates]), kneedle(shares, rates)):
        around = shares[max(place - 1, 0) : place + 2]
        assert around[0] <= min(max(full, shares[0]), shares[-1]) <= around[-1]


@dataclass(frozen=True)
class Concave:
    """A concave throughput whose elasticity falls, and the share where it is one half.

    At a fixed batch efficiency is throughput² / share, so it rises up to there and falls after it.
    """

    throughput: Callable[[float], float]
    efficient: float

    def knee(self, shares: Sequence[float]) -> float:
        """The analytic knee on the range of `shares`: the most efficient, or, where that is larger, the one
        with four fifths of the largest throughput (by bisection)."""
        low, high = shares[0], shares[-1]
        least = ENOUGH * self.throughput(high)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.throughput(middle) >= least else (middle, high)
        return min(max(self.efficient, shares[0], high if high > shares[0] + 1e-9 else shares[0]), shares[-1])


def concave(draw: random.Random) -> Concave:
    """One of five families. The roots: e^u = 1 + 2u (1.2564), sinh 2u = 4u (1.0887)."""
    scale = draw.uniform(2, 150)
    power = draw.choice((draw.uniform(0.1, 0.45), draw.uniform(0.55, 0.95)))
    return draw.choice(
        (
            Concave(lambda share: 1 - exp(-share / scale), 1.2564312086261697 * scale),
            Concave(lambda share: tanh(share / scale), 1.0886553045749 * scale),
            Concave(lambda share: share / (share + scale), scale),  # Amdahl's law
            Concave(lambda share: share**power, 1e9 if power > 0.5 else 0),
            Concave(lambda share: min(share, scale), scale),
        )
    )


def steps(draw: random.Random) -> list[float]:
    return sorted({draw.uniform(1, 100) for _ in range(draw.randint(4, 25))})


def test_the_knee_of_a_thousand_concave_curves_is_the_analytic_one_within_a_step() -> None:
    draw = random.Random(6)
    for _ in range(1000):
        curve, shares = concave(draw), steps(draw)
        rates = [curve.throughput(share) for share in shares]
        place = knee(shares, rates, [8e6 / rate for rate in rates])
        around = shares[max(place - 1, 0) : place + 2]
        assert around[0] - 1e-9 <= curve.knee(shares) <= around[-1] + 1e-9


def test_the_analytic_knee_is_what_a_dense_search_finds() -> None:
    draw = random.Random(7)
    for _ in range(100):
        curve, shares = concave(draw), steps(draw)
        dense = [shares[0] + (shares[-1] - shares[0]) * part / 4000 for part in range(4001)]
        least = ENOUGH * curve.throughput(dense[-1])
        fit = [share for share in dense if curve.throughput(share) >= least]
        best = max(fit, key=lambda share: curve.throughput(share) ** 2 / share)
        assert best == pytest.approx(curve.knee(shares), abs=(shares[-1] - shares[0]) / 1000)


def test_equal_throughput_everywhere_needs_the_smallest_share() -> None:
    shares, rates = [1.0, 2.0, 4.0], [5.0, 5.0, 5.0]
    assert (knee(shares, rates, rates), knee90(shares, rates), kneedle(shares, rates)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("shares", "rates", "complaint"),
    [
        ([], [], "at least one"),
        ([1.0, 2.0], [1.0], "as many values as shares"),
        ([2.0, 1.0], [1.0, 1.0], "must ascend"),
        ([1.0, 2.0], [1.0, 0.0], "must be positive"),
    ],
)
def test_what_is_no_curve_is_an_error(shares: list[float], rates: list[float], complaint: str) -> None:
    for rule in (knee90, kneedle):
        with pytest.raises(ValueError, match=complaint):
            rule(shares, rates)
    with pytest.raises(ValueError, match=complaint):
        knee(shares, rates, rates)


def roofline(fixed_us: float, row_us: float) -> Surface:
    """A batch takes `fixed_us` or its rows' time, whichever is more; the share divides only the latter."""
    return surface(
        {
            (a, rows): max(fixed_us, row_us * rows / a)
            for a in (1.0, 2.0, 4.0, 8.0)
            for rows in (1, 2, 4, 8, 16)
        }
    )


def test_under_an_slo_each_share_runs_the_largest_batch_within_half_of_it() -> None:
    found = knee_at_slo(roofline(1900, 500), 4000)
    assert found is not None
    assert (found.amount, found.rows) == (4.0, 16)  # 8 gives 5 % more, 2 half
    assert found.latency_us == pytest.approx(2000)
    assert found.throughput == pytest.approx(8000)
    assert [amount for amount, _ in found.efficiency] == [1.0, 2.0, 4.0, 8.0]
    assert max(worth for _, worth in found.efficiency) == 1


def test_shares_that_run_no_batch_in_time_are_no_choice() -> None:
    slow = roofline(100, 2000)
    assert knee_at_slo(slow, 190) is None
    found = knee_at_slo(slow, 1000)
    assert found is not None
    assert [amount for amount, _ in found.efficiency] == [4.0, 8.0]


@pytest.mark.parametrize("seed", range(12))
def test_a_knee_under_an_slo_keeps_its_promises_on_any_surface_and_is_that_of_the_fitted_one(
    seed: int,
) -> None:
    found = surface(generated(seed))
    for slo_us in (1e3, 2e4, 1e5, 1e6, 1e8):
        chosen = knee_at_slo(found, slo_us)
        if chosen is None:
            assert all(found.latency_us(amount, 1) > slo_us / 2 for amount in found.amounts)
            continue
        assert chosen.latency_us == pytest.approx(found.latency_us(chosen.amount, chosen.rows))
        assert chosen.latency_us <= slo_us / 2
        assert chosen.throughput == pytest.approx(found.throughput(chosen.amount, chosen.rows))
        places = {(each.amount, each.rows): (each.fitted_us, 1.0) for each in found.residuals}
        again = knee_at_slo(Surface.through("mig", places), slo_us * (1 + 1e-9))
        assert again is not None
        assert (again.amount, again.rows) == (chosen.amount, chosen.rows)
        assert (again.by_90, again.by_kneedle) == (chosen.by_90, chosen.by_kneedle)
