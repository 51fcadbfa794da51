"""What the slowdown model promises: planted numbers are found, and nobody is said to gain by neighbours."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.derived.interference import Slowdown
from serving.profile.files.corun import CoRun, Tenant
from serving.values.slice_specs import Share

HALF = Share("mps", 50.0)
TENANTS = [Tenant(f"m{number}", "a", HALF, rows) for number in range(4) for rows in (1, 8)]
tenants = st.sampled_from(TENANTS)
runs = st.builds(
    CoRun,
    tenant=tenants,
    others=st.lists(tenants, min_size=1, max_size=3).map(tuple),
    alone_us=st.integers(1, 9).map(float),
    beside_us=st.integers(1, 9).map(float),
    count=st.integers(1, 30),
)


def co_run(tenant: Tenant, others: tuple[Tenant, ...], slowdown: float) -> CoRun:
    return CoRun(tenant, others, 1000.0, 1000.0 * slowdown, 30)


@pytest.mark.parametrize("seed", range(5))
def test_planted_numbers_are_found_within_5_per_cent_from_200_noisy_pairs(seed: int) -> None:
    draw = random.Random(seed)
    sensitivity = {tenant: draw.uniform(0.2, 0.6) for tenant in TENANTS}
    pressure = {tenant: draw.uniform(0.5, 2) for tenant in TENANTS}
    usual = sum(pressure.values()) / len(pressure)
    measured = []
    for _ in range(200):
        one, other = draw.choice(TENANTS), draw.choice(TENANTS)
        slowdown = 1 + sensitivity[one] * pressure[other]
        measured.append(co_run(one, (other,), slowdown * draw.gauss(1, 0.01)))
    found = Slowdown.fit(measured)
    assert sum(found.pressure.values()) == pytest.approx(len(TENANTS))
    for tenant in TENANTS:
        assert found.sensitivity[tenant] == pytest.approx(sensitivity[tenant] * usual, rel=0.05)
        assert found.pressure[tenant] == pytest.approx(pressure[tenant] / usual, rel=0.05)
        for other in TENANTS:
            assert found.factor(tenant, [other]) == pytest.approx(
                1 + sensitivity[tenant] * pressure[other], rel=0.05
            )
    assert max(abs(each - 1) for each in found.residuals) < 0.1


def test_three_that_run_together_add_their_pressures() -> None:
    one, two, three = TENANTS[:3]
    found = Slowdown.fit(
        [co_run(one, (two,), 1.2), co_run(one, (three,), 1.1), co_run(one, (two, three), 1.3)]
    )
    assert found.factor(one, [two, three]) == pytest.approx(1.3)
    assert found.factor(one, [two, two]) == pytest.approx(1.4)
    assert found.factor(one, []) == 1
    assert found.residuals == pytest.approx([1, 1, 1])


@given(st.lists(runs, min_size=1, max_size=12), tenants, st.lists(tenants, max_size=4), tenants)
def test_no_factor_is_below_1_and_a_further_neighbour_never_helps(
    measured: list[CoRun], tenant: Tenant, others: list[Tenant], more: Tenant
) -> None:
    found = Slowdown.fit(measured)
    assert 1 <= found.factor(tenant, others) <= found.factor(tenant, [*others, more])
    assert len(found.residuals) == len(measured)


@given(st.lists(runs, min_size=1, max_size=8))
def test_who_gains_by_neighbours_was_measured_in_noise(measured: list[CoRun]) -> None:
    faster = [CoRun(run.tenant, run.others, 9.0, run.beside_us, run.count) for run in measured]
    found = Slowdown.fit(faster)
    assert all(found.factor(run.tenant, run.others) == 1 for run in faster)


def test_a_batch_that_was_not_measured_is_taken_for_the_nearest_and_a_stranger_for_the_worst() -> None:
    small, large, other = Tenant("m", "a", HALF, 1), Tenant("m", "a", HALF, 16), Tenant("n", "a", HALF, 4)
    found = Slowdown.fit(
        [co_run(small, (other,), 1.1), co_run(large, (other,), 1.5), co_run(other, (large,), 1.2)]
    )
    assert found.factor(Tenant("m", "a", HALF, 2), [other]) == pytest.approx(1.1)
    assert found.factor(Tenant("m", "a", HALF, 12), [other]) == pytest.approx(1.5)
    assert found.factor(Tenant("m", "a", Share("mps", 25.0), 16), [other]) == pytest.approx(1.5)
    assert found.factor(Tenant("m", "a", HALF, 4), [other]) == pytest.approx(
        1.5
    )  # as far from either: the worse
    assert found.factor(Tenant("m", "b", HALF, 1), [other]) == pytest.approx(1.5)
    assert found.factor(large, [Tenant("z", "a", HALF, 1)]) == pytest.approx(1.5)


def test_another_amount_of_the_same_kind_of_share_is_nearer_than_any_of_another_kind() -> None:
    some, chunks, other = (
        Tenant("m", "a", Share(*each), 1) for each in (("mps", 20.0), ("sm", 9.0), ("cores", 1.0))
    )
    found = Slowdown.fit([co_run(some, (other,), 1.1), co_run(chunks, (other,), 1.5)])
    assert found.factor(Tenant("m", "a", Share("mps", 10.0), 1), [other]) == pytest.approx(1.1)


def test_more_runs_weigh_more() -> None:
    one, two = TENANTS[:2]
    often, once = CoRun(one, (two,), 10.0, 11.0, 30), CoRun(one, (two,), 10.0, 15.0, 10)
    assert Slowdown.fit([often, once]).factor(one, [two]) == pytest.approx(1.2)


def test_no_runs_are_no_model() -> None:
    with pytest.raises(ValueError, match="at least one measured co-run"):
        Slowdown.fit([])
