"""In time means in time: any worlds, any rows, any number of pieces, judged by what the operator stated."""

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import ceil

import pytest

from loadtests.virtual.virtual_world import Run, VirtualModel, World, offer
from serving.scheduler.commands import Answer
from serving.simulation.traffic.arrivals import Arrival
from serving.values.objectives import MOST_ACCURATE, Needs
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import COMPLETED

SEEDS = 40
REQUESTS = 300  # of a world
ROWS = (1, 1, 1, 2, 5, 20, 70)  # of requests, each as likely
SLO_ROWS = (None, None, 1, 4, 20)
SOON = 0.2  # share of requests whose client wants it sooner than was promised


class Judged(Run):
    """A run that is judged beside itself, by arrivals, answers and what the models' needs state alone."""

    def __init__(self, world: World) -> None:
        self.asked: list[Arrival] = []
        self.good = self.late = 0
        self.pieces: Counter[bool] = Counter()  # late answers, by whether the request was in several pieces
        super().__init__(world)

    def answered(self, answer: Answer, now_us: int) -> None:
        if answer.outcome is not COMPLETED:
            return
        arrival = self.asked[answer.request.id - 1]
        model = self.world.each[arrival.model]
        slo_rows = model.needs.slo_rows
        promised_us = model.slo_us * (ceil(arrival.rows / slo_rows) if slo_rows else 1)
        if arrival.slack_us is not None:
            promised_us = min(promised_us, arrival.slack_us)
        in_time = now_us - arrival.at_us <= promised_us
        self.good += in_time
        self.late += not in_time
        self.pieces[answer.request.latest_us > answer.request.deadline_us] += not in_time


def any_model(draw: random.Random) -> VirtualModel:
    """An SLO that holds 1.4 to 36 batches of one row, stated for any number of rows or for a few."""
    alpha_us, beta_us = 10 ** draw.uniform(1.5, 3.5), 10 ** draw.uniform(1.5, 4)
    slo_us = int((alpha_us + beta_us) * 10 ** draw.uniform(0.16, 1.56)) + 2
    needs = Needs(optimize=MOST_ACCURATE, slo_rows=draw.choice(SLO_ROWS))
    return VirtualModel(slo_us, variants=(("v", 0.9, alpha_us, beta_us),), needs=needs)


def any_arrivals(world: World, draw: random.Random) -> Iterator[Arrival]:
    row_us = sum(alpha_us for model in world.each for _, _, alpha_us, _ in model.rungs) / len(world.each)
    rate = 10 ** draw.uniform(-2.5, 0) * 1e6 * world.slices / row_us
    for arrival in offer(world, rate, REQUESTS / rate, draw.randrange(1 << 30)):
        slo_us = world.each[arrival.model].slo_us
        slack_us = int(slo_us * draw.random()) if draw.random() < SOON else None
        yield arrival._replace(rows=draw.choice(ROWS), slack_us=slack_us, expires=slack_us is not None)


@cache
def play(seed: int) -> Judged:
    draw = random.Random(seed)
    world = World(
        BatchingSpec(draw.choice(["slo", "static"]), guard_us=0),
        slices=draw.choice([1, 2]),
        unlike=tuple(any_model(draw) for _ in range(draw.choice([1, 2]))),
        batch_max=draw.choice([1, 8, 64]),
    )
    run = Judged(world)
    run.asked += any_arrivals(world, draw)
    run.play(run.asked)
    return run


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_request_is_counted_good_whose_answer_came_after_what_was_promised(seed: int) -> None:
    run = play(seed)
    assert (run.tally.good, run.tally.late) == (run.good, run.late)
    assert run.tally.good + run.tally.late == run.tally.outcomes[COMPLETED]


def test_these_worlds_have_good_answers_and_late_ones_of_one_piece_and_of_many() -> None:
    runs = [play(seed) for seed in range(SEEDS)]
    late = sum((run.pieces for run in runs), Counter[bool]())
    assert sum(run.good for run in runs) > REQUESTS
    assert min(late[True], late[False]) > REQUESTS // 10
