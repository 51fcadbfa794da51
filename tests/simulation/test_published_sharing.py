"""The published policies that share a slice, between models or between batches, in virtual time.

Capacities are those of an idealised simulation of the same policies (requests/s with 1 % bad); here they are
met to within TOLERANCE.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import merge

import pytest

from loadtests.virtual.virtual_world import Run, VirtualModel, World, good_share, offer
from serving.policy.batching.published.mark import tune
from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.devices.device import Physics
from serving.simulation.devices.faults import Fault
from serving.simulation.traffic.arrivals import Arrival
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import COMPLETED
from tests.policy.views import ReplicaSeen
from tests.simulation.catalogue import SETTLE_US, SLO, TOLERATED_BAD, WORLDS

pytestmark = pytest.mark.in_turn(3)

TOLERANCE = 0.06
SHEPHERD = {"A": 366, "D": 4941, "F": 4799}
SECONDS = {"A": 20.0, "D": 4.0, "F": 5.0}

LIGHT, HEAVY = VirtualModel(1_000_000, 1000, 2000), VirtualModel(1_000_000, 10_000, 20_000)
CONTEST_US = 20_000_000
TIME_RATIO_ERROR = 0.02
FAIR_JAIN = 0.9


@pytest.mark.slow
@pytest.mark.parametrize("row", SHEPHERD)
def test_shepherd_carries_what_it_does_in_an_idealised_simulation_and_no_more(row: str) -> None:
    world = replace(WORLDS[row], policy=BatchingSpec("shepherd"))
    seconds = SETTLE_US / 1e6 + SECONDS[row]
    below, above = (
        good_share(world, factor * SHEPHERD[row], seconds, 1) for factor in (1 - TOLERANCE, 1 + TOLERANCE)
    )
    assert above < 1 - TOLERATED_BAD <= below


class Contest(Run):
    """A run that keeps, once it has settled, each model's time of the slice and its answers' waits."""

    def __init__(self, world: World) -> None:
        self.used_us: Counter[str] = Counter()
        self.waited_us: dict[str, list[int]] = {"m0": [], "m1": []}
        super().__init__(world)

    def ran(self, batch: RunBatch, start_us: int, end_us: int) -> None:
        self.used_us[batch.model] += max(0, min(end_us, SETTLE_US + CONTEST_US) - max(start_us, SETTLE_US))

    def answered(self, answer: Answer, now_us: int) -> None:
        if answer.request.arrived_us >= SETTLE_US:
            self.waited_us[answer.request.model].append(now_us - answer.request.arrived_us)


def contest(policy: str, rates: Sequence[float]) -> Contest:
    """A light and a heavy model on one slice, at these rates."""
    run = Contest(World(BatchingSpec(policy), unlike=(LIGHT, HEAVY), batch_max=4))
    seconds = (SETTLE_US + CONTEST_US) / 1e6
    run.play(merge(*(of_model(place, rate, seconds) for place, rate in enumerate(rates))))
    return run


def of_model(place: int, rate: float, seconds: float) -> Iterator[Arrival]:
    return (each._replace(model=place) for each in offer(World(SLO), rate, seconds, place))


def jain_of_slowdowns(run: Contest) -> float:
    """Of backlogged models: a model that has a share of the slice is slowed down by its inverse."""
    slowdowns = [run.used_us.total() / used_us for used_us in run.used_us.values()]
    return float(sum(slowdowns) ** 2 / (len(slowdowns) * sum(each**2 for each in slowdowns)))


@pytest.mark.slow
def test_dybatch_gives_backlogged_models_the_same_time_however_long_their_batches_take() -> None:
    run = contest("dybatch", (700, 700))
    assert run.used_us["m0"] / run.used_us["m1"] == pytest.approx(1, abs=TIME_RATIO_ERROR)
    assert jain_of_slowdowns(run) >= FAIR_JAIN
    assert jain_of_slowdowns(contest("static", (700, 700))) < 0.7  # one batch each in turn: .6


@pytest.mark.slow
def test_a_light_model_within_its_share_waits_for_one_heavy_batch_at_most() -> None:
    run = contest("dybatch", (50, 700))
    assert len(run.waited_us["m0"]) > 900
    assert max(run.waited_us["m0"]) <= HEAVY.latency_us(4) + LIGHT.latency_us(4)


class Ends(Run):
    """A run that keeps who ended."""

    def __init__(self, world: World, seed: int, faults: Sequence[Fault]) -> None:
        self.ended: list[int] = []
        super().__init__(world, seed, faults)

    def answered(self, answer: Answer, now_us: int) -> None:
        self.ended.append(answer.request.id)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["slo", "static", "aimd", "mark", "slab", "shepherd", "dybatch"])
def test_whatever_breaks_on_slices_every_request_ends_once(policy: str) -> None:
    for seed in range(4):
        world = World(
            BatchingSpec(policy), slices=2, models=2, slo_us=60_000,
            physics=Physics(noise=0.3, outlier_share=0.02, overhead_us=400),
        )  # fmt: skip
        faults = [Fault(700_000, "s0"), Fault(2_600_000, "s1", 300_000), Fault(3_000_000, "s0", 40_000)]
        run = Ends(world, seed, faults)
        tally = run.play(offer(world, 900, 4, seed))
        assert sorted(run.ended) == list(range(1, tally.offered + 1))
        assert tally.outcomes[COMPLETED] > 0.5 * tally.offered


@pytest.mark.slow
@pytest.mark.parametrize("rate", [60, 150, 300, 450])
@pytest.mark.parametrize("slo_us", [30_000, 60_000])
def test_at_a_constant_rate_nobody_waits_and_computes_for_longer_than_mark_allows(
    rate: float, slo_us: int
) -> None:
    world = World(BatchingSpec("mark"), slo_us=slo_us, gap_cv=0, settle_us=2 * SETTLE_US)
    (model,) = world.each
    tally = Run(world).play(offer(world, rate, 12, 0))
    rows_max = (slo_us - model.beta_us) // model.alpha_us
    replica = ReplicaSeen({0: min(int(rows_max), 64)}, model.alpha_us, model.beta_us)
    knobs = tune(replica, 0, slo_us, rate / 1e6)
    assert tally.rows / tally.batches == pytest.approx(knobs.rows, rel=0.1)
    assert max(tally.waits_us) <= knobs.wait_us + model.latency_us(knobs.rows) + 1
    assert tally.good == tally.offered
