"""Thousands of small worlds, drawn from a seed each: any policy, models, tenants, noise, faults, clients.

A seed that fails is named with the command that plays it again.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from loadtests.virtual.virtual_world import Run, VirtualModel, World, offer
from serving.policy.batching.catalogue import POLICIES
from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.devices.device import Physics
from serving.simulation.devices.faults import Fault, draw_faults
from serving.simulation.traffic.arrivals import Arrival
from serving.values.specs import BatchingSpec, TenantSpec
from serving.values.vocabulary import COMPLETED, Kind
from tests.seeds import parts

WORLDS = 3000
REQUESTS = 60
TENANTS = ("default", "gold", "late")
ENTERED = [(name, mode) for name, entry in POLICIES.items() for mode in (entry.modes or ("",))]


@dataclass(frozen=True)
class Drawn:
    """A world with who asks and what breaks."""

    world: World
    arrivals: tuple[Arrival, ...]
    faults: tuple[Fault, ...]


class Watched(Run):
    """A run in which everything is noted: who ended how and when, and what ran where."""

    def __init__(self, drawn: Drawn, seed: int) -> None:
        self.ended: list[tuple[int, str, int]] = []
        self.ran_on: list[tuple[str, int, int, int]] = []
        self.kinds: set[Kind] = set()
        super().__init__(drawn.world, seed, drawn.faults)

    def answered(self, answer: Answer, now_us: int) -> None:
        self.ended.append((answer.request.id, answer.outcome.reason, now_us))
        self.kinds.add(answer.outcome.kind)
        if answer.outcome is COMPLETED:
            assert answer.request.arrived_us < now_us

    def ran(self, batch: RunBatch, start_us: int, end_us: int) -> None:
        self.ran_on.append((batch.slice, start_us, end_us, batch.rows))
        assert batch.rows == sum(piece.rows for piece in batch.pieces) >= 1


def drawn(seed: int) -> Drawn:
    draw = random.Random(seed)
    models = tuple(_model(draw) for _ in range(draw.choice([1, 1, 2, 3])))
    name, mode = draw.choice(ENTERED)
    world = World(
        BatchingSpec(name, mode=mode, admission=draw.random() < 0.8),
        slices=draw.choice([1, 1, 2, 3]),
        unlike=models,
        gap_cv=draw.choice([0, 1, 1, 4]),
        batch_max=draw.choice([1, 8, 64]),
        tenants=tuple(TenantSpec(each, draw.choice([1, 3]), draw.choice([0, 0, 1])) for each in TENANTS),
        learned=draw.random() < 0.5,
        physics=Physics(
            noise=draw.choice([0, 0.1, 0.5]), outlier_share=draw.choice([0, 0.02]),
            interference=draw.choice([0, 0.5]), overhead_us=draw.choice([0, 700]),
        ),
        row_mix=draw.choice([((1, 1.0),), ((1, 0.7), (3, 0.2), (40, 0.1))]),
        size_mix=draw.choice([((0, 1.0),), ((0, 1.0),), ((16, 0.6), (64, 0.3), (256, 0.1))]),
    )  # fmt: skip
    row_us = sum(model.alpha_us for model in models) / len(models)
    rate = 10 ** draw.uniform(-1.5, 0.6) * 1e6 * world.slices / row_us
    seconds = REQUESTS / rate
    faults = draw_faults(
        [f"s{place}" for place in range(world.slices)], seconds, draw.choice([1, 10]) * seconds,
        draw.choice([0, 20_000, 8_000_000]), seed,
    )  # fmt: skip
    return Drawn(world, tuple(_asked(world, rate, seconds, draw)), tuple(faults))


def _model(draw: random.Random) -> VirtualModel:
    alpha_us, beta_us = 10 ** draw.uniform(1.5, 3.5), 10 ** draw.uniform(1.5, 4)
    return VirtualModel(int((alpha_us + beta_us) * 10 ** draw.uniform(0.1, 1.5)) + 2, alpha_us, beta_us)


def _asked(world: World, rate: float, seconds: float, draw: random.Random) -> Iterator[Arrival]:
    for arrival in offer(world, rate, seconds, draw.randrange(1 << 30)):
        expires = draw.random() < 0.3
        slack_us = int(world.each[arrival.model].slo_us * draw.random()) + 1 if expires else None
        yield arrival._replace(slack_us=slack_us, expires=expires, tenant=draw.choice(TENANTS))


def check(seed: int) -> None:
    """Everyone is answered once, slices run one batch at a time, and the same seed gives the same run."""
    case = drawn(seed)
    run = Watched(case, seed)
    run.play(case.arrivals)
    assert sorted(request for request, _, _ in run.ended) == list(range(1, len(case.arrivals) + 1))
    assert sum(run.tally.outcomes.values()) == run.tally.offered == len(case.arrivals)
    assert run.scheduler.open_requests == 0
    if not case.faults:
        assert run.kinds <= {Kind.COMPLETED, Kind.SHED, Kind.REJECTED}
    if seed % 10 == 0:
        again = Watched(case, seed)
        again.play(case.arrivals)
        assert (again.ended, again.ran_on) == (run.ended, run.ran_on)


@pytest.mark.slow
@pytest.mark.parametrize("part", parts(WORLDS))
def test_in_any_world_everyone_is_answered_once_and_a_seed_is_one_run(part: range) -> None:
    for seed in part:
        try:
            check(seed)
        except Exception as error:
            again = f"PENSTOCK_SEED_BASE={seed} .venv/bin/pytest {__file__} -k part0"
            raise AssertionError(f"seed {seed}: {error!r}; again: {again}") from error
