"""What `nexus` promises: early drop as its executor does it, lazy drop as Nanily fills; models take turns."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.arbitration import decide
from serving.policy.batching.interface import BatchReport
from serving.policy.batching.published.nanily import Nanily
from serving.policy.batching.published.nexus import Nexus, slide
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, QueueSeen, ReplicaSeen, lanes, queues, replicas

devices = st.builds(replace, replicas, base_us=st.sampled_from([0.0, 2.0]))
slos_us = st.integers(1, 30)
single_rows = st.lists(st.integers(NOW_US - 5, NOW_US + 20), min_size=1, max_size=9).map(
    lambda dues: LaneSeen(tuple(PieceSeen(1, due_us) for due_us in sorted(dues)))
)


def executor(lane: LaneSeen, replica: ReplicaSeen, target: int) -> tuple[list[PieceSeen], list[PieceSeen]]:
    """The executor's loop, for requests of one row: pop, drop or append, aim lower where too few are left."""
    queue, taken, dropped = list(lane.pieces), list[PieceSeen](), list[PieceSeen]()
    expect = min(target, len(queue))
    while queue and len(taken) < expect:
        piece = queue.pop(0)
        late = piece.deadline_us < NOW_US + replica.predict_us(expect, 0)
        (dropped if late else taken).append(piece)
        expect = min(expect, len(taken) + len(queue))
    return taken, dropped


@given(single_rows, devices, slos_us)
def test_early_drop_is_the_executor_s_loop(lane: LaneSeen, replica: ReplicaSeen, slo_us: int) -> None:
    target = max(1, replica.rows_in(slo_us / 2, 0))
    taken, dropped = executor(lane, replica, target)
    assert slide(lane, replica, slo_us / 2, NOW_US) == (taken, dropped, len(taken))
    choice = Nexus(slo_us).choose(QueueSeen((lane,), {"a": replica}), NOW_US)
    if taken:
        assert (choice.pieces, choice.drop) == (taken, dropped)
    else:  # typically they are in time, or they had been given up
        assert choice.pieces == lane.pieces[: len(choice.pieces)]


@given(lanes, devices, slos_us)
def test_what_early_drop_takes_is_in_time_and_within_half_the_slo_and_in_order(
    lane: LaneSeen, replica: ReplicaSeen, slo_us: int
) -> None:
    taken, dropped, rows = slide(lane, replica, slo_us / 2, NOW_US)
    assert rows == sum(piece.rows for piece in taken)
    assert sorted([*taken, *dropped], key=lane.pieces.index) == list(lane.pieces[: len(taken) + len(dropped)])
    assert all(NOW_US + replica.predict_us(rows, lane.size) <= piece.deadline_us for piece in taken)
    assert len(taken) <= 1 or replica.predict_us(rows, lane.size) <= slo_us / 2


@given(queues, slos_us)
def test_earliest_first_drops_what_is_late_alone_and_fills_the_head_s_time(
    view: QueueSeen, slo_us: int
) -> None:
    nexus, nanily = Nexus(slo_us, sliding=False), Nanily(shed=True)
    for policy in (nexus, nanily):
        policy.on_done(BatchReport("a", 1, 0, 10, typical_us=10), NOW_US)
    assert nexus.hopeless(view, NOW_US) == nanily.hopeless(view, NOW_US)
    assert nexus.choose(view, NOW_US).ranked("", 0) == nanily.choose(view, NOW_US)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["s", "t"])), max_size=6), st.booleans())
def test_the_model_whose_latest_batch_on_the_slice_ended_longest_ago_goes_next(
    ends: list[tuple[int, str]], sliding: bool
) -> None:
    models = [Nexus(20, sliding) for _ in range(3)]
    for now_us, (number, slice_name) in enumerate(ends, start=1):
        models[number].on_done(BatchReport("a", 1, 0, 1, slice=slice_name), now_us)
    view = QueueSeen((LaneSeen((PieceSeen(1, NOW_US + 9),)),), slice="s")
    choices = [model.choose(view, NOW_US) for model in models]
    turns = [number for number, slice_name in ends if slice_name == "s"][::-1]
    never = len(turns)
    assert decide(choices, 1, NOW_US)[0] == max(
        range(3), key=lambda number: (turns.index(number) if number in turns else never, -number)
    )
