"""What is promised of a batch that is late: hiccups are waited for, and a dead worker is not believed in."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.estimates.suspicion import LAG_SHARE, LAG_US, believed_us, suspect_us

instants = st.integers(0, 200_000)
latencies = st.floats(0, 300_000)


@given(instants, latencies)
def test_a_slice_is_doubted_after_a_hiccup_and_no_later_than_a_fifth_of_a_long_batch(
    started_us: int, predicted_us: float
) -> None:
    late_us = suspect_us(started_us, predicted_us) - started_us - predicted_us
    assert max(LAG_US, LAG_SHARE * predicted_us) <= late_us < max(LAG_US, LAG_SHARE * predicted_us) + 1 + 1e-6


@given(instants, latencies, st.integers(0, 900_000))
def test_a_batch_is_expected_when_predicted_and_then_after_as_long_again_as_it_is_late(
    started_us: int, predicted_us: float, gone_us: int
) -> None:
    now_us, due_us = started_us + gone_us, started_us + ceil(predicted_us)
    expected_us = believed_us(due_us, now_us)
    assert expected_us >= now_us
    assert expected_us == (due_us if now_us < due_us else 2 * now_us - due_us)


@given(instants, latencies, st.integers(0, 900_000), st.integers(0, 900_000))
def test_the_longer_it_is_out_the_later_it_is_expected(
    started_us: int, predicted_us: float, gone_us: int, more_us: int
) -> None:
    due_us = started_us + ceil(predicted_us)
    sooner, later = (believed_us(due_us, started_us + us) for us in (gone_us, gone_us + more_us))
    assert sooner <= later
