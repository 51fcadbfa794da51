"""What `shepherd` promises: FLEX's batch, and the largest before the most urgent; no batch is interrupted."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.arbitration import decide
from serving.policy.batching.interface import BatchReport
from serving.policy.batching.published.shepherd import Shepherd
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, QueueSeen, ReplicaSeen, lanes, queues, replicas


def flex(lane: LaneSeen, replica: ReplicaSeen) -> int:
    """Pieces of BatchGen as the paper writes it: one more while it meets the least deadline of them all."""
    count, rows = 1, lane.pieces[0].rows
    for piece in lane.pieces[1:]:
        grown = rows + piece.rows
        due_us = min(each.deadline_us for each in lane.pieces[: count + 1])
        if grown > replica.rows_max(lane.bucket) or NOW_US + replica.predict_us(grown, lane.size) > due_us:
            break
        count, rows = count + 1, grown
    return count


@given(lanes, st.builds(replace, replicas, base_us=st.sampled_from([0.0, 2.0])))
def test_a_batch_grows_while_it_meets_the_least_deadline_in_it(lane: LaneSeen, replica: ReplicaSeen) -> None:
    choice = Shepherd().choose(QueueSeen((lane,), dict.fromkeys(lane.variants, replica)), NOW_US)
    assert choice.pieces == lane.pieces[: flex(lane, replica)]
    assert choice.rows == sum(piece.rows for piece in choice.pieces)


@given(queues)
def test_of_the_lanes_and_of_the_models_the_largest_batch_goes(view: QueueSeen) -> None:
    policy = Shepherd()
    alone = [policy.choose(replace(view, lanes=(lane,)), NOW_US) for lane in view.lanes]
    able = [choice for choice in alone if choice.lane is not None]
    chosen = policy.choose(view, NOW_US)
    assert chosen.rows == max((choice.rows for choice in able), default=0)
    if able:
        index, _ = decide(able, 1, NOW_US)
        assert able[index] == chosen


def test_a_large_batch_goes_before_one_that_is_due_sooner() -> None:
    soon = LaneSeen((PieceSeen(1, NOW_US + 3),))
    many = LaneSeen((PieceSeen(1, NOW_US + 90),) * 4)
    choices = [Shepherd().choose(QueueSeen((lane,)), NOW_US) for lane in (soon, many)]
    assert decide(choices, 1, NOW_US)[0] == 1


@given(lanes, replicas)
def test_what_would_be_late_even_alone_is_given_up(lane: LaneSeen, replica: ReplicaSeen) -> None:
    policy = Shepherd()
    policy.on_done(BatchReport("a", 1, 0, 10, typical_us=10), NOW_US)
    view = QueueSeen((lane,), dict.fromkeys(lane.variants, replica))
    count = sum(given_up for _, given_up in policy.hopeless(view, NOW_US))
    late = [piece.deadline_us < NOW_US + replica.typical_us(piece.rows, piece.size) for piece in lane.pieces]
    assert count == (late.index(False) if False in late else len(late))
