"""What a model claims: a wish counts replicas on usual slices, its bounds count slices."""

import pytest

from serving.control.scaling.ranking import RankedSlice
from serving.control.scaling.scaling_views import claim
from serving.values.slice_specs import SliceSpec
from tests.control.scaling_house import scaled


@pytest.mark.parametrize(
    ("wish", "speeds", "least", "most", "claimed"),
    [
        (1, (0.5, 1.0), 1, None, 2),  # as fast as seen by its policy, in whatever order it likes them
        (2, (2.0, 2.0, 1.0), 1, None, 1),
        (2, (2.0, 2.0, 1.0), 2, None, 2),
        (2, (0.5, 0.5, 0.5, 0.5), 1, 2, 2),
        (3, (1.0,), 1, None, 3),  # more than there are: it is said that it has too few
        (0, (1.0, 1.0), 0, None, 0),
    ],
)
def test_slow_slices_count_less_and_bounds_hold(
    wish: int, speeds: tuple[float, ...], least: int, most: int | None, claimed: int
) -> None:
    likes = [
        RankedSlice(SliceSpec(f"s{n}", ()), "kind", speed, False, False) for n, speed in enumerate(speeds)
    ]
    found = claim(scaled(least=least, most=most), wish, likes, None, frozenset())
    assert found.wish == claimed
    assert found.least == min(least, claimed)
