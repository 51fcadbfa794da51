"""Gpulets: parts at the knee, two to a GPU, in turns where no part is free."""

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines.gpulet import ideal, knee, solve
from tests.loadtests.virtual.baselines.models import asks, cut, on_parts
from tests.seeds import drawn

CARRIES = {20: 10.0, 40: 30.0, 60: 36.0, 80: 37.0, 100: 38.0}
"""Most is gained from 20 to 40 per cent; past 60 no step gains 5 %."""


def test_the_knee_is_the_part_up_to_which_most_is_gained() -> None:
    assert knee(asks("a", 1, CARRIES).offers).option.share.amount == 40
    assert knee(asks("a", 1, {20: 10.0, 60: 20.0, 100: 60.0}).offers).option.share.amount == 100
    assert knee(asks("a", 1, {20: 10.0, 100: 10.4}).offers).option.share.amount == 20
    assert knee(asks("a", 1, {50: 10.0}).offers).option.share.amount == 50


@given(st.floats(0.1, 100.0))
@settings(max_examples=drawn(30))
def test_a_part_is_the_least_that_carries_the_rate_or_the_knee(rate: float) -> None:
    amount = ideal(asks("a", rate, CARRIES).offers, rate).option.share.amount
    assert amount == (20 if rate <= 10 else 40)


def test_the_remainder_of_a_gpu_is_all_the_second_models() -> None:
    draft = solve(on_parts(asks("a", 30, CARRIES), asks("b", 10, CARRIES)))
    assert cut(draft) == [[("a", 40), ("b", 60)]]


def test_a_gpu_has_two_parts_at_most() -> None:
    thirds = {30: 10.0}
    draft = solve(on_parts(*(asks(name, 10, thirds) for name in "abc")))
    assert cut(draft) == [[("a", 30), ("b", 30)], [("c", 30)]]
    assert cut(solve(on_parts(*(asks(name, 10, thirds) for name in "ab"), slices_max=1))) == [
        [("a", 30)],
        [("b", 30)],
    ]


def test_a_rate_beyond_the_knee_has_several_parts() -> None:
    assert cut(solve(on_parts(asks("a", 65, CARRIES)))) == [[("a", 40), ("a", 60)]]
    assert cut(solve(on_parts(asks("a", 70, CARRIES)))) == [[("a", 40), ("a", 60)], [("a", 20)]]


def test_the_smallest_remainder_that_is_large_enough_is_taken() -> None:
    many = (
        asks("a", 30, {60: 30.0}),
        asks("b", 20, {80: 20.0}),
        asks("c", 10, {20: 10.0}),
        asks("d", 9, {40: 9.0}),
    )
    assert cut(solve(on_parts(*many))) == [[("a", 60), ("d", 40)], [("b", 80), ("c", 20)]]


def test_a_model_shares_a_part_in_turns_before_a_gpu_is_cut() -> None:
    draft = solve(
        on_parts(asks("a", 30, {100: 100.0}), asks("b", 20, {100: 100.0}), asks("c", 60, {100: 100.0}))
    )
    assert cut(draft) == [[("c+a", 100)], [("b", 100)]]


def test_who_would_be_too_slow_beside_another_is_not_put_there() -> None:
    slow = [asks(name, 0.025, {40: 0.025}, pressure=1.0, sensitivity=0.5) for name in "ab"]
    assert cut(solve(on_parts(*slow))) == [[("a", 40)], [("b", 40)]]


def test_models_come_in_descending_rate_times_slo() -> None:
    draft = solve(on_parts(asks("a", 10, {50: 10.0}), asks("b", 20, {50: 20.0}), count=1, slices_max=1))
    assert cut(draft) == [[("b", 50)]]
