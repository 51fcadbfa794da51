"""First fit decreasing: the largest first, each where there is room first."""

from loadtests.virtual.baselines.first_fit import solve
from tests.loadtests.virtual.baselines.models import asks, cut, on_mig, on_parts


def test_the_largest_are_placed_first_and_smaller_ones_fill_up() -> None:
    problem = on_mig(
        asks("a", 10, {2: 10}), asks("b", 20, {3: 10}), asks("c", 10, {4: 10}), asks("d", 10, {1: 10})
    )
    assert cut(solve(problem)) == [[("c", 4), ("b", 3)], [("b", 3), ("a", 2), ("d", 1)]]


def test_two_of_three_slices_leave_no_room_for_one_more() -> None:
    problem = on_mig(asks("a", 20, {3: 10}), asks("b", 10, {1: 10}))
    assert cut(solve(problem)) == [[("a", 3), ("a", 3)], [("b", 1)]]


def test_a_rate_is_copies_of_the_most_efficient_and_the_smallest_for_the_rest() -> None:
    problem = on_parts(asks("a", 60, {20: 10, 40: 25, 100: 50}))
    assert cut(solve(problem)) == [[("a", 40), ("a", 40), ("a", 20)]]


def test_who_would_be_too_slow_beside_another_has_a_device_of_his_own() -> None:
    """A row takes 40 of 45 s alone, and 1.5 times that beside the other."""
    slow = [asks(name, 0.025, {20: 0.025}, pressure=1.0, sensitivity=0.5) for name in "ab"]
    assert cut(solve(on_parts(*slow))) == [[("a", 20)], [("b", 20)]]
    calm = [asks(name, 0.025, {20: 0.025}, pressure=0.0, sensitivity=0.5) for name in "ab"]
    assert cut(solve(on_parts(*calm))) == [[("a", 20), ("b", 20)]]


def test_no_more_slices_are_on_a_device_than_it_may_have() -> None:
    problem = on_parts(asks("a", 30, {20: 10}), slices_max=2)
    assert cut(solve(problem)) == [[("a", 20), ("a", 20)], [("a", 20)]]
