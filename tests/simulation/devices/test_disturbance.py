"""What others do to a slice takes as much of its time as was said, and loses no work."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.scheduler.commands import RunBatch
from serving.simulation.devices.device import BatchTimes, ExactDevice
from serving.simulation.devices.disturbance import DisturbedDevice
from serving.values.disturbance import Disturbance, check_apart, preempted, read_disturbances, shared, slowed
from tests.seeds import drawn

ROW_US = 1000


def device(*disturbances: Disturbance, seed: int = 0) -> DisturbedDevice:
    return DisturbedDevice(ExactDevice({("s", "m", "v"): lambda rows, _: rows * ROW_US}), disturbances, seed)


def take(of: DisturbedDevice, rows: int, start_us: int, staged: bool = False) -> int:
    batch = RunBatch(1, "s", [], rows)
    batch.model, batch.variant, batch.staged = "m", "v", staged
    taken: BatchTimes = of.take(batch, start_us, 0)
    assert taken.elapsed_us == taken.compute_us
    return taken.compute_us


@given(st.floats(1.1, 10), st.integers(1, 64), st.integers(0, 12_000_000))
def test_a_slow_down_lengthens_what_runs_within_it_by_its_factor(
    factor: float, rows: int, start_us: int
) -> None:
    took_us = take(device(slowed(5, 3, factor)), rows, start_us)
    end_us = start_us + took_us
    slow_us = max(0, min(end_us, 8_000_000) - max(start_us, 5_000_000))
    assert took_us - slow_us + slow_us / factor == pytest.approx(rows * ROW_US, abs=2)


@settings(max_examples=drawn(20))
@given(st.floats(0.1, 0.9), st.floats(5, 20), st.integers(0, 50))
def test_stops_take_their_share_in_the_mean(taken: float, longest_ms: float, seed: int) -> None:
    of = device(preempted(0, 40, taken, (4, longest_ms)), seed=seed)
    at_us = work_us = 0
    while at_us < 36_000_000:
        at_us += take(of, 500, at_us)
        work_us += 500 * ROW_US
    assert 1 - work_us / at_us == pytest.approx(taken, abs=0.05)


def test_a_neighbour_has_every_other_turn_and_no_batch_waits_for_longer_than_one_more() -> None:
    of = device(shared(0, 10))
    for start_ms in range(100, 8000, 37):
        assert 10_000 <= take(of, 10, start_ms * 1000) <= 10_000 + 4 * 3000 + 3000


def test_outside_of_a_disturbance_nothing_is_changed() -> None:
    of = device(preempted(1, 1, 0.5, (1, 50)))
    assert take(of, 7, 0) == take(of, 7, 3_000_000) == 7 * ROW_US


def test_a_batch_that_was_sent_ahead_starts_when_the_one_before_it_is_computed() -> None:
    of = device(slowed(0, 10, 2))
    assert take(of, 10, 1_000_000) == 20_000
    assert take(of, 10, 1_005_000, staged=True) == 20_000


def test_each_slice_has_stops_of_its_own_and_a_seed_gives_the_same_ones_again() -> None:
    def ran(seed: int) -> list[int]:
        of = device(preempted(0, 10, 0.5, (1, 50)), seed=seed)
        return [take(of, 10, at_us) for at_us in range(0, 9_000_000, 100_000)]

    assert ran(1) == ran(1) != ran(2)


def test_what_the_command_line_says_is_read() -> None:
    assert read_disturbances("slow(3,at=5,for=3)") == (slowed(5, 3, 3),)
    assert read_disturbances("neighbours(2,at=0,for=.5)+stops(0.3,at=5,for=3,ms=1..50)") == (
        shared(0, 0.5, 2),
        preempted(5, 3, 0.3, (1, 50)),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("slo(3,at=5,for=3)", "expected slow"),
        ("slow(3)", "expected slow"),
        ("slow(1,at=5,for=3)", "above 1, got 1"),
        ("slow(3,at=5,for=3,ms=1..50)", "only there"),
        ("stops(0.3,at=5,for=3)", "belongs to stops"),
        ("stops(1.3,at=5,for=3,ms=1..50)", "within 0..1"),
        ("stops(0.3,at=5,for=3,ms=50..1)", "low <= high"),
        ("neighbours(1.5,at=5,for=3)", "whole number"),
        ("neighbours(1,at=5,for=0)", "longer than 0 s"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_be_right(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_disturbances(text)


def test_two_at_a_time_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap at 6 s"):
        check_apart([slowed(6, 3, 2), shared(5, 3)])
