"""What arbitration promises: whose batch must start soonest goes first, ties as they came."""

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.arbitration import most_urgent
from serving.policy.batching.seam import Choice

choices = st.lists(
    st.builds(Choice, latest_start_us=st.integers(0, 4), rows=st.integers(1, 9)), min_size=1, max_size=6
)


@given(choices)
def test_the_least_latest_start_wins_and_the_first_of_equals(several: list[Choice]) -> None:
    index = most_urgent(several)
    starts = [choice.latest_start_us for choice in several]
    assert starts[index] == min(starts)
    assert min(starts) not in starts[:index]


def test_a_long_batch_of_a_later_deadline_goes_before_a_short_one_that_could_still_wait() -> None:
    long = Choice(latest_start_us=100 - 90)
    short = Choice(latest_start_us=50 - 5)
    assert most_urgent([short, long]) == 1
