"""Which variant answers: the most accurate that deadlines and load allow, and never one below the floor."""

from dataclasses import replace
from math import inf

import pytest

from loadtests.virtual.virtual_world import VirtualModel, offer, offer_steps
from serving.policy.variants.climbing import RISE_US
from serving.scheduler.admission import REVIEW_US
from serving.scheduler.commands import RunBatch
from serving.scheduler.models.variant_reasons import variant_reasons_of
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.contention import LATENESS_US
from serving.simulation.traffic.patterns import RateStep
from serving.values.objectives import BALANCED, CHEAPEST, Needs
from serving.values.specs import ServedModel
from serving.values.vocabulary import COMPLETED, DEADLINE_UNREACHABLE, NEVER_US
from tests.scheduler.rungs import (
    ACCURACY,
    ANY,
    BATCH_MAX,
    BEST_RATE,
    ROW_US,
    SLO_US,
    WORLD,
    ask,
    ladder_on,
    laddered,
    rung_of,
    virtual,
    watch,
)
from tests.scheduler.values import only, outcomes, rows_of, send

MODEL = laddered()
HOUR_S = 3600
AIR_US = 3_000
"""More than a tight deadline needs, lest one that comes meanwhile could not be answered any more."""


def answering(scheduler: Scheduler, model: ServedModel = MODEL, **asked: object) -> RunBatch:
    """The batch that one request becomes."""
    (batch,) = send(scheduler, ask(model, **asked))  # type: ignore[arg-type]
    return batch


def plans_us(variant: str) -> int:
    """The least slack with which it answers one row: its estimate, with the margin of one that has not been
    borne out yet, and what wake-ups are late by until that has been measured."""
    return int(rung_of(MODEL, variant).predict_us(1, 0)) + LATENESS_US


def named(batch: RunBatch) -> tuple[str, str]:
    return batch.variant, batch.downgrade


# without pressure


def test_at_idle_the_most_accurate_answers() -> None:
    assert named(answering(ladder_on(MODEL))) == ("best", "")


@pytest.mark.parametrize(
    ("needs", "variant"),
    [
        (Needs(optimize=CHEAPEST), "fast"),
        (Needs(optimize=BALANCED), "good"),
        (Needs(optimize=CHEAPEST, accuracy_min=0.7), "good"),
        (Needs(tolerance=0.05), "best"),
        (Needs(optimize=CHEAPEST, tolerance=0.1), "good"),
        (Needs(accuracy_min=0.1), "best"),
        (Needs(), "best"),
    ],
)
def test_what_is_best_within_what_is_stated_answers_at_idle(needs: Needs, variant: str) -> None:
    model = laddered(needs)
    assert named(answering(ladder_on(model), model)) == (variant, "")


def test_of_a_model_of_which_nothing_is_stated_no_other_variant_ever_answers() -> None:
    """It is rather refused."""
    model = laddered(Needs())
    assert named(answering(ladder_on(model), model, slack_us=10_000)) == ("best", "")
    scheduler = ladder_on(model)
    refused = ask(model, slack_us=9_000)
    assert outcomes(scheduler.arrive(refused, 0)) == {1: DEADLINE_UNREACHABLE}


def test_a_variant_that_is_less_accurate_and_slower_never_answers() -> None:
    model = laddered(accuracy={"best": 0.9, "good": 0.5, "fast": 0.6})
    scheduler = ladder_on(model)
    slacks = range(1_000, 40_000, 500)
    seen = {answering(ladder_on(model), model, slack_us=slack).variant for slack in slacks}
    assert seen == {"best", "fast"}
    (ladder,) = variant_reasons_of(scheduler.models["m"], 0).ladders[""]
    assert [rung.variant for rung in ladder.rungs] == ["best", "fast"]


def test_where_not_all_accuracies_are_known_the_order_of_the_variants_counts() -> None:
    model = laddered(accuracy={"best": None, "good": None, "fast": None})
    assert named(answering(ladder_on(model), model)) == ("best", "")
    slack_us = plans_us("good") + AIR_US
    assert named(answering(ladder_on(model), model, slack_us=slack_us)) == ("good", "deadline")


# a request's own deadline, floor and variant


@pytest.mark.parametrize(
    ("slack_us", "variant", "why"),
    [
        (plans_us("best") + AIR_US, "best", ""),
        (plans_us("best") - 1, "good", "deadline"),
        (plans_us("good") + AIR_US, "good", "deadline"),
        (plans_us("good") - 1, "fast", "deadline"),
        (1_000, "fast", "deadline"),
    ],
)
def test_a_tight_deadline_is_answered_by_the_best_that_meets_it(
    slack_us: int, variant: str, why: str
) -> None:
    assert named(answering(ladder_on(MODEL), slack_us=slack_us)) == (variant, why)


def test_a_tight_deadline_steps_down_alone_others_keep_the_best() -> None:
    scheduler = ladder_on(MODEL, ("s", "t"))
    assert named(answering(scheduler, slack_us=3_000)) == ("fast", "deadline")
    assert named(answering(scheduler, request_id=2)) == ("best", "")


def test_a_request_with_a_floor_of_its_own_is_refused_rather_than_answered_below_it() -> None:
    scheduler = ladder_on(MODEL)
    assert named(answering(scheduler, slack_us=4_000, accuracy_min=0.7)) == ("good", "deadline")
    scheduler = ladder_on(MODEL)
    refused = ask(MODEL, slack_us=3_000, accuracy_min=0.7)
    assert outcomes(scheduler.arrive(refused, 0)) == {1: DEADLINE_UNREACHABLE}


def test_a_request_for_one_variant_is_answered_by_it_whatever_the_others_get() -> None:
    scheduler = ladder_on(MODEL, ("s", "t"))
    first, second = send(
        scheduler, ask(MODEL, 1, slack_us=3_000), ask(MODEL, 2, slack_us=11_000, variant="best")
    )
    assert {named(first), named(second)} == {("fast", "deadline"), ("best", "")}


# what is resident, and what it costs


def test_a_variant_that_is_not_on_the_slice_is_said_to_be_absent() -> None:
    assert named(answering(ladder_on(MODEL, variants=("good", "fast")))) == ("good", "absent")


def test_a_variant_that_comes_answers_from_then_on_and_one_that_goes_no_more() -> None:
    scheduler = ladder_on(MODEL, variants=("good",))
    first = answering(scheduler)
    assert scheduler.replica_up("s", "m", rung_of(MODEL, "best", 9), 10) == []
    scheduler.batch_done(first.id, 4_000, 4_000)
    (second,) = send(scheduler, ask(MODEL, 2, at_us=5_000), now_us=5_000)
    assert named(second) == ("best", "")
    scheduler.batch_done(second.id, 10_000, 15_000)
    scheduler.replica_down("s", "m", "best", "why", 16_000)
    (third,) = send(scheduler, ask(MODEL, 3, at_us=20_000), now_us=20_000)
    assert named(third) == ("good", "absent")


@pytest.mark.parametrize(
    ("cost_max", "found"),
    [
        (10_001.0, ("best", "")),
        (9_999.0, ("good", "cost")),
        (3_999.0, ("fast", "cost")),
        (1.0, ("fast", "cost")),
    ],
)
def test_a_ceiling_of_cost_is_kept_where_any_variant_keeps_it_and_else_the_cheapest_answers(
    cost_max: float, found: tuple[str, str]
) -> None:
    """A slice of HOUR_S an hour costs 1 a second: a million rows of N us cost N."""
    model = laddered(Needs(cost_max=cost_max))
    assert named(answering(ladder_on(model, price=HOUR_S), model)) == found


def test_on_slices_without_a_price_nothing_is_too_dear() -> None:
    model = laddered(Needs(cost_max=0.001))
    assert named(answering(ladder_on(model), model)) == ("best", "")


@pytest.mark.parametrize(("optimize", "variant"), [(CHEAPEST, "fast"), (BALANCED, "good")])
def test_a_better_one_that_is_absent_is_no_reason_where_it_would_not_have_answered(
    optimize: str, variant: str
) -> None:
    model = laddered(Needs(optimize=optimize))
    assert named(answering(ladder_on(model), model)) == (variant, "")
    assert named(answering(ladder_on(model, variants=("good", "fast")), model)) == (variant, "")


# the queue and the load


def test_what_waits_together_is_answered_by_what_clears_it_in_time() -> None:
    """20 rows at 10 ms are too many for 100 ms, at 4 ms not."""
    scheduler = ladder_on(MODEL)
    (batch,) = send(scheduler, *[ask(MODEL, number) for number in range(20)])
    assert named(batch) == ("good", "backlog")
    scheduler = ladder_on(MODEL)
    (batch,) = send(scheduler, *[ask(MODEL, number) for number in range(70)])
    assert named(batch) == ("fast", "backlog")


@pytest.mark.parametrize("count", [1, 3, 5])
def test_what_is_chosen_does_not_outlast_its_slack(count: int) -> None:
    """A choice is kept while nothing happens: but time passes."""
    scheduler = ladder_on(MODEL)
    scheduler.hold("s")
    assert not send(scheduler, *[ask(MODEL, number) for number in range(count)])
    here = scheduler._slices["s"].queues["m"]
    (lane,) = here.lanes
    assert here.recall(0) is None
    here.remember(here.policy.choose(here, 0))
    at_us = 0
    while (choice := here.recall(at_us)) is not None:
        found = here.answering(lane, at_us)
        assert found is not None
        assert found[0] == choice.variant == "best"
        at_us += 500
    assert 0 < at_us < SLO_US


def test_a_choice_that_waited_is_made_anew_when_its_time_is_up() -> None:
    scheduler = ladder_on(MODEL)
    scheduler.hold("s")
    assert not send(scheduler, ask(MODEL))
    (batch,) = only(scheduler.release("s", SLO_US - plans_us("good")), RunBatch)
    assert named(batch) == ("good", "deadline")


def test_a_batch_that_failed_is_tried_again_by_variants_that_its_requests_allow() -> None:
    scheduler = ladder_on(MODEL, variants=("good", "fast"))
    (batch,) = send(scheduler, *[ask(MODEL, number, accuracy_min=0.7) for number in (1, 2)])
    assert batch.variant == "good"
    (first,) = only(scheduler.batch_failed(batch.id, "why", SLO_US - 4_000), RunBatch)
    assert first.variant == "good"


def test_the_rows_of_a_lost_worker_are_answered_elsewhere_within_their_floor() -> None:
    scheduler = ladder_on(MODEL, ("s",), ("best", "good"))
    for number, variant in enumerate(("good", "fast"), start=5):
        scheduler.replica_up("t", "m", rung_of(MODEL, variant, number), 0)
    scheduler.hold("t")
    (batch,) = send(scheduler, ask(MODEL, accuracy_min=0.7))
    assert batch.variant == "best"
    scheduler.slice_down("s", "why", SLO_US - 4_000)
    (again,) = only(scheduler.release("t", SLO_US - 4_000), RunBatch)
    assert again.variant == "good"


def test_admission_goes_by_the_quickest_that_may_answer_not_by_the_best() -> None:
    scheduler = ladder_on(MODEL)
    (batch,) = send(scheduler, ask(MODEL))
    scheduler.batch_done(batch.id, 10_000, 10_000)
    at_us = 10_000 + REVIEW_US
    tight = ask(MODEL, 2, at_us=at_us, slack_us=1_500)
    assert scheduler.arrive(tight, at_us) == ()
    floored = ask(MODEL, 3, at_us=at_us, slack_us=1_500, accuracy_min=0.7)
    assert outcomes(scheduler.arrive(floored, at_us)) == {3: DEADLINE_UNREACHABLE}


def test_who_wants_it_otherwise_shares_a_batch_where_the_same_variant_answers_and_nobody_else_does() -> None:
    """The first is in a hurry, the second wants the cheapest, the third nothing so inaccurate."""
    model = laddered(ANY, (Needs("cheap", optimize=CHEAPEST),))
    scheduler = ladder_on(model)
    hurried = ask(model, 1, slack_us=plans_us("fast") + AIR_US)
    (batch,) = send(scheduler, hurried, ask(model, 2, tier="cheap"), ask(model, 3, accuracy_min=0.7))
    assert (batch.variant, sorted(rows_of(batch))) == ("fast", [1, 2])


def test_who_is_quickest_alone_answers_what_is_in_too_great_a_hurry_for_the_ladder() -> None:
    """In large batches the good one takes less of a slice's time, and one batch of it is long."""
    rungs = (("best", 0.9, 10_000.0, 500.0), ("good", 0.8, 10.0, 9_000.0), ("fast", 0.6, 2_000.0, 0.0))
    world = replace(WORLD, unlike=(VirtualModel(slo_us=SLO_US, variants=rungs, needs=ANY),))
    run, _ = watch(world, offer(world, 400.0, 1.0, seed=1))
    (served,), now_us = run.site.served, 2_000_000
    (ladder,) = variant_reasons_of(run.scheduler.models["m0"], now_us).ladders[""]
    assert [rung.variant for rung in ladder.rungs] == ["best", "good"]
    hurried = ask(served, 10_000, at_us=now_us, slack_us=5_000)
    assert run.scheduler.arrive(hurried, now_us) == ()
    (batch,) = only(run.scheduler.wake(now_us), RunBatch)
    assert named(batch) == ("fast", "deadline")


# over time


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_load_steps_down_without_a_loss_and_says_why_and_comes_back_when_it_falls(seed: int) -> None:
    world = virtual()
    calm, rush = 0.4 * BEST_RATE, 2.0 * BEST_RATE
    steps = [RateStep(calm, 4.0), RateStep(rush, 4.0), RateStep(calm, 16.0)]
    run, ran = watch(world, offer_steps(world, steps, seed), seed)
    assert run.tally.attainment >= 0.999
    overloaded = [batch for at_us, batch in ran.batches if 5_000_000 <= at_us < 8_000_000]
    stepped = [batch for batch in overloaded if batch.variant != "best"]
    assert len(stepped) > 0.5 * len(overloaded)
    assert {batch.downgrade for batch in stepped} <= {"load", "backlog", "deadline"}
    assert all(batch.downgrade == "" for _, batch in ran.batches if batch.variant == "best")
    half_life_us = 5_000_000
    later = ran.variants(8_000_000 + RISE_US + 2 * half_life_us)
    assert later.count("best") >= 0.9 * len(later)


@pytest.mark.slow
@pytest.mark.parametrize("times", [0.5, 2.0, 6.0, 15.0])
def test_no_answer_is_ever_below_the_floor_of_its_tier(times: float) -> None:
    tiers = (Needs("gold", accuracy_min=0.9), Needs("silver", accuracy_min=0.7))
    world = virtual(ANY, tiers, (("", 0.6), ("silver", 0.3), ("gold", 0.1)))
    _, ran = watch(world, offer(world, times * BEST_RATE, 5.0, seed=1))
    floors = {"": 0.0, "silver": 0.7, "gold": 0.9}
    answered = dict.fromkeys(floors, 0)
    for _, batch in ran.batches:
        for piece in batch.pieces:
            assert ACCURACY[batch.variant] >= floors[piece.request.tier]
            assert batch.variant in piece.request.variants
    for _, answer in ran.answers:
        if answer.outcome is COMPLETED:
            answered[answer.request.tier] += 1
    assert all(answered.values())


@pytest.mark.slow
def test_what_the_best_cannot_carry_costs_accuracy_along_the_ladder_and_nothing_else() -> None:
    """More load, less accurate answers, all in time."""
    world = virtual()
    served = []
    for times in (0.5, 1.2, 2.0, 4.0):
        run, _ = watch(world, offer(world, times * BEST_RATE, 6.0, seed=2))
        assert run.tally.attainment >= 0.99
        rows = {variant: count for (_, variant), count in run.tally.answered_rows.items()}
        total = sum(rows.values())
        served.append(sum(ACCURACY[variant] * count for variant, count in rows.items()) / total)
    assert served == sorted(served, reverse=True)
    assert served[0] > 0.88


def test_the_figures_of_the_ladder_are_what_they_are_said_to_be() -> None:
    """Other tests count on them."""
    assert MODEL.own.variants == tuple(ACCURACY)
    assert (MODEL.own.cost_max, MODEL.own.slo_us) == (inf, SLO_US)
    assert all(
        rung_of(MODEL, name).rows_max(0) == min(BATCH_MAX, SLO_US // us) for name, us in ROW_US.items()
    )
    assert ladder_on(MODEL).wake_us == NEVER_US
