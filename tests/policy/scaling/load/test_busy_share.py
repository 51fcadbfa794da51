"""How busy replicas were: the mean of the last half minute, whatever the looks were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.scaling.load.busy_share import LENGTH_S, BusyShare


@given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=60))
def test_it_is_the_mean_of_the_last_half_minute(busy: list[int]) -> None:
    load = BusyShare()
    for each in busy:
        load.add(each, 1_000_000)
    last = busy[-int(LENGTH_S) :]
    assert load.share == pytest.approx(sum(last) / 1e6 / len(last))


def test_before_anything_was_seen_nobody_is_busy() -> None:
    assert BusyShare().share == 0


def test_looks_that_come_late_weigh_as_much_as_they_are_long() -> None:
    load = BusyShare()
    load.add(9_000_000, 9_000_000)
    load.add(0, 1_000_000)
    assert load.share == pytest.approx(0.9)
