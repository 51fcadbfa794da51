"""What the ladder believes of variants that have not run for long, and of who may come."""

from serving.policy.estimates.freshness import COLD_US
from serving.policy.estimates.latency import TRY_US
from serving.policy.variants.selection import RISK
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.ladders import learn
from tests.scheduler.rungs import ask, ladder_on, laddered
from tests.scheduler.values import send

MODEL = laddered()

LONG_US = 20_000


def slowed(scheduler: Scheduler, variant: str, factor: float, compute_us: float, heard_us: int) -> None:
    """The variant's batches take so long, `factor` times their profile, the latest at `heard_us`."""
    replica = scheduler.models["m"].slices[0].queues["m"].replicas[variant]
    replica.residuals.restart([(factor, False, compute_us)] * 40)
    replica.ran_us = compute_us
    replica.doubt.heard(1, 1.0, heard_us)


def test_who_has_not_run_for_long_is_believed_to_be_slowed_down_as_those_are_that_have() -> None:
    scheduler = ladder_on(MODEL)
    replicas = scheduler.models["m"].slices[0].queues["m"].replicas
    slowed(scheduler, "fast", 2.0, 1e9, heard_us=10 * TRY_US)
    slowed(scheduler, "best", 3.0, 1e9, heard_us=0)
    row_us = {"best": 300.0, "fast": 20.0}  # as they were last seen
    trust = learn(replicas, row_us, 10 * TRY_US + 1)
    assert round(trust["best"], 3) == round(2 / 3, 3)
    assert round(row_us["best"]) == 200
    assert round(row_us["fast"]) == 20


def test_what_short_batches_cost_after_a_pause_is_not_the_machines_doing() -> None:
    scheduler = ladder_on(MODEL)
    replicas = scheduler.models["m"].slices[0].queues["m"].replicas
    slowed(scheduler, "fast", 8.0, COLD_US / 3, heard_us=10 * TRY_US)
    row_us = {"best": 300.0}
    learn(replicas, row_us, 10 * TRY_US + 1)
    assert row_us["best"] == 300.0


def test_after_a_pause_of_all_what_each_has_learnt_still_counts() -> None:
    scheduler = ladder_on(MODEL)
    replicas = scheduler.models["m"].slices[0].queues["m"].replicas
    slowed(scheduler, "best", 3.0, 1e9, heard_us=0)
    row_us = {"best": 300.0}
    assert learn(replicas, row_us, 10 * TRY_US) == {}
    assert row_us == {"best": 300.0}


def test_a_request_for_one_variant_is_not_held_to_the_batches_of_another_lanes() -> None:
    scheduler = ladder_on(MODEL)
    send(scheduler, ask(MODEL, 1))
    here = scheduler.models["m"].slices[0].queues["m"]
    assert here.rows_most < 1 << 30
    pinned = ask(MODEL, 2, variant="fast")
    scheduler.arrive(pinned, 0)
    (lane,) = here.queue.lanes
    here.answering(lane, 0)
    assert here.rows_most == 1 << 30


def test_a_model_whose_traffic_has_ended_keeps_nobody_off_the_better_variants() -> None:
    scheduler = ladder_on(MODEL)
    for number in range(50):
        send(scheduler, ask(MODEL, number, at_us=number * 1000), now_us=number * 1000)
    comers = scheduler.models["m"].queue.comers
    assert comers is not None
    comers.review(50_000)
    assert comers.rate * LONG_US > RISK
    assert comers.patience_us
    comers.review(50_000 + 60_000_000)
    assert comers.rate * LONG_US < RISK
    assert not comers.patience_us
