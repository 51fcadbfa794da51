"""Promises of rehearsed times: exact unless told otherwise, and drawn from the seed alone."""

from math import isclose
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.profile.files.corun import CoRun, Tenant
from serving.values.rehearsal import EXACT, RehearsalSpec
from serving.values.slice_specs import Share
from serving.worker.rehearsed.neighbours import Neighbours
from serving.worker.rehearsed.timing import Pace

LATENCY = Latency(Profile("m", "v", "gpu-x", (Point(0, 1, 1000, 1000, 1), Point(0, 8, 4500, 4500, 1))))
DRAWS = 400


def works(spec: RehearsalSpec, name: tuple[str, int] = ("s", 1)) -> list[int]:
    pace = Pace(spec, name, 0)
    return [pace.work_us(LATENCY, 1, 0) for _ in range(DRAWS)]


def test_without_more_a_batch_takes_what_the_profile_says() -> None:
    pace = Pace(EXACT, ("s", 1), 0)
    assert [pace.work_us(LATENCY, rows, 0) for rows in (1, 2, 8)] == [1000, 1500, 4500]
    assert pace.ends_us(7, 1000) == 1007
    assert pace.lost_us == float("inf")


def test_noise_has_its_median_at_the_profile_and_follows_seed_slice_and_life() -> None:
    noisy = works(RehearsalSpec(noise=0.2))
    assert 960 < median(noisy) < 1040
    assert len(set(noisy)) > DRAWS / 2
    assert works(RehearsalSpec(noise=0.2)) == noisy
    for other in (works(RehearsalSpec(noise=0.2, seed=2)), works(RehearsalSpec(noise=0.2), ("s", 2))):
        assert other != noisy


def test_outliers_take_ten_times_as_long() -> None:
    found = works(RehearsalSpec(outliers=0.25))
    assert set(found) == {1000, 10_000}
    assert 60 < found.count(10_000) < 140


@pytest.mark.parametrize(("neighbours", "took_us"), [(0, 1000), (3, 1300)])
def test_each_neighbour_makes_a_batch_longer(neighbours: int, took_us: int) -> None:
    pace = Pace(RehearsalSpec(interference=0.1), ("s", 1), 0, lambda: [("n", "v")] * neighbours)
    assert pace.work_us(LATENCY, 1, 0) == took_us


def test_measured_co_runs_make_batches_longer_beside_their_neighbours_on_shares_of_their_kind() -> None:
    own, other = (Tenant(model, "v", Share.parse("mps:30"), 8) for model in ("m", "n"))
    runs = [CoRun(own, (other,), 100, beside, 9) for beside in (110, 120, 150)]
    several = CoRun(own, (other, other), 100, 900, 9)
    cost = Neighbours([*runs, several], "mps")
    beside: list[tuple[str, str]] = [("n", "v"), ("n", "v"), ("unknown", "v")]
    pace = Pace(EXACT, ("s", 1), 0, lambda: beside, cost)
    assert pace.work_us(LATENCY, 1, 0) == 1400
    assert not Neighbours(runs, "mig")


def test_others_slow_a_slice_down_from_when_its_worker_began() -> None:
    pace = Pace(RehearsalSpec(disturb="slow(3,at=5,for=3)"), ("s", 1), 1_000_000)
    assert pace.ends_us(1_000_000, 1000) == 1_001_000
    assert pace.ends_us(6_000_000, 1000) == 6_003_000
    assert pace.ends_us(10_000_000, 1000) == 10_001_000


@given(st.lists(st.integers(0, 400_000), min_size=1, max_size=30), st.integers(0, 99))
def test_stalls_lengthen_batches_by_whole_stalls_and_none_of_the_work_is_lost(
    works_us: list[int], seed: int
) -> None:
    pace = Pace(RehearsalSpec(stall_every_s=0.5, stall_s=0.1, seed=seed), ("s", 1), 0)
    at_us = 0
    for work_us in works_us:
        end_us = pace.ends_us(at_us, work_us)
        assert end_us >= at_us + work_us
        at_us = end_us
    stalls = (at_us - sum(works_us)) / 100_000  # batches follow each other, so none is cut
    assert isclose(stalls, round(stalls), abs_tol=0.01)


def test_stalls_come_as_often_as_is_said() -> None:
    pace = Pace(RehearsalSpec(stall_every_s=1.0, stall_s=0.5), ("s", 1), 0)
    at_us = 0
    for _ in range(20_000):
        at_us = pace.ends_us(at_us, 10_000)
    assert 140 < (at_us - 200_000_000) / 500_000 < 260  # one a second of work, of 200 s
