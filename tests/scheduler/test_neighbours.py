"""Slices of one device slow each other down: what the scheduler plans with, and what it says of profiles."""

from collections.abc import Sequence

import pytest

from serving.policy.estimates.freshness import BATCHES, Freshness
from serving.policy.estimates.latency import ALONE, BESIDE, ENOUGH
from serving.scheduler.commands import Command, FlagProfile, RunBatch, Suspect
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import Replica
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import DEADLINE_UNREACHABLE
from tests.scheduler.values import only, outcomes, replica_of, request_of, send, served_model

ROW_US = 100_000
SLOWER = 1.5  # beside another
TOGETHER = {"s": "cpu", "t": "cpu"}


def house(
    devices: dict[str, str] | None = None, batching: BatchingSpec | None = None
) -> tuple[Scheduler, dict[str, Replica]]:
    """The model "m" on the slices s and t, which have learnt that batches beside others take SLOWER."""
    model = served_model(slo_us=10**6, batching=batching or BatchingSpec("static", size=1))
    scheduler = Scheduler([model], Limits(), ahead=False, devices=devices or TOGETHER)
    replicas = {}
    for number, name in enumerate("st", start=1):
        replica = replicas[name] = replica_of(model, replica_id=number, row_us=ROW_US)
        for _ in range(ENOUGH):
            replica.residuals.add(ROW_US, ROW_US, None)
            replica.residuals.add(ROW_US, round(SLOWER * ROW_US), None, beside=True)
        scheduler.replica_up(name, "m", replica, 0)
    return scheduler, replicas


def ask(scheduler: Scheduler, request_id: int, now_us: int = 0) -> RunBatch:
    """The batch that a request starts."""
    request = request_of(request_id, arrived_us=now_us, slack_us=10**6)
    (batch,) = send(scheduler, request, now_us=now_us)
    return batch


def test_a_batch_is_planned_by_whether_another_slice_is_busy_as_it_starts() -> None:
    scheduler, _ = house()
    first, second = ask(scheduler, 1), ask(scheduler, 2)
    assert first.slice != second.slice
    assert (first.beside, first.predicted_us) == (False, ROW_US)
    assert (second.beside, second.predicted_us) == (True, SLOWER * ROW_US)
    scheduler.batch_done(first.id, ROW_US, ROW_US)
    assert first.joined
    scheduler.batch_done(second.id, ROW_US, ROW_US)
    assert not second.joined
    third = ask(scheduler, 3, now_us=ROW_US)
    assert (third.beside, third.typical_us) == (False, ROW_US)


def test_slices_of_other_devices_are_no_neighbours() -> None:
    scheduler, _ = house({"s": "cuda:0", "t": "cuda:1"})
    batches = [ask(scheduler, 1), ask(scheduler, 2)]
    assert [batch.beside for batch in batches] == [False, False]
    scheduler.batch_done(batches[0].id, ROW_US, ROW_US)
    assert not batches[0].joined


def test_a_measurement_is_a_neighbour_too_and_a_slice_that_is_gone_is_none() -> None:
    scheduler, _ = house()
    scheduler.hold("t")
    first = ask(scheduler, 1)
    assert (first.slice, first.beside) == ("s", True)
    scheduler.batch_done(first.id, ROW_US, ROW_US)
    scheduler.slice_down("t", "killed", ROW_US)
    assert not ask(scheduler, 2, now_us=ROW_US).beside


def test_a_batch_is_learnt_as_what_it_was_planned_as() -> None:
    scheduler, replicas = house()
    first, second = ask(scheduler, 1), ask(scheduler, 2)
    for _ in range(3 * ENOUGH):
        assert replicas[second.slice].learn(second, 2 * ROW_US, 2 * ROW_US) in (True, False)
    assert replicas[second.slice].residuals.kappa_of(BESIDE) == pytest.approx(2.0)
    assert replicas[second.slice].residuals.kappa_of(ALONE) == pytest.approx(1.0)
    assert replicas[first.slice].residuals.kappa_of(BESIDE) == pytest.approx(SLOWER)


def test_a_batch_that_others_join_is_not_suspected_for_what_that_costs() -> None:
    scheduler, _ = house()
    first = ask(scheduler, 1)
    joined_us = int(SLOWER * ROW_US)
    assert first.predicted_us < joined_us
    assert not only(scheduler.wake(joined_us), Suspect)
    assert only(scheduler.wake(2 * joined_us), Suspect)


def test_what_is_promised_at_admission_holds_whoever_runs_beside_it() -> None:
    """Nothing runs at this moment; others may before it starts."""
    scheduler, _ = house(batching=BatchingSpec("slo", guard_us=0))
    between_us = int(1.2 * ROW_US)
    assert scheduler.models["m"].quickest_us(request_of(1)) == SLOWER * ROW_US
    for number in range(1, 5):  # rates are known
        assert outcomes(scheduler.arrive(request_of(number, slack_us=between_us), 0)) == {
            number: DEADLINE_UNREACHABLE
        }
    assert not scheduler.arrive(request_of(9, slack_us=int(SLOWER * ROW_US)), 0)


def flags(commands: Sequence[Command]) -> list[tuple[str, int, Freshness]]:
    return [(flag.slice, flag.replica, flag.freshness) for flag in only(commands, FlagProfile)]


def serve(scheduler: Scheduler, factor: float, first_id: int, count: int) -> list[tuple[str, int, Freshness]]:
    """So many batches, one after the other, that take so many times what is profiled; what is said of it."""
    said = []
    for number in range(first_id, first_id + count):
        now_us = number * 10**6
        batch = ask(scheduler, number, now_us)
        took_us = round(factor * ROW_US)
        said += flags(scheduler.batch_done(batch.id, took_us, now_us + took_us))
    return said


def test_a_profile_that_batches_do_not_bear_out_is_flagged_once_and_once_that_it_is_right_again() -> None:
    scheduler, _ = house()
    assert serve(scheduler, 1.0, 1, 2 * BATCHES) == []
    assert serve(scheduler, 1.3, 100, 2 * BATCHES) == [("s", 1, Freshness.STALE)]
    (judgement,) = (each for each in scheduler.judgements() if each.slice == "s")
    assert (judgement.freshness, judgement.beside) == (Freshness.STALE, None)
    assert judgement.ratio == judgement.alone == pytest.approx(1.3, abs=0.02)
    assert serve(scheduler, 1.0, 200, 2 * BATCHES) == [("s", 1, Freshness.FRESH)]


@pytest.mark.parametrize(
    ("row_us", "freshness"), [(1.3 * ROW_US, Freshness.FRESH), (ROW_US, Freshness.STALE)]
)
def test_a_new_profile_is_held_against_what_the_latest_batches_took(
    row_us: float, freshness: Freshness
) -> None:
    scheduler, _ = house()
    serve(scheduler, 1.3, 1, 2 * BATCHES)
    better = replica_of(served_model(slo_us=10**6), row_us=row_us)
    assert flags(scheduler.replica_up("s", "m", better, 10**9)) == [("s", 1, freshness)]
    batch = ask(scheduler, 500, 10**9)
    assert batch.typical_us == pytest.approx(1.3 * ROW_US, rel=0.01), "what was learnt is counted once"


def test_neighbours_are_blamed_for_what_happens_beside_them_only() -> None:
    scheduler, _ = house()
    said = []
    for number in range(1, 2 * BATCHES):
        now_us = number * 10**6
        first, second = ask(scheduler, 2 * number, now_us), ask(scheduler, 2 * number + 1, now_us)
        said += flags(scheduler.batch_done(first.id, ROW_US, now_us + ROW_US))
        late_us = round(SLOWER * ROW_US)
        said += flags(scheduler.batch_done(second.id, late_us, now_us + late_us))
    assert {freshness for _, _, freshness in said} == {Freshness.INTERFERED}


def test_a_batch_is_cold_unless_it_follows_another_of_its_replica_within_its_own_time() -> None:
    scheduler, _ = house()
    now_us, cold = 0, []
    for number, pause_us in enumerate([0, 0, ROW_US, ROW_US + 1], start=1):
        now_us += pause_us
        batch = ask(scheduler, number, now_us)
        cold.append(batch.cold)
        now_us += ROW_US
        scheduler.batch_done(batch.id, ROW_US, now_us)
    assert cold == [True, False, False, True]
