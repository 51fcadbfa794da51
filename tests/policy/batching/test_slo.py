"""What `slo` promises: every batch meets its head's deadline, and heads are given up only for more."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.virtual_time import Run, World, good_share, offer
from serving.policy.batching.slo import Slo
from serving.scheduler.commands import Answer
from serving.specs import BatchingSpec
from serving.vocabulary import COMPLETED, DEADLINE_UNMET, DEADLINE_UNREACHABLE, OVERLOAD
from tests.policy.views import NOW_US, ArrivalSeen, QueueSeen, queues

SLO = BatchingSpec("slo", guard_us=0)
STATIC = BatchingSpec("static")


def trained(slo_us: int, gaps_us: list[int]) -> Slo:
    policy, now_us = Slo(slo_us, 0), NOW_US - sum(gaps_us)
    for gap_us in gaps_us:
        now_us += gap_us
        policy.on_arrival(ArrivalSeen(), now_us)
    return policy


policies = st.builds(trained, st.integers(5, 30), st.lists(st.integers(0, 6), max_size=8))


@given(queues, policies)
def test_a_batch_meets_the_deadline_of_its_head_unless_no_batch_could(view: QueueSeen, policy: Slo) -> None:
    choice = policy.choose(view, NOW_US)
    if choice.lane is None:
        assert all(view.replica(variant) is None for lane in view.lanes for variant in lane.variants)
        return
    pieces = choice.pieces
    replica = view.replica(choice.variant)
    assert replica is not None
    assert choice.rows == sum(piece.rows for piece in pieces)
    if len(pieces) > 1:
        assert choice.rows <= replica.rows_max(choice.lane.size)
        assert NOW_US + replica.predict_us(choice.rows, choice.lane.size) <= pieces[0].deadline_us


@given(queues, policies)
def test_it_decides_the_same_twice(view: QueueSeen, policy: Slo) -> None:
    assert policy.choose(view, NOW_US) == policy.choose(view, NOW_US)


@given(queues, policies)
def test_hopeless_are_exactly_those_that_one_row_alone_would_answer_late(
    view: QueueSeen, policy: Slo
) -> None:
    given_up = {id(lane): count for lane, count in policy.hopeless(view, NOW_US)}
    for lane in view.lanes:
        replica = next((view.replica(v) for v in lane.variants if view.replica(v) is not None), None)
        late = 0
        if replica is not None:
            earliest_us = NOW_US + replica.predict_us(1, lane.size)
            late = sum(piece.deadline_us < earliest_us for piece in lane.pieces)
        assert given_up.get(id(lane), 0) == late


class Watched(Run):
    """A run that keeps every answer with its instant."""

    def __init__(self, world: World) -> None:
        self.answers: list[tuple[Answer, int]] = []
        super().__init__(world)

    def answered(self, answer: Answer, now_us: int) -> None:
        self.answers.append((answer, now_us))


@pytest.mark.parametrize("seed", range(6))
def test_with_exact_latencies_nothing_that_is_dispatched_is_late_and_all_is_answered_once(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311  a seeded choice of worlds
    world = World(SLO, draw.choice([1, 2, 8]), draw.choice([1, 3]), draw.choice([25_000, 100_000]))
    run = Watched(world)
    rate = draw.uniform(0.2, 3) * 900 * world.slices
    tally = run.play(offer(world, rate, 4000 / rate, seed))
    assert len({answer.request.id for answer, _ in run.answers}) == len(run.answers) == tally.offered
    for answer, now_us in run.answers:
        assert answer.outcome in (COMPLETED, DEADLINE_UNMET, OVERLOAD, DEADLINE_UNREACHABLE)
        if answer.outcome is COMPLETED:
            assert now_us <= answer.request.deadline_us


@pytest.mark.slow
@pytest.mark.parametrize(("slices", "models"), [(1, 1), (4, 1), (1, 4)])
def test_goodput_does_not_fall_off_in_overload(slices: int, models: int) -> None:
    world = World(SLO, slices, models, 50_000)
    at_capacity = 600 * slices
    goodput = [share * rate for rate in (at_capacity, 2 * at_capacity, 4 * at_capacity)
               for share in [good_share(world, rate, 10, 1)]]  # fmt: skip
    assert min(goodput[1:]) >= 0.95 * goodput[0]


@pytest.mark.slow
def test_where_static_batching_loses_nearly_everything_it_loses_little() -> None:
    slo, static = (good_share(World(spec, 1, 1, 25_000), 1000, 20, 1) for spec in (SLO, STATIC))
    assert slo > 0.55  # 0.59: the device can do no better within 25 ms
    assert static < 0.05


def test_at_low_load_it_runs_at_once() -> None:
    world = World(SLO, 1, 1, 100_000)
    run = Watched(world)
    run.play(offer(world, 10, 30, 0))
    waits_us = sorted(now_us - answer.request.arrived_us for answer, now_us in run.answers)
    assert waits_us[len(waits_us) // 2] <= world.each[0].latency_us(1) + 1000
