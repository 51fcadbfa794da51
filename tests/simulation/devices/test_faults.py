"""What breaks in a simulation breaks as it does in a gateway, and when the seed says."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from loadtests.virtual.virtual_world import Run, World
from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.devices.faults import FAULTS_MAX, Fault, Hazards, draw_faults
from serving.simulation.engine import Simulation
from serving.simulation.traffic.arrivals import Arrival
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import COMPLETED, NOT_LOADED, Outcome

SECOND_US = 1_000_000
BACKOFF_US, START_US, LOAD_US = 100_000, 200_000, 1_400_000
AT_ONCE = World(BatchingSpec("static", guard_us=0), models=2)


class Watched(Run):
    """A run that keeps when batches start, and which requests could not wait for a replica."""

    def __init__(self, world: World, faults: Sequence[Fault]) -> None:
        self.started_us: list[int] = []
        self.turned_away_us: list[int] = []
        super().__init__(world, 0, faults)

    def ran(self, batch: RunBatch, start_us: int, end_us: int) -> None:
        self.started_us.append(start_us)

    def answered(self, answer: Answer, now_us: int) -> None:
        if answer.outcome is NOT_LOADED:
            self.turned_away_us.append(answer.request.arrived_us)


class Ended(Run):
    """A run that keeps how requests ended, and how long the slowest took."""

    def __init__(self, world: World, seed: int, faults: Sequence[Fault]) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.longest_us = 0
        super().__init__(world, seed, faults)

    def answered(self, answer: Answer, now_us: int) -> None:
        self.outcomes[answer.outcome] += 1
        self.longest_us = max(self.longest_us, now_us - answer.request.arrived_us)


def watched(world: World, faults: Sequence[Fault], arrivals: Sequence[Arrival]) -> Watched:
    run = Watched(world, faults)
    run.play(arrivals)
    return run


def away_us(crashes_us: Sequence[int], model: int) -> tuple[int, int]:
    """From when to when a model cannot be asked, to 10 ms, where the only slice dies at these instants.
    A later request has time enough to wait for it."""
    faults = [Fault(at_us, "s0") for at_us in crashes_us]
    arrivals = [Arrival(at_us, model) for at_us in range(5000, 20 * SECOND_US, 10_000)]
    away = watched(AT_ONCE, faults, arrivals).turned_away_us
    assert len(away) == (away[-1] - away[0]) / 10_000 + 1  # at a stretch
    return away[0], away[-1]


def test_a_worker_that_died_is_started_after_a_back_off_and_loads_its_models_one_by_one() -> None:
    for model in (0, 1):
        from_us, until_us = away_us([SECOND_US], model)
        back_us = SECOND_US + BACKOFF_US + START_US + (1 + model) * LOAD_US
        assert SECOND_US <= from_us <= SECOND_US + 10_000
        assert back_us - AT_ONCE.slo_us - 10_000 <= until_us <= back_us


def test_a_worker_that_dies_while_it_loads_begins_anew_and_its_back_off_doubles() -> None:
    _, until_us = away_us([SECOND_US, 2 * SECOND_US], 0)
    back_us = 2 * SECOND_US + 2 * BACKOFF_US + START_US + LOAD_US
    assert back_us - AT_ONCE.slo_us - 10_000 <= until_us <= back_us


def test_a_worker_that_answered_for_a_second_since_begins_its_back_off_anew_as_in_control() -> None:
    asked = [Arrival(at_us, 0) for at_us in range(7 * SECOND_US, 20 * SECOND_US, 10_000)]
    away = watched(AT_ONCE, [Fault(at * SECOND_US, "s0") for at in (1, 2, 8)], asked).turned_away_us
    back_us = 8 * SECOND_US + BACKOFF_US + START_US + LOAD_US
    assert back_us - AT_ONCE.slo_us - 10_000 <= away[-1] <= back_us


def test_requests_with_time_enough_wait_for_the_worker_that_is_started_again() -> None:
    patient = replace(AT_ONCE, models=1, slo_us=5 * SECOND_US)
    run = Ended(patient, 0, [Fault(SECOND_US, "s0")])
    run.play([Arrival(at_us, 0) for at_us in range(5000, 3 * SECOND_US, 10_000)])
    assert run.outcomes == {COMPLETED: 300}
    assert run.longest_us > BACKOFF_US + START_US + LOAD_US - 10_000


def test_a_slice_that_stalls_starts_nothing_even_where_it_had_nothing_to_do() -> None:
    stalled = Fault(SECOND_US, "s0", 300_000)
    run = watched(AT_ONCE, [stalled], [Arrival(900_000, 0), Arrival(SECOND_US + 1000, 0)])
    assert run.started_us == [900_000, SECOND_US + 300_000]


def test_a_batch_that_runs_when_its_slice_stalls_is_back_that_much_later() -> None:
    calm, stalled = (
        Simulation(AT_ONCE.site(), Run(AT_ONCE).device, faults).play([Arrival(SECOND_US, 0)]).waits_us
        for faults in ([], [Fault(SECOND_US + 1000, "s0", 300_000)])
    )
    assert stalled == [calm[0] + 300_000]


def test_a_new_worker_does_not_inherit_the_stall_of_the_one_that_died() -> None:
    faults = [Fault(SECOND_US, "s0", 60 * SECOND_US), Fault(SECOND_US + 1, "s0")]
    alone = replace(AT_ONCE, models=1)
    run = watched(alone, faults, [Arrival(4 * SECOND_US, 0)])
    assert run.started_us == [4 * SECOND_US]


def test_faults_are_as_frequent_as_asked_each_slice_alone_and_follow_from_the_seed() -> None:
    hazards = Hazards(crash_mtbf_s=10, stall_mtbf_s=20, stall_us=5000)
    faults = hazards.draw(["a", "b"], 20_000, seed=3)
    assert faults == sorted(faults) == hazards.draw(["a", "b"], 20_000, seed=3)
    assert faults != hazards.draw(["a", "b"], 20_000, seed=4)
    for name in ("a", "b"):
        here = [fault for fault in faults if fault.slice == name]
        assert sum(fault.crash for fault in here) == pytest.approx(2000, rel=0.1)
        assert sum(fault.stall_us == 5000 for fault in here) == pytest.approx(1000, rel=0.1)


def test_crashes_and_stalls_that_are_as_frequent_do_not_come_together() -> None:
    both = Hazards(10, 10, 5000).draw(["a"], 1000, seed=0)
    assert len({fault.at_us for fault in both}) == len(both)


def test_what_cannot_be_drawn_is_refused() -> None:
    assert Hazards().draw(["a"], 1000, 0) == []
    with pytest.raises(ValueError, match="at most 1,000,000"):
        draw_faults(["a"], 1.1 * FAULTS_MAX, 1, 0, 0)
    with pytest.raises(ValueError, match="must be above 0 s"):
        draw_faults(["a"], 1, 0, 0, 0)
