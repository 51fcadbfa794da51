"""What `ebird` promises: what waits is cut into powers of two, the largest first, within a bound."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.ebird import Ebird
from serving.vocabulary import NEVER_US
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, QueueSeen, ReplicaSeen, queues


def launch(size: int | None, pieces: tuple[PieceSeen, ...], rows_max: int, running: int = 0) -> list[int]:
    """The rows of the batches that go, one after the other, while none is back."""
    policy, gone = Ebird(size), []
    while pieces:
        view = QueueSeen((LaneSeen(pieces),), {"a": ReplicaSeen({0: rows_max})}, running_rows=running)
        choice = policy.choose(view, NOW_US)
        if choice.lane is None:
            assert choice.wake_us == NEVER_US  # until one is back
            break
        gone.append(choice.rows)
        running += choice.rows
        pieces = pieces[len(choice.pieces) :]
    return gone


def test_thirteen_rows_are_eight_four_and_one() -> None:
    assert launch(16, (PieceSeen(1),) * 13, 8) == [8, 4, 1]


@given(st.integers(1, 60), st.integers(1, 40), st.none() | st.integers(1, 70), st.integers(0, 50))
def test_batches_are_powers_of_two_in_descending_order_and_fill_the_bound_exactly(
    waiting: int, rows_max: int, size: int | None, running: int
) -> None:
    bound = rows_max if size is None else size
    gone = launch(size, (PieceSeen(1),) * waiting, rows_max, running)
    assert all(rows & (rows - 1) == 0 and rows <= rows_max for rows in gone)
    assert gone == sorted(gone, reverse=True)
    assert sum(gone) == min(waiting, max(bound - running, 0 if running else 1))


@given(
    st.lists(st.builds(PieceSeen, st.integers(1, 12)), min_size=1, max_size=20).map(tuple),
    st.integers(1, 16),
    st.integers(1, 20),
)
def test_requests_of_many_rows_keep_the_bound_too_or_go_alone(
    pieces: tuple[PieceSeen, ...], rows_max: int, size: int
) -> None:
    gone = launch(size, pieces, rows_max)
    assert gone
    assert sum(gone) <= size or len(gone) == 1


@given(queues)
def test_while_nothing_runs_it_never_waits(view: QueueSeen) -> None:
    answerable = any(variant in view.replicas for lane in view.lanes for variant in lane.variants)
    assert (Ebird(None).choose(view, NOW_US).lane is not None) == answerable


@pytest.mark.parametrize("running", [7, 8, 30])
def test_while_the_bound_is_reached_nothing_goes_and_then_what_fits(running: int) -> None:
    view = QueueSeen((LaneSeen((PieceSeen(2),) * 3),), running_rows=running)
    assert Ebird(8).choose(view, NOW_US).lane is None
    assert Ebird(8).choose(replace(view, running_rows=4), NOW_US).rows == 4
