"""What a prediction promises: what was measured stays, and the rest comes with an error."""

from dataclasses import replace
from math import exp, pi, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.profile.curve import Origin, Point, Profile
from serving.profile.derived.fewshot import (
    FLOOR,
    expected_improvement,
    next_point,
    predict,
    predicted_profile,
)
from serving.profile.derived.surface import Place
from serving.profile.files.document import parse, render
from serving.profile.profiles import ProfileSet
from serving.values.slice_specs import Share
from tests.profile.surfaces import Measured, generated, surface
from tests.seeds import drawn

OTHERS = [surface(generated(seed)) for seed in range(5)]
PLACES = [(amount, rows) for amount in (1.0, 2.0, 3.0, 4.0, 7.0) for rows in (1, 2, 4, 8, 16)]
FEW: list[Place] = [(1.0, 1), (1.0, 16), (3.0, 4), (7.0, 1), (7.0, 16)]
LAW = {(amount, rows): 900 + 50 * rows + 300 / amount + 700 * rows / amount for amount, rows in PLACES}
"""Amdahl's law for what a batch costs and for what each row does."""

chosen = st.lists(st.sampled_from(PLACES), min_size=1, max_size=6, unique=True)
seeds = st.integers(0, 10_000)


def known(measured: Measured, places: list[Place]) -> list[tuple[float, int, float]]:
    return [(*place, measured[place]) for place in places]


def off(found: Measured, expected: Measured) -> float:
    """The largest relative difference."""
    return max(max(found[place] / us, us / found[place]) for place, us in expected.items()) - 1


@settings(max_examples=drawn(40))  # each costs milliseconds
@given(seeds, chosen, st.integers(0, 5))
def test_what_was_measured_stays_and_all_is_monotone_with_an_error(
    seed: int, places: list[Place], others: int
) -> None:
    measured = {place: us for place, us in generated(seed, noise=0).items() if place in PLACES}
    points = known(measured, [place for place in places if place in measured] or [(7.0, 1)])
    found = predict(points, OTHERS[:others], [*measured], "mig")
    for amount, rows, latency_us in points:
        assert found.surface.latency_us(amount, rows) == pytest.approx(latency_us, rel=0.02)
    assert found.surface.amounts == (1.0, 2.0, 3.0, 4.0, 7.0)
    assert all(found.errors[place] >= FLOOR for place in measured)
    assert found.error >= FLOOR
    assert found.by == "ensemble" if others and len(points) < 4 else found.by in ("ensemble", "law")


@given(seeds, st.floats(0.05, 20))
def test_a_model_like_another_but_slower_is_known_from_three_points(seed: int, factor: float) -> None:
    pattern = surface(generated(seed, noise=0))
    expected = {
        place: factor * pattern.latency_us(*place)
        for place in PLACES
        if place[1] <= pattern.rows_at(place[0])[1]  # type: ignore[index]
    }
    found = predict(known(expected, [(1.0, 1), (3.0, 8), (7.0, 16)]), [pattern], [*expected], "mig")
    assert off({place: found.surface.latency_us(*place) for place in expected}, expected) < 0.01


def test_without_other_models_the_law_is_found_and_its_doubt_is_larger() -> None:
    alone = predict(known(LAW, FEW), [], PLACES, "mig")
    assert alone.by == "law"
    assert off({place: alone.surface.latency_us(*place) for place in PLACES}, LAW) < 0.25
    assert alone.error > predict(known(LAW, FEW), [surface(LAW)], PLACES, "mig").error


def test_what_sets_the_others_apart_sets_this_one_apart_from_them() -> None:
    """All are alike but for how much a batch costs beyond a corner; this one has more of it than most."""

    def like(much: float) -> Measured:
        return {place: 50 * max(1.0, place[1] / place[0] / 2) ** much for place in PLACES}

    others, expected = [surface(like(much)) for much in (0.1, 0.4, 0.7, 1.0)], like(0.9)
    found = predict(known(expected, [(7.0, 1), (1.0, 16)]), others, PLACES, "mig")
    assert off({place: found.surface.latency_us(*place) for place in PLACES}, expected) < 0.1


def test_points_that_contradict_the_others_make_the_error_larger() -> None:
    places = [(1.0, 1), (3.0, 4), (7.0, 16)]
    agreed = known(LAW, places)
    odd = [(amount, rows, us * factor) for (amount, rows, us), factor in zip(agreed, (1, 3, 1), strict=True)]
    errors = [predict(points, [surface(LAW)], PLACES, "mig").error for points in (agreed, odd)]
    assert errors[1] > 2 * errors[0]


def test_the_error_falls_with_every_few_points() -> None:
    measured = {place: us for place, us in generated(11).items() if place in PLACES}
    errors = [predict(known(measured, FEW[:count]), OTHERS, [*measured], "mig").error for count in (1, 3, 5)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 2 * errors[-1]


def test_another_model_that_does_not_reach_over_the_share_is_left_out() -> None:
    short = surface({place: us for place, us in LAW.items() if place[0] <= 3})
    assert predict(known(LAW, FEW), [short], PLACES, "mig").by == "law"


def test_a_prediction_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one measured point"):
        predict([], OTHERS, PLACES, "mig")


@given(seeds, chosen)
def test_the_next_point_is_one_that_was_not_measured(seed: int, places: list[Place]) -> None:
    measured = {place: us for place, us in generated(seed).items() if place in PLACES}
    points = known(measured, [place for place in places if place in measured])
    found = next_point(points, OTHERS, [*measured])
    assert found in measured.keys() - {place[:2] for place in points}


def test_the_first_point_is_the_safest_and_there_is_none_after_the_last() -> None:
    assert next_point([], OTHERS, PLACES) == (7.0, 1)
    assert next_point(known(LAW, PLACES), OTHERS, PLACES) is None


@pytest.mark.parametrize("limit_us", [1500, 2000, 3000, 6000])
def test_what_would_take_longer_than_the_limit_is_not_asked_for(limit_us: float) -> None:
    place = next_point([(7.0, 1, LAW[7.0, 1])], [surface(LAW)], PLACES, limit_us)
    assert place is not None
    assert LAW[place] <= limit_us


def test_of_alike_points_the_one_that_takes_less_time_comes_first() -> None:
    """Half the share at half the batch: the same gain, at less time where it is the smaller batch."""
    rows, row_us = 1000, 1000.0
    linear = {(1.0, 1): row_us, (1.0, rows): rows * row_us, (1.0, 4 * rows): 4 * rows * row_us}
    points = [(1.0, 1, row_us)]
    assert next_point(points, [surface(linear)], [*linear]) == (1.0, rows)


def test_a_point_beyond_the_limit_is_nothing_to_improve_on() -> None:
    points = known(LAW, [(7.0, 1), (1.0, 16)])  # the latter has the most throughput per share of all
    place = next_point(points, [surface(LAW)], PLACES, 1500)
    assert place == max(
        (each for each in PLACES if LAW[each] <= 1500), key=lambda each: each[1] / each[0] / LAW[each]
    )


@given(st.floats(0.1, 3), st.floats(-1, 1), st.floats(0.05, 0.8))
def test_the_expected_improvement_is_the_integral(best: float, expected: float, spread: float) -> None:
    parts, width = 4000, 12.0
    total = 0.0
    for part in range(parts):
        normal = (part + 0.5) / parts * width - width / 2
        density = exp(-(normal**2) / 2) / sqrt(2 * pi)
        total += max(exp(expected + spread * normal) - best, 0.0) * density * width / parts
    assert expected_improvement(best, expected, spread) == pytest.approx(total, abs=1e-4)


PATTERN = Profile(
    "m", "a", "gpu", tuple(Point(0, rows, LAW[7.0, rows], 1.1 * LAW[7.0, rows], 30, 1.4 * LAW[7.0, rows])
    for rows in (1, 4, 16)), load_us=5, memory_bytes=7, source="file", share=Share("mig", 7.0, "7g.141gb"),
    warm_us=3, origin=Origin(measured="2026-11-21T10:00:00+00:00", build="b", seconds=9.0, noise=0.1),
)  # fmt: skip
UNMEASURED = Share("mig", 2.0, "2g.35gb")


def guess() -> Profile:
    found = predict(known(LAW, FEW), [surface(LAW)], PLACES, "mig")
    return predicted_profile({0: found}, UNMEASURED, PATTERN, [])


def test_a_predicted_profile_says_so_and_has_the_medians_with_the_usual_tails() -> None:
    found = guess()
    assert found.predicted
    assert found.origin.error >= FLOOR
    assert (found.model, found.variant, found.device_kind, found.share) == ("m", "a", "gpu", UNMEASURED)
    assert (found.load_us, found.memory_bytes, found.warm_us, found.origin.build) == (5, 7, 0, "b")
    assert [point.rows for point in found.points] == [1, 2, 4, 8, 16]
    for point in found.points:
        assert point.p50_us == pytest.approx(LAW[2.0, point.rows], rel=0.05)
        assert (point.p95_us, point.p99_us) == pytest.approx((1.1 * point.p50_us, 1.4 * point.p50_us))


def test_a_predicted_profile_is_kept_in_a_file_and_a_measurement_takes_its_place() -> None:
    found = guess()
    kept = ProfileSet("m", "a", "gpu", ()).joined([found])
    assert parse(render(kept).encode(), ("m", "a", "gpu"), "") == kept
    late = replace(found, origin=Origin(measured="2020-01-01T00:00:00+00:00"))
    assert kept.joined([late]).of(UNMEASURED) == late
    assert kept.joined([late]).joined([found]).of(UNMEASURED) == late


def test_quantiles_that_nobody_measured_stay_unmeasured() -> None:
    plain = replace(PATTERN, points=tuple(replace(point, p99_us=0.0) for point in PATTERN.points))
    found = predict(known(LAW, FEW), [], PLACES, "mig")
    assert all(point.p99_us == 0 for point in predicted_profile({0: found}, UNMEASURED, plain, []).points)


def test_an_upper_quantile_is_never_below_a_lower_one() -> None:
    points = (Point(0, 1, 10.0, 30.0, 3), Point(0, 2, 10.0, 30.0, 3), Point(0, 4, 10.0, 11.0, 3, 12.0))
    found = predict(known(LAW, FEW), [], PLACES, "mig")
    made = predicted_profile({0: found}, UNMEASURED, replace(PATTERN, points=points), [])
    assert all(point.p50_us < point.p95_us <= point.p99_us for point in made.points)


def test_a_share_beyond_the_prediction_is_an_error() -> None:
    found = predict(known(LAW, FEW), [], PLACES, "mig")
    with pytest.raises(ValueError, match="nothing is predicted for mig:8g"):
        predicted_profile({0: found}, Share("mig", 8.0, "8g"), PATTERN, [])
