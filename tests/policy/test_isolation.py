"""What is promised of a failed batch: every piece is tried in one smaller part, or none is."""

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.isolation import FAILURES_MAX, halves

batches = st.integers(0, 40).map(lambda count: list(range(count)))


@given(batches, st.integers(1, FAILURES_MAX))
def test_the_parts_are_the_batch_in_its_order_as_even_as_can_be(pieces: list[int], failures: int) -> None:
    parts = halves(pieces, failures)
    assert [piece for part in parts for piece in part] == pieces
    assert all(parts)
    assert len(parts) <= 2
    assert max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1 or len(parts) == 1


@given(batches)
def test_after_too_many_failures_in_a_row_nothing_is_tried(pieces: list[int]) -> None:
    assert halves(pieces, FAILURES_MAX + 1) == []


def test_one_poisonous_row_of_the_largest_batch_is_found_before_it_is_given_up() -> None:
    pieces, failures = list(range(4096)), 0
    poison = 2077
    while len(pieces) > 1:
        failures += 1
        (pieces,) = (list(part) for part in halves(pieces, failures) if poison in part)
    assert pieces == [poison]
    assert failures < FAILURES_MAX
