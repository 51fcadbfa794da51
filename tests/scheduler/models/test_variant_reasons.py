"""What is said of a model's ladder is what decides, in figures."""

from dataclasses import replace
from math import inf

import pytest

from loadtests.virtual.virtual_world import offer
from serving.policy.variants.climbing import LOAD_SHARE, RISE_US
from serving.scheduler.models.variant_reasons import LadderReasons, VariantReasons, variant_reasons_of
from serving.simulation.traffic.arrivals import Arrival
from serving.values.objectives import CHEAPEST, Needs
from serving.values.specs import ServedModel
from tests.scheduler.rungs import ACCURACY, ANY, BEST_RATE, ROW_US, ask, ladder_on, laddered, virtual, watch
from tests.scheduler.values import send

HOUR_S = 3600
TIERS = (Needs("bulk", optimize=CHEAPEST), Needs("gold", accuracy_min=0.75))
MODEL = laddered(ANY, TIERS)


def idle(model: ServedModel = MODEL, slices: tuple[str, ...] = ("s",), price: float = 0.0) -> VariantReasons:
    """Of a model that nobody has asked for yet."""
    return variant_reasons_of(ladder_on(model, slices, price=price).models["m"], 0)


def busy(rate: float, tiers: tuple[Needs, ...] = TIERS) -> VariantReasons:
    """Of a model of which so many rows a second have been asked for 6 s."""
    world = virtual(ANY, tiers)
    run, _ = watch(world, offer(world, rate, 6.0, seed=3))
    return variant_reasons_of(run.scheduler.models["m0"], 6_000_000)


def named(ladder: LadderReasons) -> list[str]:
    return [rung.variant for rung in ladder.rungs]


def test_the_rungs_are_those_that_may_answer_the_most_accurate_first_with_their_figures() -> None:
    (ladder,) = idle(price=HOUR_S).ladders[""]
    assert named(ladder) == list(ACCURACY)
    for rung in ladder.rungs:
        assert rung.accuracy == ACCURACY[rung.variant]
        assert rung.row_us == pytest.approx(ROW_US[rung.variant])
        assert rung.one_us >= rung.row_us
        assert rung.cost == pytest.approx(ROW_US[rung.variant])
        assert rung.rows >= 1
    times = [rung.row_us for rung in ladder.rungs]
    assert times == sorted(times, reverse=True)


def test_each_tier_has_a_ladder_of_its_own_on_each_slice() -> None:
    standing = idle(slices=("s", "t"))
    assert set(standing.ladders) == {"", "bulk", "gold"}
    assert [ladder.slice for ladder in standing.ladders[""]] == ["s", "t"]
    assert [named(ladder) for ladder in standing.ladders["gold"]] == [["best", "good"]] * 2
    assert [ladder.preferred for ladder in standing.ladders["bulk"]] == [2, 2]
    assert (standing.model, standing.slices) == ("m", 2)


def test_a_model_that_nobody_asks_for_stands_where_it_would_without_pressure() -> None:
    standing = idle()
    assert (standing.rate, standing.waiting_rows, standing.load) == (0.0, 0, 0.0)
    assert standing.afford_us == inf
    for ladders in standing.ladders.values():
        assert all(ladder.carrying == ladder.preferred for ladder in ladders)


def test_a_slice_without_a_price_costs_nothing() -> None:
    assert {rung.cost for rung in idle().ladders[""][0].rungs} == {0.0}


def test_a_tier_that_nothing_on_the_slice_may_answer_has_no_rungs() -> None:
    scheduler = ladder_on(MODEL, variants=("fast",))
    (ladder,) = variant_reasons_of(scheduler.models["m"], 0).ladders["gold"]
    assert (ladder.rungs, ladder.preferred, ladder.carrying) == ((), 0, 0)


def test_a_model_that_is_nowhere_has_no_ladders() -> None:
    standing = variant_reasons_of(ladder_on(MODEL, ()).models["m"], 0)
    assert (standing.slices, standing.load) == (0, 0.0)
    assert all(not ladders for ladders in standing.ladders.values())


def test_what_waits_is_counted_in_rows() -> None:
    scheduler = ladder_on(MODEL)
    send(scheduler, ask(MODEL, 1))
    send(scheduler, ask(MODEL, 2, rows=3))
    assert variant_reasons_of(scheduler.models["m"], 0).waiting_rows == 3


@pytest.mark.slow
@pytest.mark.parametrize(("times", "carrying"), [(0.3, ["best"]), (2.0, ["good"]), (6.0, ["fast"])])
def test_what_carries_the_load_takes_no_more_of_a_row_than_may_be_afforded(
    times: float, carrying: list[str]
) -> None:
    standing = busy(times * BEST_RATE)
    (ladder,) = standing.ladders[""]
    rung = ladder.rungs[ladder.carrying]
    assert [rung.variant] == carrying
    assert standing.rate == pytest.approx(times * BEST_RATE, rel=0.2)
    assert rung.row_us <= standing.afford_us
    assert standing.load == pytest.approx(standing.rate * rung.row_us / 1e6, rel=1e-6)
    assert standing.load <= LOAD_SHARE
    better = ladder.rungs[: ladder.carrying]
    assert all(each.row_us > standing.afford_us for each in better)


@pytest.mark.slow
def test_each_tier_is_carried_no_further_down_than_its_floor() -> None:
    standing = busy(6.0 * BEST_RATE)
    (gold,) = standing.ladders["gold"]
    assert named(gold) == ["best", "good"]
    assert 0 <= gold.carrying < len(gold.rungs)


@pytest.mark.slow
def test_a_load_that_has_fallen_stands_at_the_top_again_once_its_rates_have() -> None:
    """Somebody has to ask: rates are reviewed at arrivals."""
    world = virtual(ANY)
    crowd = list(offer(world, 3.0 * BEST_RATE, 3.0, seed=4))
    until_us = 20_000_000 + 2 * RISE_US
    few = [Arrival(at_us, 0, 1) for at_us in range(3_100_000, until_us, 100_000)]
    run, ran = watch(world, [*crowd, *few])
    standing = variant_reasons_of(run.scheduler.models["m0"], until_us)
    (ladder,) = standing.ladders[""]
    assert ladder.rungs[ladder.carrying].variant == "best"
    assert set(ran.variants(until_us - 1_000_000)) == {"best"}


def test_tiers_say_of_a_model_what_its_own_needs_leave_open() -> None:
    """A tier without a floor has the model's."""
    floored = laddered(replace(ANY, accuracy_min=0.75), (Needs("bulk", optimize=CHEAPEST),))
    assert named(idle(floored).ladders["bulk"][0]) == ["best", "good"]
