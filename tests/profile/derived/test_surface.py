"""What a surface promises: monotone, nearest to what was measured, and nothing beyond it."""

from itertools import pairwise
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.curve import Point, Profile
from serving.profile.derived.surface import Place, Surface
from serving.values.slice_specs import Share
from tests.profile.surfaces import generated, surface

NEAR = 1e-6
Weighted = dict[Place, tuple[float, float]]

latency = st.integers(1, 9).map(float)
weights = st.integers(1, 3).map(float)
amounts = st.lists(st.integers(1, 6).map(float), min_size=1, max_size=4, unique=True)
batches = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)


@st.composite
def ragged(draw: st.DrawFn) -> Weighted:
    """Shares that were measured at some batches each."""
    return {
        (amount, rows): (draw(latency), draw(weights)) for amount in draw(amounts) for rows in draw(batches)
    }


@st.composite
def full(draw: st.DrawFn) -> Weighted:
    """The same batches on every share."""
    rows = draw(batches)
    return {(amount, each): (draw(latency), draw(weights)) for amount in draw(amounts) for each in rows}


def everywhere(found: Surface) -> list[Place]:
    """Amounts at the measured ones and between them, with every batch that is known there."""
    between = [left + (right - left) * part for left, right in pairwise(found.amounts) for part in (0.3, 0.7)]
    ranges = [(amount, found.rows_at(amount)) for amount in sorted([*found.amounts, *between])]
    return [(amount, rows) for amount, known in ranges if known for rows in range(known[0], known[1] + 1)]


@given(ragged())
def test_more_rows_never_take_less_and_neighbouring_larger_shares_never_more(measured: Weighted) -> None:
    found = Surface.through("mps", measured)
    at = {place: found.latency_us(*place) for place in everywhere(found)}
    for (amount, rows), latency_us in at.items():
        assert latency_us <= at.get((amount, rows + 1), latency_us) * (1 + NEAR)
    ladder = sorted({amount for amount, _ in at})
    for left, right in pairwise(ladder):
        for rows in range(1, 10):
            if (left, rows) in at and (right, rows) in at:
                assert at[right, rows] <= at[left, rows] * (1 + NEAR)


@given(full(), st.data())
def test_no_other_monotone_surface_is_nearer(measured: Weighted, data: st.DataObject) -> None:
    """What is left is at right angles to the fit, and to nothing monotone at less than that: what projections
    on convex cones have, and only they (Moreau 1962)."""
    fitted = {place: log(Surface.through("mps", measured).latency_us(*place)) for place in measured}
    left = {place: w * (log(us) - fitted[place]) for place, (us, w) in measured.items()}
    assert sum(left[place] * fitted[place] for place in measured) == pytest.approx(0, abs=NEAR)
    assert sum(left.values()) == pytest.approx(0, abs=NEAR)
    steps = {place: data.draw(st.integers(0, 3)) for place in measured}
    monotone = {
        (amount, rows): max(
            step for (owner, fewer), step in steps.items() if owner >= amount and fewer <= rows
        )
        for amount, rows in measured
    }
    assert sum(left[place] * monotone[place] for place in measured) <= NEAR


def test_what_lies_between_two_batches_yields_to_what_was_measured() -> None:
    found = surface({(1.0, 1): 100.0, (1.0, 4): 400.0, (2.0, 1): 100.0, (2.0, 2): 300.0, (2.0, 4): 390.0})
    assert found.latency_us(2.0, 2) == pytest.approx(300, rel=0.01)
    assert found.latency_us(1.0, 2) == pytest.approx(300, rel=0.01)


@given(full())
def test_the_fit_of_a_fit_is_itself_and_leaves_no_residual(measured: Weighted) -> None:
    once = Surface.through("mps", measured)
    again = Surface.through("mps", {place: (once.latency_us(*place), 1.0) for place in measured})
    for place in everywhere(once):
        assert again.latency_us(*place) == pytest.approx(once.latency_us(*place))
    assert again.worst.deviation < NEAR
    assert again.sound


@given(ragged())
def test_between_points_it_stays_within_its_neighbours(measured: Weighted) -> None:
    found = Surface.through("mps", measured)
    for amount, rows in everywhere(found):
        left = max(each for each in found.amounts if each <= amount)
        right = min(each for each in found.amounts if each >= amount)
        corners = [found.latency_us(left, rows), found.latency_us(right, rows)]
        assert min(corners) * (1 - NEAR) <= found.latency_us(amount, rows) <= max(corners) * (1 + NEAR)


def test_between_points_it_is_straight_in_the_logarithms() -> None:
    found = surface({(1.0, 1): 100.0, (1.0, 4): 400.0, (4.0, 1): 25.0, (4.0, 4): 100.0})
    assert found.latency_us(1.0, 2) == pytest.approx(200)
    assert found.latency_us(2.0, 1) == pytest.approx(50)
    assert found.latency_us(2.0, 2) == pytest.approx(100)
    assert found.throughput(2.0, 2) == pytest.approx(20_000)


@given(ragged(), st.floats(0.5, 8), st.integers(1, 12))
def test_beyond_what_was_measured_is_an_error_that_names_the_range(
    measured: Weighted, amount: float, rows: int
) -> None:
    found = Surface.through("mps", measured)
    known = found.rows_at(amount)
    if known and known[0] <= rows <= known[1]:
        assert found.latency_us(amount, rows) > 0
        return
    with pytest.raises(ValueError, match=r"beyond what was measured: .*\d+ to \d+ rows"):
        found.latency_us(amount, rows)


def test_between_two_shares_only_the_batches_of_both_are_known() -> None:
    found = surface({(1.0, 1): 10.0, (1.0, 8): 80.0, (2.0, 1): 5.0, (2.0, 32): 160.0})
    assert [found.rows_at(amount) for amount in (0.5, 1.0, 1.5, 2.0, 2.5)] == [
        None,
        (1, 8),
        (1, 8),
        (1, 32),
        None,
    ]
    with pytest.raises(
        ValueError, match=r"mig:1\.5 with 9 rows is beyond what was measured: there 1 to 8 rows"
    ):
        found.latency_us(1.5, 9)


@given(ragged(), st.floats(0.5, 12))
def test_rows_within_is_the_largest_known_batch_that_fits(measured: Weighted, budget_us: float) -> None:
    found = Surface.through("mps", measured)
    for amount in sorted({amount for amount, _ in everywhere(found)}):
        known = found.rows_at(amount)
        assert known is not None
        fitting = [r for r in range(known[0], known[1] + 1) if found.latency_us(amount, r) <= budget_us]
        assert found.rows_within(amount, budget_us) == max(fitting, default=0)


def test_a_point_far_off_the_others_is_named_and_makes_the_surface_unsound() -> None:
    measured = generated(seed=1)
    assert surface(measured).sound
    off = (3.0, 16)
    found = surface(measured | {off: measured[off] * 3})
    assert not found.sound
    assert (found.worst.amount, found.worst.rows) == off
    assert found.worst.ratio > 1.15
    assert {(each.amount, each.rows) for each in found.residuals} == set(measured)


def test_a_residual_is_alike_in_both_directions() -> None:
    found = Surface.through("mps", {(1.0, 1): (4.0, 1.0), (1.0, 2): (1.0, 1.0)})
    assert [each.ratio for each in found.residuals] == pytest.approx([2, 0.5])
    assert [each.deviation for each in found.residuals] == pytest.approx([1, 1])


def profile(share: Share, points: dict[int, float], size: int = 0) -> Profile:
    measured = tuple(Point(size, rows, us, us, 4) for rows, us in points.items())
    return Profile("m", "a", "kind", measured, share=share)


def test_a_surface_of_profiles_has_their_shares_and_their_medians() -> None:
    profiles = [profile(Share("mps", amount), {1: 100 / amount, 8: 800 / amount}) for amount in (25.0, 50.0)]
    found = Surface.of(profiles, 0)
    assert (found.kind, found.amounts, found.rows) == ("mps", (25.0, 50.0), (1, 8))
    assert found.latency_us(50.0, 8) == pytest.approx(16)


def test_points_of_more_runs_weigh_more() -> None:
    points = (Point(0, 1, 4.0, 4.0, 3), Point(0, 2, 1.0, 1.0, 1))
    found = Surface.of([Profile("m", "a", "kind", points)], 0)
    assert found.latency_us(1.0, 1) == pytest.approx(exp(0.75 * log(4)))


def test_shares_without_a_point_of_that_size_are_left_out() -> None:
    shares = [profile(Share("mps", 25.0), {1: 9.0}, size=64), profile(Share("mps", 50.0), {1: 9.0}, size=128)]
    assert Surface.of(shares, 128).amounts == (50.0,)
    with pytest.raises(ValueError, match="no point of size 32 on mps:25, mps:50"):
        Surface.of(shares, 32)


def test_what_makes_no_surface_is_an_error() -> None:
    one = profile(Share("mps", 25.0), {1: 9.0})
    with pytest.raises(ValueError, match=r"one kind of share .* not mps:25, cores:1"):
        Surface.of([one, profile(Share("cores", 1.0), {1: 9.0})], 0)
    instance = profile(Share.parse("mig:2g.35gb"), {1: 9.0})
    with pytest.raises(ValueError, match="one number of processes"):
        Surface.of([instance, profile(Share.parse("mig:1g.18gb*2"), {1: 9.0})], 0)
    with pytest.raises(ValueError, match="must ascend in their amounts: mps:25, mps:25"):
        Surface.of([one, one], 0)
    with pytest.raises(ValueError, match="at least one measured point"):
        Surface.through("mps", {})
