"""Promises of what a gateway reports of itself to others."""

import pytest

from router.management.cells import SENT_S, SentRates


def test_rates_follow_the_counts_of_requests() -> None:
    rates = SentRates()
    assert rates.look({"t": 500}, 0) == {"t": 0.0}
    for second in range(1, 10 * int(SENT_S)):
        found = rates.look({"t": 500 + 40 * second, "new": 0}, second * 1_000_000)
    assert found["t"] == pytest.approx(40, rel=0.01)
    assert found["new"] == 0
    assert rates.look({}, 60_000_000) == {}
