"""What `inferline` promises: it sees bursts at an unchanged mean, and comes down with care."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.scaling.baselines.inferline import DOWN_S, DOWN_WINDOW_S, STABLE_US, InferLine
from serving.policy.scaling.interface import LoadReport
from tests.policy.scaling.baselines.fleets import TABLE, Fleet, changes, shown
from tests.seeds import drawn


def tell(policy: InferLine, second: int, rows: list[int], ready: int) -> int:
    """What it wishes for after the `second` in which the last of these came."""
    seen, before = sum(rows), sum(rows[:-1])
    view = shown(
        second,
        seen=LoadReport("m", offered=seen, requests=seen),
        before=LoadReport("m", offered=before, requests=before),
        ready=ready,
    )
    return policy.decide(view).count


def test_more_than_the_plan_within_one_second_is_provided_for_at_once() -> None:
    policy, came = InferLine(), [100] * 20
    for second in range(1, 21):
        assert tell(policy, second, came[:second], 2) == 2
    came.append(900)
    assert tell(policy, 21, came, 2) == TABLE.needed(900)


def test_a_slow_excess_is_seen_in_a_long_window_before_a_short_one_shows_it() -> None:
    policy, came = InferLine(), []
    carried = TABLE.rate(4)
    slightly = round(carried * 1.1)
    counts = []
    for second in range(1, 41):
        came.append(slightly)
        counts.append(tell(policy, second, came, 4))
    assert slightly < carried + 4 * carried**0.5  # no single second exceeds its envelope
    assert counts[0] == 4
    assert counts[-1] == TABLE.needed(slightly)


@given(st.integers(0, 100))
@settings(max_examples=5)
def test_arrivals_that_come_in_bursts_at_the_same_mean_get_more_replicas(seed: int) -> None:
    """The paper's own point against scalers that see mean rates: a CV of 1 and then of 4."""
    draws = np.random.default_rng(seed)

    def come(cv: float) -> list[float]:
        gaps = draws.gamma(1 / cv**2, cv**2 / 400.0, size=400 * 300)
        return [float(each) for each in np.histogram(np.cumsum(gaps), bins=120, range=(0, 120))[0]]

    peaks = []
    for cv in (1.0, 4.0):
        rows = come(cv)
        fleet = Fleet(InferLine(), lambda second, rows=rows: rows[second - 1])  # type: ignore[misc]
        peaks.append(float(np.mean(fleet.run(120)[40:])))
    assert peaks[1] > peaks[0]


def test_it_comes_down_to_the_largest_rate_of_5_s_within_the_last_30_s() -> None:
    fleet = Fleet(InferLine(), lambda second: 2000.0 if second <= 60 else 300.0)
    high = fleet.run(60)[-1]
    after = fleet.run(120)
    down = next(each for each, count in enumerate(after) if count < high)
    assert DOWN_S - DOWN_WINDOW_S <= down <= DOWN_S + 1
    assert after[-1] == TABLE.needed(300)


def test_after_any_change_it_waits_for_15_s_before_it_comes_down() -> None:
    def rate(second: int) -> float:
        return 3000.0 if second % 47 == 0 else 500.0

    fleet = Fleet(InferLine(), rate)
    counts = fleet.run(400)
    last = -100
    for each in range(1, len(counts)):
        if counts[each] < counts[each - 1]:
            assert each - last >= STABLE_US // 1_000_000
        if counts[each] != counts[each - 1]:
            last = each


def test_rows_that_come_together_widen_the_envelope() -> None:
    policy, seen = InferLine(), LoadReport("m")
    for second in range(1, 30):
        before, rows = seen, 640 if second % 2 else 320  # requests of 32 rows
        seen = LoadReport("m", offered=seen.offered + rows, requests=seen.requests + rows // 32)
        count = policy.decide(shown(second, seen=seen, before=before, ready=6)).count
        assert count <= 6


@given(st.integers(0, 5000))
@settings(max_examples=drawn(20))
def test_constant_load_does_not_move_it_once_settled(rate: int) -> None:
    fleet = Fleet(InferLine(), lambda second: float(rate))
    fleet.run(120)
    settled = fleet.run(600)
    assert changes(settled) == 0
    assert settled[0] == max(TABLE.needed(rate), 1)


@pytest.mark.parametrize("target", [0.5, 0.8])
def test_the_target_leaves_a_share_unused(target: float) -> None:
    fleet = Fleet(InferLine(target), lambda second: 1000.0)
    assert fleet.run(200)[-1] == TABLE.needed(1000 / target)
