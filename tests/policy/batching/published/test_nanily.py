"""What `nanily` promises: the head's remaining time is filled exactly. It gives nothing up, or in its mode
`shed` only what would be late even alone."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.interface import WAIT, BatchReport
from serving.policy.batching.published.nanily import Nanily
from serving.policy.batching.published.nexus import Nexus
from serving.policy.batching.published.symphony import Symphony
from serving.policy.batching.published.window_drop import WindowDrop
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, QueueSeen, ReplicaSeen, lanes, queues, replicas

modes = st.booleans()
devices = st.builds(replace, replicas, base_us=st.sampled_from([0.0, 2.0]))


@given(lanes, devices, modes)
def test_a_batch_fills_the_time_of_its_head_or_is_all_that_waits_or_may_go(
    lane: LaneSeen, replica: ReplicaSeen, shed: bool
) -> None:
    choice = Nanily(shed).choose(QueueSeen((lane,), dict.fromkeys(lane.variants, replica)), NOW_US)
    count = len(choice.pieces)
    assert count >= 1
    assert choice.pieces == lane.pieces[:count]
    assert choice.drop == ()
    head_us, largest = lane.pieces[0].deadline_us, replica.rows_max(lane.bucket)
    finish_us = NOW_US + replica.predict_us(choice.rows, lane.size)
    assert (finish_us <= head_us and choice.rows <= largest) or count == 1
    if count < len(lane.pieces):
        grown = choice.rows + lane.pieces[count].rows
        assert grown > largest or NOW_US + replica.predict_us(grown, lane.size) > head_us


@given(queues, modes)
def test_it_never_waits_and_the_lane_that_must_start_soonest_goes(view: QueueSeen, shed: bool) -> None:
    policy = Nanily(shed)
    alone = [policy.choose(replace(view, lanes=(lane,)), NOW_US) for lane in view.lanes]
    able = [choice for choice in alone if choice.lane is not None]
    answerable = [lane for lane in view.lanes if any(variant in view.replicas for variant in lane.variants)]
    assert len(able) == len(answerable)
    assert policy.choose(view, NOW_US) == min(able, key=lambda choice: choice.latest_start_us, default=WAIT)


def test_late_heads_shrink_its_batches_to_one_and_are_served_all_the_same() -> None:
    view = QueueSeen((LaneSeen((PieceSeen(1, NOW_US - 1),) + (PieceSeen(1, NOW_US + 90),) * 6),))
    assert not Nanily().hopeless(view, NOW_US)
    assert Nanily().choose(view, NOW_US).rows == 1


@given(lanes, devices)
def test_it_sheds_what_is_late_even_alone_but_one_to_try_where_nothing_has_come_back(
    lane: LaneSeen, replica: ReplicaSeen
) -> None:
    policy = Nanily(shed=True)
    policy.on_done(BatchReport("a", 1, 0, 10, typical_us=10), NOW_US)
    view = QueueSeen((lane,), dict.fromkeys(lane.variants, replica))
    late = [piece.deadline_us < NOW_US + replica.typical_us(piece.rows, piece.size) for piece in lane.pieces]
    count = late.index(False) if False in late else len(late)
    assert list(policy.hopeless(view, NOW_US)) == [(lane, count)] * (count > 0)
    later_us = NOW_US + 10_000_000
    assert list(policy.hopeless(view, later_us)) == [(lane, len(late) - 1)] * (len(late) > 1)


class Measured(ReplicaSeen):
    """Its profile goes further than a batch may."""

    def rows_in(self, budget_us: float, size: int) -> int:
        return int(budget_us / self.row_us)


def test_no_deadline_lets_a_batch_be_larger_than_the_slo_and_the_model_allow() -> None:
    view = QueueSeen((LaneSeen((PieceSeen(1, NOW_US + 90),) * 20),), {"a": Measured({0: 4})})
    assert Nanily().choose(view, NOW_US).rows == 4
    assert Nexus(180).choose(view, NOW_US).rows == 4
    assert WindowDrop(180).choose(view, NOW_US).rows == 4
    assert Symphony(180, 0).choose(view, NOW_US).rows == 4
