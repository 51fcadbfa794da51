"""What requests look like: distances are a metric, and the last hours are compared with the last days."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.observing.telemetry.counting.journal import Entry
from router.observing.telemetry.counting.shapes import RECENT_MIN, ModelShapes, bucket, distance
from tests.router.happenings import reply, request

counts = st.dictionaries(st.sampled_from("abcde"), st.floats(0.1, 1e6), min_size=1)


def entry(rows: int = 1, size: int = 0, variant: str = "cnn") -> Entry:
    asked, answered = request("m", rows), reply()
    asked.size, answered.variant = size, variant
    return Entry(asked, answered, 1_000, True)


@given(counts, counts, counts)
def test_the_distance_is_a_metric_of_shares(
    a: dict[str, float], b: dict[str, float], c: dict[str, float]
) -> None:
    assert 0 <= distance(a, b) <= 1
    assert distance(a, b) == pytest.approx(distance(b, a))
    assert distance(a, {key: 3 * each for key, each in a.items()}) == pytest.approx(0, abs=1e-6)
    assert distance(a, c) <= distance(a, b) + distance(b, c) + 1e-6


def test_what_has_nothing_in_common_is_one_apart() -> None:
    assert distance({"a": 3}, {"b": 1}) == 1


@pytest.mark.parametrize(("count", "found"), [(0, ""), (1, "1"), (2, "2"), (3, "4"), (64, "64"), (65, "128")])
def test_a_bucket_is_a_power_of_two(count: int, found: str) -> None:
    assert bucket(count) == found


def usual(shapes: ModelShapes, hours: int = 4) -> None:
    for _ in range(hours):
        for number in range(1000):
            shapes.add(entry(1 + number % 2, 60))
        shapes.turn()
    shapes.turn()


def test_few_requests_are_compared_with_nothing() -> None:
    shapes = ModelShapes()
    for _ in range(5000):
        shapes.add(entry())
    assert shapes.shifts() == {}
    usual(shapes)
    for _ in range(RECENT_MIN - 1):
        shapes.add(entry())
    assert shapes.shifts() == {}


def test_the_same_requests_are_near_and_others_are_far() -> None:
    shapes = ModelShapes()
    usual(shapes)
    for number in range(1000):
        shapes.add(entry(1 + number % 2, 60))
    assert max(shapes.shifts().values()) < 0.05
    usual(shapes)
    for number in range(1000):
        shapes.add(entry(1 + number % 2, 500, "linear"))
    found = shapes.shifts()
    assert found["rows"] < 0.05
    assert (found["sizes"], found["variants"]) == (1, 1)


def test_what_was_is_forgotten_in_weeks() -> None:
    shapes = ModelShapes()
    usual(shapes)
    for _ in range(24 * 90):
        shapes.turn()
    assert shapes.usual["rows"] == {}
