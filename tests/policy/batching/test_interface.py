"""What every policy may rely on when it cuts a batch from a lane."""

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.interface import take_prefix
from tests.policy.views import PieceSeen, waiting


@given(waiting, st.integers(1, 12))
def test_a_prefix_is_the_longest_that_fits_and_never_empty(
    pieces: tuple[PieceSeen, ...], rows_max: int
) -> None:
    fitting = [
        count
        for count in range(1, len(pieces) + 1)
        if sum(piece.rows for piece in pieces[:count]) <= rows_max
    ]
    expected = max(fitting, default=1)
    assert take_prefix(pieces, rows_max) == (expected, sum(piece.rows for piece in pieces[:expected]))


def test_a_piece_behind_one_that_does_not_fit_is_not_taken() -> None:
    assert take_prefix([PieceSeen(2), PieceSeen(3), PieceSeen(1)], 4) == (1, 2)


def test_a_piece_larger_than_the_batch_goes_alone() -> None:
    assert take_prefix([PieceSeen(9), PieceSeen(1)], 4) == (1, 9)
