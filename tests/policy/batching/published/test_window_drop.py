"""What `window_drop` promises: Symphony's window, at once."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.published.window_drop import WindowDrop
from serving.policy.batching.rules.targets import Targets
from serving.policy.batching.rules.window import target_window
from tests.policy.views import (
    NOW_US,
    ArrivalSeen,
    LaneSeen,
    PieceSeen,
    QueueSeen,
    ReplicaSeen,
    queues,
    replicas,
)

devices = st.builds(replace, replicas, base_us=st.sampled_from([0.0, 2.0]))
targets = st.integers(1, 8)
single_rows = st.lists(st.integers(NOW_US - 5, NOW_US + 20), min_size=1, max_size=12).map(
    lambda dues: LaneSeen(tuple(PieceSeen(1, due_us, place) for place, due_us in enumerate(sorted(dues))))
)


def symphony(lane: LaneSeen, replica: ReplicaSeen, target: int) -> tuple[list[PieceSeen], list[PieceSeen]]:
    """Its published policy, step by step, for requests of one row: (batch, what is given up)."""
    prefix, suffix = list[PieceSeen](), list(lane.pieces)
    while suffix and not in_time(suffix[0], len(suffix), replica):
        prefix.append(suffix.pop(0))
    rows = min(target, len(suffix))
    dropped = [piece for piece in prefix if not in_time(piece, rows, replica)]
    kept = [piece for piece in prefix if in_time(piece, rows, replica)] + suffix
    while rows < len(kept) and in_time(kept[0], rows + 1, replica):  # for free
        rows += 1
    return kept[:rows], dropped


def in_time(piece: PieceSeen, rows: int, replica: ReplicaSeen) -> bool:
    return rows <= replica.rows_max(0) and NOW_US + replica.predict_us(rows, 0) <= piece.deadline_us


@given(single_rows, devices, targets)
def test_the_window_is_symphony_s(lane: LaneSeen, replica: ReplicaSeen, target: int) -> None:
    batch, dropped = symphony(lane, replica, target)
    taken, given_up, rows = target_window(lane, replica, target, NOW_US)
    if batch:
        assert (list(taken), list(given_up), rows) == (batch, dropped, len(batch))
    else:  # by the plan all are late: some are tried, and none given up for them
        assert taken
        assert not given_up


@given(queues, st.lists(st.integers(1, 5), max_size=5), st.integers(2, 40))
def test_a_free_slice_takes_the_window_for_the_target_at_once(
    view: QueueSeen, arrived: list[int], slo_us: int
) -> None:
    policy, known = WindowDrop(slo_us), Targets(slo_us)
    for place, rows in enumerate(arrived):
        for each in (policy.on_arrival, known.count):
            each(ArrivalSeen(rows, place % 2), NOW_US - 5 + place)
    choice = policy.choose(view, NOW_US)
    answerable = any(variant in view.replicas for lane in view.lanes for variant in lane.variants)
    assert (choice.lane is not None) == answerable
    if isinstance(choice.lane, LaneSeen):
        replica, size = view.replicas[choice.variant], choice.lane.size
        target, _ = known.at(replica, size, NOW_US)
        expected = target_window(choice.lane, replica, target, NOW_US)
        assert (choice.pieces, choice.drop, choice.rows) == expected


def test_heads_that_would_keep_the_batch_small_are_given_up_for_it() -> None:
    lane = LaneSeen((PieceSeen(1, NOW_US + 2),) * 2 + (PieceSeen(1, NOW_US + 12),) * 8)
    view = QueueSeen((lane,), {"a": ReplicaSeen({0: 8})})
    choice = WindowDrop(16).choose(view, NOW_US)
    assert (choice.rows, choice.drop) == (8, lane.pieces[:2])
