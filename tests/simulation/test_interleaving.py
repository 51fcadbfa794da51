"""Catalogue 6: unlike models on one slice, and tenants that want more than there is."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import merge

import pytest

from loadtests.virtual_time import Arrival, Run, World, good_share, offer
from serving.scheduler.commands import Answer
from serving.specs import TenantSpec
from serving.vocabulary import COMPLETED
from tests.simulation.catalogue import (
    CAPACITIES,
    MIXED,
    MIXED_CAPACITY,
    MIXED_SHARE,
    TENANT_SHARE,
    TOLERATED_BAD,
    WORLDS,
)

SETTLE_US, CONTEST_US = 1_000_000, 10_000_000


@pytest.mark.slow
def test_models_of_one_slo_share_a_slice_as_in_an_idealised_simulation() -> None:
    rate = MIXED_SHARE * CAPACITIES["E"]
    assert good_share(WORLDS["E"], rate, 40, 1) >= 1 - TOLERATED_BAD


@pytest.mark.slow
def test_long_batches_of_a_loose_slo_leave_room_for_a_tight_one() -> None:
    assert good_share(MIXED, MIXED_SHARE * MIXED_CAPACITY, 60, 1) >= 1 - TOLERATED_BAD


class Contest(Run):
    """A run that counts each tenant's requests that are answered in time, once it has settled."""

    def __init__(self, world: World) -> None:
        self.good: Counter[str] = Counter()
        super().__init__(world)

    def answered(self, answer: Answer, now_us: int) -> None:
        request = answer.request
        counted = SETTLE_US <= now_us < SETTLE_US + CONTEST_US
        if counted and answer.outcome is COMPLETED and now_us <= request.deadline_us:
            self.good[request.tenant] += 1


def floods(world: World, rates: Mapping[tuple[str, int], float]) -> Iterator[Arrival]:
    """Requests of each (tenant, model), at its rate."""
    seconds = (SETTLE_US + CONTEST_US) / 1e6
    alone = replace(world, models=1)
    flows = [
        [arrival._replace(tenant=tenant, model=model) for arrival in offer(alone, rate, seconds, seed)]
        for seed, ((tenant, model), rate) in enumerate(rates.items())
    ]
    return merge(*flows)


def contest(world: World, weights: Mapping[str, float], rates: Mapping[tuple[str, int], float]) -> Contest:
    tenants = tuple(TenantSpec(name, weight) for name, weight in weights.items())
    run = Contest(replace(world, tenants=tenants))
    run.play(floods(world, rates))
    return run


def assert_nobody_starves(
    world: World, weights: Mapping[str, float], rates: Mapping[tuple[str, int], float]
) -> None:
    """Every tenant, all of them backlogged, has its share of what is answered in time."""
    good = contest(world, weights, rates).good
    for name, weight in weights.items():
        assert good[name] >= TENANT_SHARE * weight / sum(weights.values()) * good.total(), good


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
    assert_nobody_starves(WORLDS[row], weights, rates)


@pytest.mark.slow
@pytest.mark.parametrize("row", ["A", "B", "D"])
def test_a_tenant_that_stays_within_its_share_is_answered_while_another_floods(row: str) -> None:
    capacity, asked = CAPACITIES[row], 0.3 * CAPACITIES[row]
    run = contest(WORLDS[row], {"a": 1, "b": 1}, {("a", 0): asked, ("b", 0): 2 * capacity})
    assert run.good["a"] >= TENANT_SHARE * asked * CONTEST_US / 1e6


@pytest.mark.slow
def test_tenants_get_their_shares_of_several_slices() -> None:
    world = replace(WORLDS["D"], slices=4)
    half = CAPACITIES["D"] / 2
    assert_nobody_starves(world, {"a": 1, "b": 1}, {("a", 0): 0.75 * half, ("b", 0): 2 * half})


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    [
        {"a": 1, "b": 1},
        {"a": 1, "b": 3},
    ],
)
def test_tenants_of_two_models_get_their_shares_of_one_slice(weights: dict[str, float]) -> None:
    world = replace(WORLDS["E"], models=2)
    assert_nobody_starves(world, weights, dict.fromkeys([("a", 0), ("b", 1)], 2 * CAPACITIES["E"]))
