"""For how long an idle model is kept: as long as nearly all gaps were, and no longer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.scaling.load.keepalive import EDGES_S, EVIDENCE, TAIL, UNKNOWN_S, KeepAlive


def idle(alive: KeepAlive, seconds: int, start_s: float = 10.0) -> int:
    """The seconds of a gap in which it is kept; the gap has an end."""
    kept = 0
    for _ in range(seconds):
        alive.look(False, 1.0)
        kept += alive.keeps(start_s)
    alive.look(True, 1.0)
    return kept


def test_before_there_is_evidence_it_is_kept_for_ten_minutes() -> None:
    assert idle(KeepAlive(), 2000) == UNKNOWN_S


def test_after_many_short_gaps_it_is_kept_for_little_longer_than_these() -> None:
    alive = KeepAlive()
    for _ in range(200):
        assert idle(alive, 20) == 20
    assert 20 <= idle(alive, 2000) <= 30


def test_a_rare_long_gap_does_not_keep_it_for_as_long() -> None:
    alive = KeepAlive()
    for _ in range(200):
        idle(alive, 20)
    idle(alive, 3000)
    assert idle(alive, 3000) <= 30


def test_a_job_every_half_an_hour_finds_it_there_and_it_is_gone_meanwhile() -> None:
    alive = KeepAlive()
    for _ in range(EVIDENCE):
        idle(alive, 1800)
    gone = 0
    for second in range(1800):
        alive.look(False, 1.0)
        gone += not alive.keeps(10.0)
        assert alive.keeps(10.0) or 20 <= second < 1750
    assert gone > 1000


def test_gaps_that_are_longer_than_the_histogram_tell_as_little_as_none() -> None:
    alive = KeepAlive()
    for _ in range(2 * EVIDENCE):
        alive.look(False, 2 * EDGES_S[-1])
        alive.look(True, 1.0)
    assert idle(alive, 2000) == UNKNOWN_S


@given(st.lists(st.integers(1, 5000), min_size=EVIDENCE, max_size=60))
def test_at_least_that_share_of_the_gaps_is_within_what_it_is_kept_for(gaps: list[int]) -> None:
    alive = KeepAlive()
    for gap in gaps:
        alive.look(False, float(gap))
        alive.look(True, 1.0)
    assert sum(gap <= alive.share_s(TAIL) for gap in gaps) >= TAIL * len(gaps)


@pytest.mark.parametrize("start_s", [1.0, 30.0, 300.0])
def test_who_asks_every_second_keeps_it(start_s: float) -> None:
    alive = KeepAlive()
    for _ in range(100):
        alive.look(True, 1.0)
        assert alive.keeps(start_s)
