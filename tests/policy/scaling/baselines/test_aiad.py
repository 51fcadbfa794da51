"""What `aiad` promises: one more after 30 s above its target, one less after ten minutes below."""

from itertools import pairwise

import pytest

from serving.policy.scaling.baselines.aiad import Aiad
from serving.policy.scaling.interface import LoadReport
from tests.policy.scaling.baselines.fleets import SLO_US, Fleet, changes, shown


def after(periods: int, latency: float, missed: float = 0.0) -> LoadReport:
    """The counters after so many periods of 100 requests of two rows, with this mean latency in SLOs."""
    requests = 100 * periods
    lost = round(requests * missed)
    return LoadReport(
        "m",
        offered=2 * requests,
        requests=requests,
        missed=2 * lost,
        answered=requests - lost,
        took_us=round((requests - lost) * latency * SLO_US),
    )


def run(policy: Aiad, periods: range, latency: float, ready: int = 5) -> list[int]:
    """What it wishes for in these periods."""
    return [
        policy.decide(
            shown(10 * each, seen=after(each, latency), before=after(each - 1, latency), ready=ready)
        ).count
        for each in periods
    ]


def test_above_its_target_it_adds_one_each_30_s() -> None:
    assert run(Aiad(), range(1, 10), 0.6) == [5, 5, 6, 6, 6, 7, 7, 7, 8]


def test_not_above_it_takes_one_each_ten_minutes() -> None:
    counts = run(Aiad(), range(1, 121), 0.5)
    assert counts == [5] * 59 + [4] * 60 + [3]


def test_a_spike_counts_as_long_as_it_is_in_the_mean_and_starts_the_ten_minutes_anew() -> None:
    policy = Aiad()
    run(policy, range(1, 59), 0.1)
    run(policy, range(59, 60), 9.0)
    assert run(policy, range(60, 122), 0.1) == [5] + [6] * 60 + [5]


def test_what_is_refused_counts_as_late() -> None:
    policy = Aiad()
    wish = policy.decide(shown(10, seen=after(1, 0.2, missed=0.5)))
    assert wish.figures["latency"] == pytest.approx(0.5 * 0.2 + 0.5)


def test_nobody_asking_is_below_the_target() -> None:
    fleet = Fleet(Aiad(), lambda second: 0.0, bounds=(1, 8))
    fleet.ready = 3
    counts = fleet.run(1900)[10:]
    assert list(dict.fromkeys(counts)) == [3, 2, 1]


def test_a_step_is_climbed_one_at_a_time_so_it_takes_long() -> None:
    """What Faro's authors hold against it."""
    fleet = Fleet(Aiad(), lambda second: 1000.0)
    counts = fleet.run(600)
    assert counts[100] < 10 <= counts[-1]
    assert all(there - here <= 1 for here, there in pairwise(counts))


def test_on_constant_load_it_tries_one_less_at_most_each_ten_minutes() -> None:
    fleet = Fleet(Aiad(), lambda second: 450.0)
    fleet.run(1200)
    assert changes(fleet.run(1800)) <= 6
