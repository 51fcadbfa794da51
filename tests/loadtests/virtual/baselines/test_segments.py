"""A rate as copies of the most efficient offer and a smaller one for the rest."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines.segments import cover
from tests.loadtests.virtual.baselines.models import asks
from tests.seeds import drawn

CARRIES = st.dictionaries(st.sampled_from((1, 2, 3, 4, 7)), st.integers(1, 100).map(float), min_size=1)


@given(st.integers(1, 2000), CARRIES)
@settings(max_examples=drawn(50))
def test_the_rate_is_carried_by_copies_of_the_best_and_the_smallest_that_is_enough(
    rate: int, carries: dict[int, float]
) -> None:
    copies = cover(asks("a", rate, carries), asks("a", rate, carries).offers)
    sizes = [round(offer.option.share.amount) for offer, _ in copies]
    total = sum(carries[size] for size in sizes)
    assert total >= rate * (1 - 1e-6)
    best = max(each / size for size, each in carries.items())
    assert all(carries[size] / size >= best * (1 - 1e-9) for size in sizes[:-1])
    rest = rate - sum(carries[size] for size in sizes[:-1])
    assert rest > 0
    shared = [carries[size] for size in sizes[:-1]] + [rest]
    assert [rate for _, rate in copies] == pytest.approx(shared)
    enough = [size for size, each in carries.items() if each >= rest]
    assert sizes[-1] == min(enough)


def test_nothing_covers_nothing() -> None:
    assert cover(asks("a", 0, {1: 10.0}), asks("a", 0, {1: 10.0}).offers) == []
    assert cover(asks("a", 10, {}), ()) == []


def test_a_rate_that_is_filled_but_for_rounding_needs_no_more() -> None:
    demand = asks("a", 3 * 1.1, {1: 1.1})
    assert len(cover(demand, demand.offers)) == 3
