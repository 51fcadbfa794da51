"""What the comparison of scaling policies offers them, and what it says of them."""

from dataclasses import replace

import numpy as np
import pytest

from loadtests.scaling.autoscaling import POLICIES, Case
from loadtests.scaling.autoscaling_table import Row, promises, table
from loadtests.scaling.autoscaling_workloads import LENGTH_S, SETTLE_S, WORKLOADS
from loadtests.virtual.scaled_world import Minute, Score
from serving.policy.scaling.catalogue import POLICIES as KNOWN

SCORE = Score((Minute(1000, 990),) * 30, 2.0, 3, float("nan"), 2.0)
OURS = Row("flash", "slo", SCORE, 1.0)


def row(policy: str, violations: float, hours: float, load: str = "flash") -> Row:
    """So many of a thousand rows a minute were not answered in time."""
    minute = Minute(1000, 1000 - round(1000 * violations))
    return Row(load, policy, replace(SCORE, minutes=(minute,) * 30, replica_hours=hours), 1.0)


def test_every_policy_of_the_catalogue_is_entered() -> None:
    assert {policy for policy, _ in POLICIES.values()} == {*KNOWN, "oracle"} - {"fixed"}
    assert Case("flash", "hpa 0.6").world.scaling.target == 0.6


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_load_lasts_as_long_as_it_is_said_and_is_the_same_each_time(name: str) -> None:
    at_s = WORKLOADS[name].instants(0)
    assert np.all(np.diff(at_s) >= 0)
    assert at_s[-1] < SETTLE_S + WORKLOADS[name].length_s
    assert np.array_equal(at_s, WORKLOADS[name].instants(0))
    assert not np.array_equal(at_s[:100], WORKLOADS[name].instants(1)[:100])


@pytest.mark.parametrize(
    ("name", "factor", "from_s", "to_s"),
    [
        ("step", 3.0, 600, 1200),
        ("ramp", 2.0, 660, 1200),
        ("flash", 10.0, 605, 606),
        ("diurnal", 4.0, 400, 500),
    ],
)
def test_a_load_rises_as_much_as_it_is_said(name: str, factor: float, from_s: int, to_s: int) -> None:
    at_s = np.concatenate([WORKLOADS[name].instants(seed) for seed in range(20)]) - SETTLE_S
    low = np.count_nonzero(at_s < 0) / SETTLE_S
    high = np.count_nonzero((at_s >= from_s) & (at_s < to_s)) / (to_s - from_s)
    assert high / low == pytest.approx(factor, rel=0.08)


def test_code_completion_is_as_published_gaps_of_cv_13_and_three_of_four_seconds_empty() -> None:
    gaps, empty = [], []
    for seed in range(5):
        at_s = WORKLOADS["code"].instants(seed)
        at_s = at_s[at_s >= SETTLE_S] - SETTLE_S
        gap = np.diff(at_s)
        gaps.append(gap.std() / gap.mean())
        empty.append(np.mean(np.bincount(at_s.astype(int), minlength=int(LENGTH_S)) == 0))
    assert np.mean(gaps) == pytest.approx(13.2, rel=0.2)
    assert np.mean(empty) == pytest.approx(0.73, abs=0.05)


def test_who_has_no_more_violations_in_no_more_hours_dominates() -> None:
    better, cheaper = row("hpa", 0.01, 1.9), row("keda", 0.02, 1.0)
    assert better.dominates(OURS)
    assert not OURS.dominates(OURS)
    assert not cheaper.dominates(OURS)
    assert not OURS.dominates(cheaper)
    lines = [*table([OURS, better, cheaper])]
    assert lines[2:5] == ["| slo | 1.00% 2.00 † |", "| hpa | 1.00% 1.90 |", "| keda | 2.00% 1.00 |"]


def test_what_is_promised_and_not_kept_is_said_with_figures() -> None:
    assert not [*promises([OURS, row("hpa", 0.02, 1.9), row("oracle", 0.0, 1.0)])]
    assert any("hpa has 1.50%" in each for each in promises([OURS, row("hpa", 0.015, 3.0)]))
    assert any("hours" in each for each in promises([OURS, row("hpa", 0.2, 1.0)]))
    assert any("keda has" in each for each in promises([OURS, row("keda", 0.001, 1.0)]))
    restless = replace(OURS, load="constant", score=replace(SCORE, changes=4))
    assert [*promises([restless])] == ["constant: 4 changes in 30 minutes"]
