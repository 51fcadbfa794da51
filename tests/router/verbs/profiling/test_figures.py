"""What is worked out of profiles: the batch that a latency allows, the knee, and what is compared."""

from collections.abc import Sequence
from dataclasses import replace
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.verbs.profiling import words
from router.verbs.profiling.figures import ShareScaling, scalings
from serving.profile.curve import Origin, Point, Profile
from serving.profile.profiles import ProfileSet
from serving.values.slice_specs import Share

KIND = "cpu-test"
SLO_US = 20_000


def profile(share: str, row_us: float, batches: Sequence[int] = (1, 2, 4, 8), **fields: object) -> Profile:
    """A batch takes `row_us` a row, and its p99 is 1.5 times that; exactly, so figures can be foretold."""
    points = tuple(
        Point(0, rows, rows * row_us, rows * row_us, 30, 1.5 * rows * row_us, 0.0, 1000 * rows)
        for rows in batches
    )
    made = Profile("m", "v", KIND, points, share=Share.parse(share))
    return replace(made, **fields)  # type: ignore[arg-type]  # of several kinds


def only(*profiles: Profile, slo_us: int = SLO_US) -> ShareScaling:
    """The one scaling of these profiles."""
    (scaling,) = scalings([ProfileSet("m", "v", KIND, profiles)], slo_us)
    return scaling


def test_the_batch_to_run_takes_at_most_half_of_the_latency() -> None:
    best = only(profile("cores:1", 1900)).shares[0].within
    assert best is not None
    assert best.rows == 5
    assert best.p50_us == pytest.approx(9500)
    assert best.p99_us == pytest.approx(14_250)
    assert best.throughput == pytest.approx(1e6 / 1900)
    assert best.activation_bytes == 8000, "of the next larger batch that was measured"


@given(st.integers(1000, 100_000), st.lists(st.integers(100, 20_000), min_size=1, max_size=4, unique=True))
def test_no_batch_that_was_measured_and_is_within_carries_more(slo_us: int, costs: Sequence[int]) -> None:
    slowest_first = sorted(costs, reverse=True)
    shares = [profile(f"cores:{place}", cost) for place, cost in enumerate(slowest_first, 1)]
    for share in only(*shares, slo_us=slo_us).shares:
        rate = share.within.throughput if share.within else 0.0
        assert share.within is None or share.within.p50_us <= slo_us / 2 * (1 + 1e-9)
        within = [point for point in share.points if point.p50_us <= slo_us / 2 * (1 - 1e-9)]
        assert all(point.rows * 1e6 / point.p50_us <= rate * (1 + 1e-6) for point in within)


def test_a_smaller_batch_is_run_where_a_row_of_it_takes_less() -> None:
    """The largest that is within takes twice as long a row as one of half its rows."""
    steep = profile("cores:1", 500)
    points = tuple(replace(each, p50_us=2 * each.p50_us) if each.rows >= 8 else each for each in steep.points)
    best = only(replace(steep, points=points)).shares[0].within
    assert best is not None
    assert best.rows == 4
    assert best.throughput == pytest.approx(2000)


def test_a_latency_that_was_not_measured_is_not_made_up() -> None:
    made = profile("cores:1", 1000)
    bare = replace(made, points=tuple(replace(point, p99_us=0.0) for point in made.points))
    share = only(bare).shares[0]
    assert share.within is not None
    assert isnan(share.smallest.p99_us)
    assert isnan(share.within.p99_us)


def test_what_has_nothing_to_compare_with_has_no_knee_and_says_so() -> None:
    scaling = only(profile("cores:1", 1000))
    assert scaling.knee is None
    assert words.sentence(scaling, SLO_US) == (
        "v: 1 core has a profiled capacity of 1,000 rows/s within 20 ms in batches of 8, the largest "
        "measured; there is none to compare it with, so no knee."
    )


def test_the_sentence_says_what_a_larger_share_buys_and_where_the_knee_is() -> None:
    scaling = only(profile("cores:1", 1900), profile("cores:2", 1600))
    assert words.sentence(scaling, SLO_US) == (
        "v: 2 cores carry 1.2 times what 1 core does; the knee is at 1 core: profiled capacity 526 rows/s "
        "within 20 ms in batches of 5."
    )


def test_a_share_that_buys_nothing_is_told_so() -> None:
    said = words.sentence(only(profile("mps:50", 2000), profile("mps:100", 1990)), SLO_US)
    assert said.startswith("v: 100 % of the GPU carries no more than 50 % of the GPU; the knee is at 50 %")


def test_where_no_batch_is_short_enough_the_sentence_says_what_one_row_takes() -> None:
    scaling = only(profile("cores:1", 30_000), profile("cores:2", 15_000))
    assert scaling.knee is None
    assert words.sentence(scaling, SLO_US) == (
        "v: 1 row takes 15 ms on 2 cores, and 20 ms must hold two batches."
    )


def test_a_share_too_small_for_the_latency_is_named() -> None:
    said = words.sentence(only(profile("cores:1", 30_000), profile("cores:2", 4000)), SLO_US)
    assert said == (
        "v: on 1 core 20 ms do not hold two batches; the knee is at 2 cores, the largest share: "
        "profiled capacity 250 rows/s within 20 ms in batches of 2."
    )


def test_a_predicted_knee_is_said_to_be_predicted() -> None:
    guess = profile("cores:2", 1000, origin=Origin(error=0.12))
    said = words.sentence(only(profile("cores:1", 2000), guess), SLO_US)
    assert said.endswith("in batches of 8, the largest measured (predicted, ±12 %).")


def test_kinds_of_shares_processes_and_instances_of_one_amount_are_not_mixed() -> None:
    profiles = (
        profile("mig:1g.18gb", 1000),
        profile("mig:1g.35gb", 1000),
        profile("mig:3g.71gb", 500),
        profile("mps:50", 1000),
        profile("mig:3g.71gb*2", 900),
        profile("mps:100", 800),
    )
    found = scalings([ProfileSet("m", "v", KIND, profiles)], SLO_US)
    shares = [(words.name(each), [str(share.share) for share in each.shares]) for each in found]
    assert shares == [
        ("v", ["mig:1g.18gb", "mig:3g.71gb"]),
        ("v", ["mig:1g.35gb"]),
        ("v", ["mps:50", "mps:100"]),
        ("v (one of 2 processes)", ["mig:3g.71gb*2"]),
    ]


def test_figures_are_of_the_largest_size() -> None:
    short = profile("cores:1", 100)
    long = tuple(replace(point, size=512, p50_us=20 * point.p50_us, p95_us=20 * point.p50_us, p99_us=0.0)
                 for point in short.points)  # fmt: skip
    scaling = only(replace(short, points=(*short.points, *long)))
    assert scaling.size == 512
    assert scaling.shares[0].smallest.p50_us == pytest.approx(2000)
    assert words.notes([scaling]) == ["All figures are of rows of the largest size, up to 512."]


def test_a_measurement_that_does_not_go_with_its_neighbours_is_named() -> None:
    odd = profile("cores:1", 1000)
    bump = tuple(
        replace(point, p50_us=9000.0, p95_us=9000.0, p99_us=9000.0) if point.rows == 2 else point
        for point in odd.points
    )
    (note,) = words.notes([only(replace(odd, points=bump))])
    assert "4 rows took 4 ms, which does not go with its neighbours: the fit says 6 ms" in note


def test_where_other_rules_see_the_knee_is_said() -> None:
    """At 3 cores there is 90 % of the throughput of 4; at 2 most above the straight line."""
    rates = ((1, 10.0), (2, 17.0), (3, 19.0), (4, 20.0))
    scaling = only(*(profile(f"cores:{cores}", 60_000 / rate, (1,)) for cores, rate in rates))
    assert scaling.knee is not None
    assert scaling.knee.amount == 2
    assert words.notes([scaling]) == [
        "v: by other rules the knee is at 3 cores (the least share with 90 % of the throughput)."
    ]
