"""Catalogue 6: unlike models on one slice, and tenants that want more than there is."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import merge

import pytest

from loadtests.virtual.virtual_world import Run, VirtualModel, World, good_share, offer
from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.devices.device import BatchTimes
from serving.simulation.traffic.arrivals import Arrival
from serving.values.specs import TenantSpec
from serving.values.vocabulary import COMPLETED
from tests.simulation.catalogue import (
    CAPACITIES,
    MIXED,
    MIXED_CAPACITY,
    MIXED_SHARE,
    SETTLE_US,
    SLO,
    TENANT_SHARE,
    TOLERATED_BAD,
    WORLDS,
)

pytestmark = pytest.mark.in_turn(2)

CONTEST_US = 10_000_000


@pytest.mark.slow
def test_models_of_one_slo_share_a_slice_as_in_an_idealised_simulation() -> None:
    rate = MIXED_SHARE * CAPACITIES["E"]
    assert good_share(WORLDS["E"], rate, 40, 1) >= 1 - TOLERATED_BAD


@pytest.mark.slow
def test_long_batches_of_a_loose_slo_leave_room_for_a_tight_one() -> None:
    assert good_share(MIXED, MIXED_SHARE * MIXED_CAPACITY, 60, 1) >= 1 - TOLERATED_BAD


class Contest(Run):
    """A run that counts, once it has settled, what each tenant gets: answers in time, and slices' time."""

    def __init__(self, world: World) -> None:
        self.good: Counter[str] = Counter()
        self.by_model: Counter[str] = Counter()
        self.time_us: Counter[str] = Counter()
        super().__init__(world)

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:
        taken = super().take(batch, start_us, running)
        if is_contested(start_us):
            for piece in batch.pieces:
                self.time_us[piece.request.tenant] += round(taken.compute_us * piece.rows / batch.rows)
        return taken

    def answered(self, answer: Answer, now_us: int) -> None:
        request = answer.request
        if is_contested(now_us) and answer.outcome is COMPLETED and now_us <= request.deadline_us:
            self.good[request.tenant] += 1
            self.by_model[request.model] += 1


def is_contested(now_us: int) -> bool:
    return SETTLE_US <= now_us < SETTLE_US + CONTEST_US


def contest(world: World, weights: Mapping[str, float], rates: Mapping[tuple[str, int], float]) -> Contest:
    """Tenants of these weights; requests of each (tenant, model) at its rate."""
    tenants = tuple(TenantSpec(name, weight) for name, weight in weights.items())
    run = Contest(replace(world, tenants=tenants))
    run.play(floods(rates))
    return run


def floods(rates: Mapping[tuple[str, int], float]) -> Iterator[Arrival]:
    seconds = (SETTLE_US + CONTEST_US) / 1e6
    return merge(
        *(
            [each._replace(tenant=tenant, model=model) for each in offer(World(SLO), rate, seconds, seed)]
            for seed, ((tenant, model), rate) in enumerate(rates.items())
        )
    )


def assert_nobody_starves(got: Counter[str], weights: Mapping[str, float]) -> None:
    """Every tenant, all of them backlogged, has its share."""
    for name, weight in weights.items():
        assert got[name] >= TENANT_SHARE * weight / sum(weights.values()) * got.total(), got


@pytest.mark.slow
@pytest.mark.parametrize("row", ["A", "B"])
@pytest.mark.parametrize(
    ("weights", "times"),
    [
        ({"a": 1, "b": 1}, {"a": 2, "b": 2}),
        ({"a": 1, "b": 1}, {"a": 1, "b": 4}),
        ({"a": 1, "b": 4}, {"a": 2, "b": 2}),
        ({"a": 1, "b": 2, "c": 5}, {"a": 1.5, "b": 1.5, "c": 1.5}),
        (dict.fromkeys("abcdefgh", 1), dict.fromkeys("abcdefgh", 0.3)),
    ],
)
def test_tenants_of_one_model_get_their_weighted_shares(
    row: str, weights: dict[str, float], times: dict[str, float]
) -> None:
    rates = {(name, 0): factor * CAPACITIES[row] for name, factor in times.items()}
    assert_nobody_starves(contest(WORLDS[row], weights, rates).good, weights)


@pytest.mark.slow
@pytest.mark.parametrize("row", ["A", "B"])
def test_a_tenant_that_stays_within_its_share_is_answered_while_another_floods(row: str) -> None:
    asked = 0.3 * CAPACITIES[row]
    rates = {("a", 0): asked, ("b", 0): 3 * CAPACITIES[row]}
    run = contest(WORLDS[row], {"a": 1, "b": 1}, rates)
    assert run.good["a"] >= TENANT_SHARE * asked * CONTEST_US / 1e6


@pytest.mark.slow
@pytest.mark.parametrize("asked", [0.3, 0.75])  # of what four slices can do; a share is half of it
def test_so_they_do_on_several_slices(asked: float) -> None:
    capacity = CAPACITIES["D"] / 2
    rates = {("a", 0): asked * capacity, ("b", 0): 2 * capacity}
    good = contest(replace(WORLDS["D"], slices=4), {"a": 1, "b": 1}, rates).good
    assert good["a"] >= TENANT_SHARE * min(asked * capacity * CONTEST_US / 1e6, good.total() / 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("models", "weights"),
    [
        ((VirtualModel(100_000), VirtualModel(100_000)), {"a": 1, "b": 1}),
        ((VirtualModel(100_000), VirtualModel(100_000)), {"a": 1, "b": 3}),
        ((VirtualModel(100_000), VirtualModel(100_000, 2160, 10_000)), {"a": 1, "b": 1}),
        ((VirtualModel(200_000), VirtualModel(200_000, 10_800, 20_000)), {"a": 1, "b": 1}),
        ((VirtualModel(100_000), VirtualModel(200_000, 4320, 10_000)), {"a": 1, "b": 1}),
    ],
)
def test_tenants_of_two_models_get_their_shares_of_a_slice_s_time(
    models: tuple[VirtualModel, VirtualModel], weights: dict[str, float]
) -> None:
    rates = {(name, place): 1.4e6 / models[place].alpha_us for place, name in enumerate(weights)}
    assert_nobody_starves(contest(World(SLO, unlike=models), weights, rates).time_us, weights)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1500, 3000])
def test_a_model_that_needs_little_is_answered_beside_one_that_overloads_the_slice(rate: float) -> None:
    heavy, light = VirtualModel(50_000, 650, 4500), VirtualModel(25_000, 20, 700)
    shared = contest(
        World(SLO, unlike=(heavy, light)), {"default": 1}, {("default", 0): rate, ("default", 1): 300}
    )
    alone = contest(World(SLO, unlike=(heavy,)), {"default": 1}, {("default", 0): rate})
    assert shared.by_model["m1"] >= 0.98 * 300 * CONTEST_US / 1e6
    assert shared.by_model["m0"] >= 0.85 * alone.by_model["m0"]
