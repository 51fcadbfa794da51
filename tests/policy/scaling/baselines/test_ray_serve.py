"""What `ray_serve` promises: ongoing requests over the target, followed only after its delays."""

import pytest

from serving.policy.scaling.baselines.ray_serve import RayServe
from serving.policy.scaling.interface import LoadReport
from tests.policy.scaling.baselines.fleets import Fleet, changes, shown


def decide(policy: RayServe, second: int, ongoing: int, ready: int = 1, least: int = 0) -> int:
    """What it wishes for, with so many rows half in batches."""
    seen = LoadReport("m", waiting=ongoing - ongoing // 2, running=ongoing // 2)
    return policy.decide(shown(second, seen=seen, ready=ready, least=least)).count


def test_it_goes_up_when_more_were_desired_for_30_s_and_not_before() -> None:
    policy = RayServe()
    assert [decide(policy, second, 12) for second in range(1, 31)] == [1] * 30
    assert decide(policy, 31, 12) == 6


def test_a_lull_of_one_look_starts_the_delay_anew() -> None:
    policy = RayServe()
    for second in range(1, 62):
        decide(policy, second, 2)
    more = [decide(policy, second, 4) for second in range(62, 72)]
    lull = [decide(policy, second, 0) for second in range(72, 92)]
    assert {*more, *lull} == {1}
    assert [decide(policy, second, 4) for second in range(92, 122)] == [1] * 30


def test_it_goes_down_after_600_s_to_what_is_desired_then() -> None:
    policy = RayServe()
    counts = [decide(policy, second, 5, ready=10, least=1) for second in range(1, 602)]
    assert counts == [10] * 600 + [3]


def test_to_none_it_goes_only_by_way_of_one() -> None:
    policy = RayServe()
    counts, ready = [], 4
    for second in range(1, 1300):
        ready = decide(policy, second, 0, ready)
        counts.append(ready)
    assert list(dict.fromkeys(counts)) == [4, 1, 0]


def test_from_none_it_comes_at_once() -> None:
    policy, ready = RayServe(), 1
    for second in range(1, 700):
        ready = decide(policy, second, 0, ready)
    assert ready == 0
    assert decide(policy, 701, 1, ready=0) == 1


def test_the_mean_is_over_30_s() -> None:
    policy = RayServe()
    for second in range(1, 31):
        policy.decide(shown(second, seen=LoadReport("m", running=0)))
    wish = policy.decide(shown(31, seen=LoadReport("m", running=30)))
    assert wish.figures["ongoing"] == pytest.approx(1.0)


def test_the_target_is_set_to_a_batch_where_replicas_batch() -> None:
    policy = RayServe(16.0)
    assert [decide(policy, second, 40, ready=1) for second in range(1, 32)][-1] == 3


def test_constant_load_does_not_move_it_once_settled() -> None:
    fleet = Fleet(RayServe(4.0), lambda second: 500.0)
    fleet.run(1300)
    assert changes(fleet.run(600)) == 0
