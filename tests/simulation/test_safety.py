"""Catalogue 2: any worlds, any requests; exact latencies."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest

from loadtests.virtual.virtual_world import Run, VirtualModel, World, offer
from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.devices.device import BatchTimes
from serving.simulation.traffic.arrivals import Arrival
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import COMPLETED, Kind
from tests.seeds import examples
from tests.simulation.catalogue import SLO

WORLDS = range(examples(100))
TRIED = 0.03
REQUESTS_EACH = 1000
SINGLE, MANY = (1,), (1, 1, 1, 2, 5, 20)  # rows of requests, each as likely
SOON = 0.4  # share of requests whose client wants it sooner than the SLO, at whatever instant


class Ends(Run):
    """A run that keeps which requests ended, in order, and which were completed after their last piece was
    due: of one row, after its deadline. What is late by its promise is told in `test_promised.py`.

    `tried`: those of them in batches that were planned to be late, to learn what these take (`tried_rows`).
    """

    def __init__(self, world: World) -> None:
        self.ended: list[int] = []
        self.late: list[int] = []
        self.tried: list[int] = []
        self._planned_us: dict[int, float] = {}
        super().__init__(world)

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:
        self._planned_us[batch.id] = start_us + batch.predicted_us
        return super().take(batch, start_us, running)

    def answered(self, answer: Answer, now_us: int) -> None:
        request = answer.request
        self.ended.append(request.id)
        if answer.outcome is COMPLETED and answer.batch is not None and now_us > request.latest_us:
            hopeless = self._planned_us[answer.batch.id] > request.latest_us
            (self.tried if hopeless else self.late).append(request.id)


def any_model(draw: random.Random) -> VirtualModel:
    """Rows of 30 us to 3 ms, launches of 30 us to 10 ms, an SLO that holds 1.4 to 36 single batches."""
    alpha_us, beta_us = 10 ** draw.uniform(1.5, 3.5), 10 ** draw.uniform(1.5, 4)
    alone_us = alpha_us + beta_us
    return VirtualModel(int(alone_us * 10 ** draw.uniform(0.16, 1.56)) + 2, alpha_us, beta_us)


def any_world(draw: random.Random) -> World:
    return World(
        replace(SLO, guard_us=draw.choice([0, 1000]), mode=draw.choice(["latency", "consolidate"])),
        slices=draw.choice([1, 2, 8]),
        unlike=tuple(any_model(draw) for _ in range(draw.choice([1, 2, 4]))),
        gap_cv=draw.choice([0.5, 1, 3]),
        batch_max=draw.choice([1, 8, 64]),
        learned=draw.random() < 0.5,
    )


def any_arrivals(world: World, draw: random.Random, rows: Sequence[int]) -> Iterator[Arrival]:
    """REQUESTS_EACH, at .03 to 4 times what the slices could do in endless batches."""
    row_us = sum(model.alpha_us for model in world.each) / len(world.each)
    rate = 10 ** draw.uniform(-1.5, 0.6) * 1e6 * world.slices / row_us
    for arrival in offer(world, rate, REQUESTS_EACH / rate, draw.randrange(1 << 30)):
        slo_us = world.each[arrival.model].slo_us
        slack_us = int(slo_us * draw.random()) if draw.random() < SOON else None
        yield arrival._replace(rows=draw.choice(rows), slack_us=slack_us)


@cache
def play(seed: int, rows: tuple[int, ...]) -> Ends:
    draw = random.Random(seed)
    world = any_world(draw)
    run = Ends(world)
    run.play(any_arrivals(world, draw, rows))
    return run


@pytest.mark.slow
@pytest.mark.parametrize("seed", WORLDS)
def test_no_request_of_a_row_is_answered_late_and_each_is_answered_once(seed: int) -> None:
    run = play(seed, SINGLE)
    assert run.late == []
    assert len(run.tried) <= TRIED * run.tally.offered
    assert sorted(run.ended) == list(range(1, run.tally.offered + 1))
    assert sum(run.tally.outcomes.values()) == run.tally.offered
    assert {outcome.kind for outcome in run.tally.outcomes} <= {Kind.COMPLETED, Kind.SHED, Kind.REJECTED}


@pytest.mark.slow
def test_no_request_of_many_rows_is_answered_after_its_last_piece_was_due() -> None:
    late = {seed: len(play(seed, MANY).late) for seed in WORLDS}
    assert {seed: count for seed, count in late.items() if count} == {}


@pytest.mark.slow
def test_requests_of_many_rows_are_answered_once() -> None:
    for seed in WORLDS:
        run = play(seed, MANY)
        assert sorted(run.ended) == list(range(1, run.tally.offered + 1))


def test_where_nothing_is_promised_answers_are_late_so_lateness_would_show() -> None:
    run = Ends(World(BatchingSpec("static")))
    run.play(offer(run.world, 1000, 2, 0))
    assert len(run.tried) > TRIED * run.tally.offered  # planned so: its latencies are known exactly
