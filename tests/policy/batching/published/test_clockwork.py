"""What `clockwork` promises: batches fill a compiled size; its estimates are the worst of ten batches."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.catalogue import create_policy
from serving.policy.batching.interface import BatchReport
from serving.policy.batching.published.clockwork import Clockwork, compiled
from serving.values.specs import BatchingSpec
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, QueueSeen, ReplicaSeen, lanes, replicas

devices = st.builds(replace, replicas, base_us=st.sampled_from([0.0, 2.0]))
guards_us = st.integers(0, 3)
single_rows = st.lists(st.integers(NOW_US - 5, NOW_US + 20), min_size=1, max_size=12).map(
    lambda dues: LaneSeen(tuple(PieceSeen(1, due_us, place) for place, due_us in enumerate(sorted(dues))))
)


def controller(
    lane: LaneSeen, replica: ReplicaSeen, guard_us: int
) -> tuple[list[PieceSeen], list[PieceSeen]]:
    """Its published loop, for requests of one row: a queue per size; (batch, what its queues pass over)."""
    for size in (8, 4, 2, 1):
        queue = [
            piece
            for piece in lane.pieces
            if piece.deadline_us - guard_us >= NOW_US + replica.predict_us(size, 0)
        ]
        if size <= replica.rows_max(0) and len(queue) >= size:
            batch = queue[:size]
            return batch, list(lane.pieces[: lane.pieces.index(batch[0])])
    return [], []


@given(single_rows, devices, guards_us)
def test_the_largest_size_that_its_queue_can_fill_goes_and_heads_before_it_are_given_up(
    lane: LaneSeen, replica: ReplicaSeen, guard_us: int
) -> None:
    batch, passed = controller(lane, replica, guard_us)
    choice = Clockwork(guard_us).choose(QueueSeen((lane,), {"a": replica}), NOW_US)
    if batch:
        assert (list(choice.pieces), list(choice.drop)) == (batch, passed)
        latency_us = replica.predict_us(len(batch), 0)
        assert choice.latest_start_us <= batch[0].deadline_us - guard_us - latency_us
    else:
        assert (choice.pieces, choice.drop) == (lane.pieces[:1], ())


@given(single_rows, devices, guards_us)
def test_keeping_heads_the_first_that_could_be_met_says_how_large_a_batch_it_waits_for(
    lane: LaneSeen, replica: ReplicaSeen, guard_us: int
) -> None:
    choice = Clockwork(guard_us, passes=False).choose(QueueSeen((lane,), {"a": replica}), NOW_US)
    slack_us = [piece.deadline_us - guard_us - NOW_US for piece in lane.pieces]
    alive = [place for place, each in enumerate(slack_us) if each >= replica.predict_us(1, 0)]
    if not alive:
        assert (choice.pieces, choice.drop) == (lane.pieces[:1], ())
        return
    head = alive[0]
    rows = min(len(lane.pieces) - head, replica.rows_max(0), replica.rows_in(slack_us[head], 0))
    assert choice.pieces == lane.pieces[head : head + compiled(rows + 1) // 2]
    assert choice.drop == lane.pieces[:head]


@given(lanes, devices, guards_us, st.booleans())
def test_requests_of_many_rows_fill_a_size_as_far_as_they_fit_or_go_alone(
    lane: LaneSeen, replica: ReplicaSeen, guard_us: int, passes: bool
) -> None:
    view = QueueSeen((lane,), dict.fromkeys(lane.variants, replica))
    choice = Clockwork(guard_us, passes).choose(view, NOW_US)
    count, first = len(choice.pieces), len(choice.drop)
    assert count >= 1
    assert [*choice.drop, *choice.pieces] == list(lane.pieces[: first + count])
    if count > 1:
        size, left = compiled(choice.rows), lane.pieces[first + count :]
        assert size <= replica.rows_max(lane.bucket)
        assert choice.rows == size or choice.rows + left[0].rows > size


class Device:
    """Batches of `rows` from an endless queue whose head can wait for `slack_us`."""

    def __init__(self, slack_us: int) -> None:
        self.policy = Clockwork(guard_us=0)
        self.view = QueueSeen(
            (LaneSeen((PieceSeen(1, NOW_US + slack_us),) * 64),), {"a": ReplicaSeen({0: 16}, 10, 40)}
        )

    def ran(self, rows: int, took_us: int, batches: int) -> None:
        for _ in range(batches):
            self.policy.on_done(BatchReport("a", rows, 0, took_us, typical_us=took_us), NOW_US)

    @property
    def rows(self) -> int:
        return self.policy.choose(self.view, NOW_US).rows


def test_a_hiccup_keeps_a_size_from_being_run_until_ten_more_batches_of_it_have_been() -> None:
    device = Device(slack_us=200)  # 16 rows take 200
    assert device.rows == 16
    device.ran(16, 300, batches=1)
    assert device.rows == 8
    device.ran(16, 200, batches=9)
    assert device.rows == 8
    device.ran(16, 200, batches=1)
    assert device.rows == 16


def test_a_size_that_does_not_run_keeps_the_estimate_of_the_profile() -> None:
    device = Device(slack_us=200)
    device.ran(8, 900, batches=20)  # the device has become slower, of which size 16 knows nothing
    assert device.rows == 16


def test_without_a_guard_of_its_own_it_plans_for_five_milliseconds_before_the_deadline() -> None:
    lane = LaneSeen((PieceSeen(1, NOW_US + 20_000),))
    choice = create_policy(BatchingSpec("clockwork"), 25_000).choose(QueueSeen((lane,)), NOW_US)
    assert choice.latest_start_us == NOW_US + 20_000 - 5_000 - 1


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (16, 16), (17, 32)])
def test_sizes_are_powers_of_two(rows: int, size: int) -> None:
    assert compiled(rows) == size


def test_what_would_be_late_by_its_own_estimate_even_alone_is_given_up() -> None:
    device = Device(slack_us=100)
    assert not device.policy.hopeless(device.view, NOW_US)
    device.ran(1, 150, batches=1)
    assert [count for _, count in device.policy.hopeless(device.view, NOW_US)] == [64]
