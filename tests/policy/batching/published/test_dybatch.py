"""What `dybatch` promises: the slice goes to the model that has used least of it for its weight."""

from dataclasses import replace
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.arbitration import decide
from serving.policy.batching.interface import BatchReport
from serving.policy.batching.published.dybatch import RULE, WINDOW_US, DyBatch
from serving.policy.batching.rules.due import choose_due
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, QueueSeen, queues

VIEW = QueueSeen((LaneSeen((PieceSeen(1, NOW_US + 50),)),), slice="s")
batches = st.lists(
    st.tuples(st.integers(0, 10_000_000), st.integers(1, 1_000_000)), max_size=8
)  # pause, time


@given(batches, st.sampled_from([0.5, 1.0, 4.0]), st.integers(0, 10_000_000))
def test_a_model_is_ranked_by_the_time_it_has_used_for_its_weight_of_late_more_than_long_ago(
    used: list[tuple[int, int]], weight: float, pause_us: int
) -> None:
    policy, now_us, ended = DyBatch(weight), 0, []
    for gap_us, took_us in used:
        now_us += gap_us
        ended.append((now_us, took_us))
        policy.on_done(BatchReport("a", 1, 0, took_us, slice="s"), now_us)
    now_us += pause_us
    choice = policy.choose(VIEW, now_us)
    expected = sum(took_us * exp((end_us - now_us) / WINDOW_US) for end_us, took_us in ended) / weight
    assert choice.rule == RULE
    assert choice.rank == pytest.approx(expected)


@given(queues)
def test_its_batch_is_all_that_waits_as_far_as_it_may_go_together(view: QueueSeen) -> None:
    expected = choose_due(view, lambda variant, replica, size: replica.rows_max(size), 0, NOW_US)
    choice = DyBatch().choose(view, NOW_US)
    assert (choice.lane, choice.pieces, choice.variant) == (expected.lane, expected.pieces, expected.variant)


def test_who_has_used_less_of_the_slice_goes_first_however_urgent_the_other_is() -> None:
    light, heavy = DyBatch(), DyBatch()
    light.on_done(BatchReport("a", 8, 0, 100, slice="s"), NOW_US)
    heavy.on_done(BatchReport("a", 1, 0, 1000, slice="s"), NOW_US)
    later = QueueSeen((LaneSeen((PieceSeen(1, NOW_US + 90),)),), slice="s")
    choices = [heavy.choose(VIEW, NOW_US), light.choose(later, NOW_US)]
    assert decide(choices, 1, NOW_US)[0] == 1
    heavier = DyBatch(weight=20)
    heavier.on_done(BatchReport("a", 1, 0, 1000, slice="s"), NOW_US)
    assert decide([heavier.choose(VIEW, NOW_US), choices[1]], 1, NOW_US)[0] == 0


def test_what_was_used_of_another_slice_does_not_count() -> None:
    policy = DyBatch()
    policy.on_done(BatchReport("a", 1, 0, 1000, slice="t"), NOW_US)
    ranks = {name: policy.choose(replace(VIEW, slice=name), NOW_US).rank for name in "st"}
    assert ranks == {"s": 0, "t": 1000}


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_a_weight_of_nothing_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=f"a weight must be above 0, got {weight:g}"):
        DyBatch(weight)
