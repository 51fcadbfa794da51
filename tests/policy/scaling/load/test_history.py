"""What came is in the bin in which it came, and nothing is lost between two calls."""

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.scaling.load.history import COARSE_COUNT, COARSE_S, FINE_COUNT, FINE_S, History

SECOND_US = 1_000_000


def played(counts: list[int], gap_s: int = 1) -> History:
    """So many came in each gap."""
    history, seen = History(0), 0
    for step, count in enumerate(counts, start=1):
        seen += count
        history.tell(seen, step * gap_s * SECOND_US)
    return history


def test_a_bin_is_told_when_it_is_over() -> None:
    assert played([1] * 9).bins() == ((), FINE_S)
    assert played([1] * 10).bins() == ((10,), FINE_S)
    assert played([1] * 35).bins() == ((10, 10, 10), FINE_S)


def test_seconds_in_which_nobody_told_anything_hold_nothing() -> None:
    history = played([5] * 10)
    history.tell(53, 40 * SECOND_US)
    assert history.bins()[0] == (50, 3, 0, 0)


@given(st.lists(st.integers(0, 9), max_size=200), st.integers(1, 30))
def test_nothing_is_lost_or_counted_twice(counts: list[int], gap_s: int) -> None:
    history = played(counts, gap_s)
    bins, bin_s = history.bins()
    over = int(len(counts) * gap_s / bin_s)
    assert len(bins) == over
    history.tell(sum(counts), (len(counts) * gap_s + 10) * SECOND_US)
    assert sum(history.bins()[0]) == sum(counts)


def test_what_is_long_ago_is_kept_coarsely() -> None:
    minutes = FINE_COUNT * FINE_S // 60 * 2
    history = played([60] * minutes, gap_s=60)
    bins, bin_s = history.bins()
    assert bin_s == COARSE_S
    assert set(bins[1:]) == {120}
    assert len(bins) == minutes * 60 // COARSE_S


def test_after_a_long_silence_it_holds_zeros_and_is_no_larger() -> None:
    history = played([7] * 10)
    history.tell(70, 400 * 86_400 * SECOND_US)
    bins, bin_s = history.bins()
    assert (len(bins), sum(bins), bin_s) == (COARSE_COUNT, 0, COARSE_S)
    history.tell(75, (400 * 86_400 + 5 * COARSE_S) * SECOND_US)
    assert sum(history.bins()[0]) == 5
