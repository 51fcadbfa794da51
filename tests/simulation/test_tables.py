"""What tables of capacities promise to those who decide by them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from serving.control.commands import FindCapacity
from serving.policy.scaling.carried.capacity import Capacity
from serving.profile.curve import Point, Profile
from serving.simulation import tables
from serving.simulation.tables import find_capacity, spread
from serving.values.objectives import Needs
from tests.builders import model_spec, served

CVS = (1.0, 4.0)
ROW_US, BASE_US, ROWS_MAX = 25_000, 40_000, 8
SATURATED = 1e6 * 6 / (BASE_US + 6 * ROW_US)  # the largest batch that an SLO of 400 ms has room for twice


def profile(late: float = 1.0) -> Profile:
    """A batch takes a base and a time for each row; `late`: its p95 over its p50."""
    points = [
        Point(0, rows, float(took_us), took_us * late, 30)
        for rows in range(1, ROWS_MAX + 1)
        for took_us in (BASE_US + ROW_US * rows,)
    ]
    return Profile("m", "a", "k", tuple(points))


def ask(most: int = 2, slo_us: int = 400_000, percentile: float | None = None) -> FindCapacity:
    """One variant of a model that is due then."""
    model = replace(
        served(model_spec("m", batch_max=ROWS_MAX), ()), slo_us=slo_us, needs=Needs(percentile=percentile)
    )
    return FindCapacity(model, "a", "k", profile(), most)


def last(asked: FindCapacity) -> Capacity:
    """The complete table."""
    *_, found = find_capacity(asked)
    return found


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer requests: what is promised of tables holds for any number of them."""
    monkeypatch.setattr(tables, "REQUESTS", 300)
    monkeypatch.setattr(tables, "REQUESTS_MAX", 600)
    monkeypatch.setattr(tables, "CVS", CVS)


def grows(values: Sequence[float]) -> bool:
    return all(low <= high * (1 + 1e-9) for low, high in pairwise(values))


@pytest.mark.slow
def test_more_replicas_carry_more_each_and_more_varied_gaps_less() -> None:
    table = last(ask(most=5))
    assert table.counts == (1, 2, 4)
    assert table.cvs == CVS
    for rates in table.rates:
        assert grows(rates)
        assert grows([rate / count for rate, count in zip(rates, table.counts, strict=True)])
    for column in zip(*table.rates, strict=True):
        assert grows(column[::-1])


@pytest.mark.slow
def test_what_is_computed_without_a_pause_bounds_what_is_carried() -> None:
    calm = last(ask()).rates[0]
    most = 1e6 * ROWS_MAX / (BASE_US + ROW_US * ROWS_MAX)
    for rate, count in zip(calm, (1, 2), strict=True):
        assert 0.5 * SATURATED * count < rate < most * count


def test_every_row_is_there_as_soon_as_it_is_found_and_the_rest_by_guess() -> None:
    found = list(find_capacity(ask(most=1)))
    assert [each.guessed for each in found] == [True, False]
    for place, (before, after) in enumerate(pairwise(found)):
        assert before.rates[: place + 1] == after.rates[: place + 1]
    for each in found:
        assert len(each.rates) == len(CVS)
        assert grows([rates[0] for rates in each.rates][::-1])


def test_a_table_is_the_same_each_time() -> None:
    assert last(ask(most=1)) == last(ask(most=1))


@pytest.mark.slow
def test_a_stricter_percentile_carries_no_more() -> None:
    strict, lax = last(ask(percentile=99.0)), last(ask(percentile=90.0))
    assert all(a <= b for a, b in zip(strict.rates[0], lax.rates[0], strict=True))


def test_where_not_even_one_row_is_quick_enough_nothing_is_carried() -> None:
    assert last(ask(slo_us=50_000)).rates == ((0.0, 0.0),) * len(CVS)


@pytest.mark.slow
def test_batches_vary_as_they_did_when_they_were_measured() -> None:
    assert spread(profile()) == 0.0
    assert spread(profile(late=1.4)) == pytest.approx(0.2067, abs=1e-3)
    noisy = replace(ask(most=1), profile=profile(late=1.4))
    assert last(noisy).rates[0][0] < last(ask(most=1)).rates[0][0]
