"""What `keda` promises: the queue's length over the target, and its own rules between none and one."""

import pytest

from serving.policy.scaling.baselines.keda import Keda
from serving.policy.scaling.interface import LoadReport
from tests.policy.scaling.baselines.fleets import Fleet, changes, shown


@pytest.mark.parametrize(
    ("waiting", "running", "ready", "wanted"),
    [
        (20, 10, 3, 6),  # AverageValue: 30 messages, 5 for each: 6 pods
        (16, 0, 3, 3),  # 16 of 15 is within a tenth
        (17, 0, 3, 4),
        (30, 0, 1, 5),  # at most four more at once
        (0, 16, 3, 3),  # messages in flight count
    ],
)
def test_so_many_rows_for_each_replica(waiting: int, running: int, ready: int, wanted: int) -> None:
    seen = LoadReport("m", waiting=waiting, running=running)
    assert Keda().decide(shown(15, seen=seen, ready=ready)).count == wanted


def test_the_target_is_the_operators() -> None:
    seen = LoadReport("m", waiting=300)
    assert Keda(100.0).decide(shown(15, seen=seen, ready=2)).count == 3


def test_it_goes_to_none_once_every_poll_of_300_s_found_nothing() -> None:
    fleet = Fleet(Keda(), lambda second: 40.0 if second <= 60 else 0.0, bounds=(0, 8))
    counts = fleet.run(600)
    gone = counts.index(0)
    assert 60 + 300 - 30 <= gone <= 60 + 300 + 45
    assert set(counts[gone:]) == {0}
    assert 0 not in counts[:gone]


def test_what_is_asked_for_little_is_not_taken_to_none() -> None:
    policy = Keda()
    for second in range(15, 3000, 15):
        seen = LoadReport("m", running=1 if second % 270 == 45 else 0)
        assert policy.decide(shown(second, seen=seen, least=0)).count == 1


def test_from_none_it_comes_back_at_a_poll_that_finds_something_queued() -> None:
    policy, counts = Keda(), [1]
    for second in range(15, 450, 15):
        seen = LoadReport("m", waiting=20 if second >= 390 else 0)
        counts.append(policy.decide(shown(second, least=0, ready=counts[-1], seen=seen)).count)
    assert counts[25] == 0  # at 375 s
    assert counts[26] == 0  # at 390 s: it does not look
    assert counts[27] > 0


def test_who_was_woken_by_a_request_stays_for_the_cooldown() -> None:
    policy, counts = Keda(), [1]
    for second in range(15, 1000, 15):
        ready = 1 if second == 615 else counts[-1]
        counts.append(policy.decide(shown(second, least=0, ready=ready)).count)
    assert counts[40] == 0  # at 600 s
    assert set(counts[41:61]) == {1}
    assert counts[64] == 0


def test_with_a_least_it_never_goes_to_none() -> None:
    fleet = Fleet(Keda(), lambda second: 0.0, bounds=(2, 8))
    assert set(fleet.run(1000)) == {2}


def test_constant_load_does_not_move_it_once_settled() -> None:
    fleet = Fleet(Keda(), lambda second: 500.0)
    fleet.run(900)
    assert changes(fleet.run(600)) == 0
