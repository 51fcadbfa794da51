"""What `infaas` promises: its formula, its votes, and the cheaper of more replicas and a faster variant."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.scaling.baselines.infaas import ROUNDS, Infaas, find_ladder
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import LoadReport, Wish
from tests.policy.scaling.baselines.fleets import EXACT, Fleet, changes, shown
from tests.seeds import drawn


def linear(each: float) -> Capacity:
    """So many rows a second for each replica."""
    return Capacity((1, 10), (1.0,), ((each, 10 * each),))


ONE = {"v": linear(100.0)}
THREE = {"slow": linear(100.0), "quick": linear(400.0), "quickest": linear(2000.0)}
TWO = {"slow": linear(100.0), "quick": linear(400.0)}


def decide(
    policy: Infaas, rate: int, ready: int = 1, capacities: Mapping[str, Capacity] = ONE, most: int = 64
) -> Wish:
    """One round at so many rows a second."""
    return policy.decide(
        shown(
            seen=LoadReport("m", offered=rate),
            ready=ready,
            most=most,
            variant=next(iter(capacities)),
            capacities=capacities,
            least=0,
        )
    )


@pytest.mark.parametrize(
    ("rate", "ready", "wanted"),
    [
        (95, 1, 1),  # 0.95 of what one takes
        (96, 1, 2),
        (195, 1, 2),  # 100 are lacking
        (196, 1, 3),
        (950, 10, 10),
        (1000, 10, 11),
    ],
)
def test_up_by_what_is_lacking_over_what_a_replica_takes(rate: int, ready: int, wanted: int) -> None:
    assert decide(Infaas(), rate, ready).count == wanted


def test_down_by_one_after_more_than_ten_rounds_in_a_row() -> None:
    policy = Infaas()
    assert [decide(policy, 90, 3).count for _ in range(ROUNDS + 1)] == [3] * ROUNDS + [2]


def test_one_round_of_load_takes_all_votes_back() -> None:
    policy = Infaas()
    for _ in range(ROUNDS):
        decide(policy, 90, 3)
    decide(policy, 270, 3)
    assert [decide(policy, 90, 3).count for _ in range(ROUNDS)] == [3] * ROUNDS


def test_a_faster_variant_is_loaded_where_that_takes_far_fewer_loads_than_replicas() -> None:
    wish = decide(Infaas(), 500, 2, TWO)  # four replicas more, or one load of the quick one
    assert wish.variants == ("slow", "quick")
    assert wish.count == 2


def test_a_replica_more_is_preferred_where_it_costs_no_more_than_an_upgrade() -> None:
    wish = decide(Infaas(), 250, 2, TWO)
    assert wish.variants == ("slow",)
    assert wish.count == 3


def test_it_upgrades_where_there_are_no_slices_for_more_replicas() -> None:
    wish = decide(Infaas(), 250, 2, TWO, most=2)
    assert wish.variants == ("slow", "quick")
    assert wish.count == 2


def test_an_upgrade_goes_one_variant_at_a_time() -> None:
    policy = Infaas()
    assert decide(policy, 5000, 2, THREE, most=4).variants == ("slow", "quick")
    assert decide(policy, 5000, 2, THREE, most=4).variants == ("slow", "quick", "quickest")


def test_the_upgrade_is_taken_back_before_a_replica_once_the_accurate_one_would_do() -> None:
    policy = Infaas()
    decide(policy, 500, 2, TWO)
    wishes = [decide(policy, 180, 2, TWO) for _ in range(ROUNDS + 1)]
    assert wishes[-2].variants == ("slow", "quick")
    assert wishes[-1].variants == ("slow",)
    assert wishes[-1].count == 2


def test_with_one_variant_it_says_nothing_of_variants() -> None:
    assert decide(Infaas(), 500, 2).variants == ()


def test_a_variant_that_is_less_accurate_and_no_faster_is_no_upgrade() -> None:
    rungs = find_ladder({"a": linear(100.0), "b": linear(90.0), "c": linear(100.0), "d": linear(300.0)})
    assert [*rungs] == ["a", "d"]


def test_without_load_it_lets_the_last_one_go_where_that_is_allowed() -> None:
    fleet = Fleet(Infaas(), lambda second: 0.0, bounds=(0, 8), capacity=EXACT)
    assert fleet.run(30)[-1] == 0


@given(st.integers(0, 5000), st.integers(1, 60))
@settings(max_examples=drawn(20))
def test_constant_load_never_goes_up_and_down(rate: int, ready: int) -> None:
    """With the slack on one side only, as published, every rate within 5 % below n replicas would."""
    fleet = Fleet(Infaas(), lambda second: float(rate), capacity=EXACT)
    fleet.ready = ready
    fleet.run(800)
    assert changes(fleet.run(200)) == 0


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 20))
def test_more_load_never_gets_fewer_replicas_at_once(low: int, high: int, ready: int) -> None:
    low, high = sorted((low, high))
    counts = [decide(Infaas(), rate, ready).count for rate in (low, high)]
    assert counts[0] <= counts[1]
