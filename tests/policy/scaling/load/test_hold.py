"""What is held: the most of what was wished of late, and never longer than is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.scaling.load.hold import Hold, hold_us

wishes = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=60)


@given(wishes, st.integers(0, 20))
def test_it_is_the_most_of_those_that_are_young_enough(wished: list[tuple[int, int]], length_us: int) -> None:
    hold, now_us, book = Hold(), 0, []
    for count, gap_us in wished:
        now_us += gap_us
        book.append((now_us, count))
        young = [each for at_us, each in book if at_us >= now_us - length_us]
        assert hold.most(count, now_us, length_us) == max(young)


@pytest.mark.parametrize(("start_s", "held_s"), [(1, 60), (5, 60), (10, 100), (30, 300), (120, 300)])
def test_it_is_ten_starts_within_a_minute_and_five(start_s: int, held_s: int) -> None:
    assert hold_us(start_s * 1_000_000) == held_s * 1_000_000
