"""What `oracle` promises: enough replicas when the load comes, and no more than that."""

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines.scaling_oracle import Oracle
from tests.policy.scaling.baselines.fleets import TABLE, Fleet
from tests.seeds import drawn


def step(second: float) -> float:
    """From 200 rows a second to 2,000 for two minutes."""
    return 2000.0 if 120 <= second < 240 else 200.0


def future(start_us: int, end_us: int) -> float:
    """The mean of `step`, at a tenth of a second."""
    ticks = range(start_us, end_us, 100_000)
    return sum(step(each / 1e6) for each in ticks) / len(ticks)


@given(st.integers(1, 60))
@settings(max_examples=drawn(20))
def test_replicas_are_there_when_a_step_comes_however_long_they_take_to_start(start_s: int) -> None:
    fleet = Fleet(Oracle(future), step, start_s=start_s)
    fleet.ready = 3
    fleet.run(122)
    assert TABLE.rate(fleet.ready) >= 2000
    assert fleet.run(200)[-1] == TABLE.needed(200)
    assert fleet.seen.missed == 0


def test_it_has_no_replica_more_than_carry_the_load_before_a_start_would_be_due() -> None:
    fleet = Fleet(Oracle(future), step, start_s=5)
    assert set(fleet.run(110)[5:]) == {TABLE.needed(200)}
