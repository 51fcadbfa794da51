"""What the window drop promises: batches in time, as large as their head allows, nothing given up in vain."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from serving.policy.batching.interface import PieceView
from serving.policy.batching.rules.window import window
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, ReplicaSeen


def lane_of(pieces: Sequence[PieceSeen]) -> LaneSeen:
    """In the order of deadlines, as lanes keep them."""
    ordered = tuple(sorted(pieces, key=lambda piece: piece.deadline_us))
    return LaneSeen(ordered, protected=tuple(piece for piece in ordered if piece.protected))


def pieces_of(
    rows: st.SearchStrategy[int], protected: st.SearchStrategy[bool]
) -> st.SearchStrategy[PieceSeen]:
    numbers = st.integers(0, 1000)  # arrivals tell pieces apart
    return st.builds(PieceSeen, rows, st.integers(NOW_US - 3, NOW_US + 25), numbers, protected)


def lanes_of(pieces: st.SearchStrategy[PieceSeen]) -> st.SearchStrategy[LaneSeen]:
    several = st.lists(pieces, min_size=1, max_size=9, unique_by=lambda piece: piece.arrived_us)
    return several.map(lane_of)


single_rows = lanes_of(pieces_of(st.just(1), st.just(False)))
protected_rows = lanes_of(pieces_of(st.just(1), st.booleans()))
any_lanes = lanes_of(pieces_of(st.integers(1, 5), st.booleans()))
replicas = st.builds(
    ReplicaSeen, st.integers(1, 12).map(lambda rows: {0: rows}), st.sampled_from([0.3, 1.0, 2.5])
)
loads = st.integers(1, 9)


def in_time(piece: PieceView, rows: int, replica: ReplicaSeen) -> bool:
    """Whether the piece is answered in time by a batch of so many rows that starts now."""
    return NOW_US + replica.predict_us(rows, 0) <= piece.deadline_us


@given(any_lanes, replicas, loads, loads)
def test_it_takes_some_gives_up_others_and_leaves_the_rest_as_it_is(
    lane: LaneSeen, replica: ReplicaSeen, sustaining: int, cap: int
) -> None:
    taken, dropped, rows = window(lane, replica, sustaining, cap, NOW_US)
    assert taken
    assert rows == sum(piece.rows for piece in taken)
    chosen = [*taken, *dropped]
    assert len({id(piece) for piece in chosen}) == len(chosen)
    assert {id(piece) for piece in chosen} <= {id(piece) for piece in lane.pieces}


@given(any_lanes, replicas, loads, loads)
def test_a_batch_of_several_pieces_is_never_predicted_late_where_one_of_them_could_be_in_time(
    lane: LaneSeen, replica: ReplicaSeen, sustaining: int, cap: int
) -> None:
    taken, _, rows = window(lane, replica, sustaining, cap, NOW_US)
    if len(taken) > 1 and in_time(lane.pieces[-1], 1, replica):
        assert rows <= min(cap, replica.rows_max(0))
        assert all(in_time(piece, rows, replica) for piece in taken)


@given(single_rows, replicas, loads, loads)
def test_a_batch_of_one_row_is_not_predicted_late_where_any_could_be_in_time(
    lane: LaneSeen, replica: ReplicaSeen, sustaining: int, cap: int
) -> None:
    taken, _, rows = window(lane, replica, sustaining, cap, NOW_US)
    assume(in_time(lane.pieces[-1], 1, replica))
    assert all(in_time(piece, rows, replica) for piece in taken)


@given(single_rows, replicas, loads, loads)
def test_it_takes_as_many_as_their_head_allows(
    lane: LaneSeen, replica: ReplicaSeen, sustaining: int, cap: int
) -> None:
    taken, dropped, rows = window(lane, replica, sustaining, cap, NOW_US)
    assume(in_time(lane.pieces[-1], 1, replica))
    left = len(lane.pieces) - len(dropped) - len(taken)
    full = rows == min(cap, replica.rows_max(0))
    assert not left or full or not in_time(taken[0], rows + 1, replica)


@given(single_rows, replicas, loads, loads)
def test_what_is_given_up_could_only_have_run_in_a_batch_that_does_not_carry_the_load(
    lane: LaneSeen, replica: ReplicaSeen, sustaining: int, cap: int
) -> None:
    _, dropped, rows = window(lane, replica, sustaining, cap, NOW_US)
    cap = min(cap, replica.rows_max(0))
    for skip, piece in enumerate(dropped):
        wanted = min(sustaining, len(lane.pieces) - skip, cap)
        assert not in_time(piece, wanted, replica)
        assert rows >= wanted or not in_time(piece, rows + 1, replica)  # nor in one as large as what runs


@given(single_rows, replicas, loads)
def test_at_light_load_nothing_is_given_up_that_could_be_met_alone(
    lane: LaneSeen, replica: ReplicaSeen, cap: int
) -> None:
    _, dropped, _ = window(lane, replica, 1, cap, NOW_US)
    assert not any(in_time(piece, 1, replica) for piece in dropped)


@given(protected_rows, replicas, loads, loads)
def test_protected_pieces_are_never_given_up_and_run_first(
    lane: LaneSeen, replica: ReplicaSeen, sustaining: int, cap: int
) -> None:
    taken, dropped, _ = window(lane, replica, sustaining, cap, NOW_US)
    assert not any(piece.protected for piece in dropped)
    if lane.protected and in_time(lane.pieces[-1], 1, replica):
        assert taken[0] is lane.protected[0]


@given(single_rows, replicas, loads, loads, st.integers(0, 9))
def test_with_more_time_a_batch_is_not_smaller_than_before_or_than_what_carries_the_load(
    lane: LaneSeen, replica: ReplicaSeen, sustaining: int, cap: int, more_us: int
) -> None:
    assume(in_time(lane.pieces[-1], 1, replica))
    later = lane_of([replace(piece, deadline_us=piece.deadline_us + more_us) for piece in lane.pieces])
    _, _, rows = window(lane, replica, sustaining, cap, NOW_US)
    _, _, rows_later = window(later, replica, sustaining, cap, NOW_US)
    assert rows_later >= min(rows, sustaining)


@given(any_lanes, replicas, loads, loads, st.integers(1, 1000))
def test_only_the_time_that_is_left_counts(
    lane: LaneSeen, replica: ReplicaSeen, sustaining: int, cap: int, passed_us: int
) -> None:
    later = lane_of([replace(piece, deadline_us=piece.deadline_us + passed_us) for piece in lane.pieces])
    now = window(lane, replica, sustaining, cap, NOW_US)
    then = window(later, replica, sustaining, cap, NOW_US + passed_us)
    assert [piece.arrived_us for piece in now[0]] == [piece.arrived_us for piece in then[0]]
    assert [piece.arrived_us for piece in now[1]] == [piece.arrived_us for piece in then[1]]


def unlike(piece: PieceSeen) -> PieceSeen:
    """Of a size from 0 to 2."""
    return replace(piece, size=piece.arrived_us % 3)


def met_from(lane: LaneSeen, skip: int, replica: ReplicaSeen, cap: int) -> int:
    """How many of one row each, from that one on, meet its deadline together, by the largest of them."""
    due_us = lane.pieces[skip].deadline_us
    return max(
        (
            count
            for count in range(1, min(cap, replica.rows_max(0), len(lane.pieces) - skip) + 1)
            for size in [max(piece.size for piece in lane.pieces[skip : skip + count])]
            if NOW_US + replica.predict_us(count, size) <= due_us
        ),
        default=0,
    )


@given(lanes_of(pieces_of(st.just(1), st.just(False)).map(unlike)), st.integers(1, 12), loads, loads)
def test_of_unlike_sizes_a_batch_is_foretold_by_the_largest_in_it_not_by_the_largest_that_waits(
    lane: LaneSeen, rows_max: int, sustaining: int, cap: int
) -> None:
    replica = ReplicaSeen(dict.fromkeys(range(3), rows_max), 0.5, size_us=2.0)
    taken, dropped, rows = window(lane, replica, sustaining, cap, NOW_US)
    met = [met_from(lane, skip, replica, cap) for skip in range(len(lane.pieces))]
    assume(any(met))
    assert rows == len(taken) >= met[len(dropped)] > 0
    end_us = NOW_US + replica.predict_us(rows, max(piece.size for piece in taken))
    assert all(piece.deadline_us >= end_us for piece in taken)
    for skip, _ in enumerate(dropped):
        assert met[skip] < min(sustaining, len(lane.pieces) - skip, cap, rows_max)
