"""What the target promises: the largest batch that its first row can wait for, by the rate that was seen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.rules.targets import (
    REVIEW_US,
    Targets,
    mean_target,
    row_us,
    saving_us,
    target_rows,
    worth_target,
)
from tests.policy.views import ArrivalSeen, ReplicaSeen, replicas

devices = st.builds(replace, replicas, base_us=st.sampled_from([0.0, 2.0]))


@given(devices, st.integers(1, 60), st.floats(0.02, 4))
def test_it_is_symphony_s_estimator(replica: ReplicaSeen, slo_us: int, rate: float) -> None:
    fitting = [1]
    for rows in range(2, replica.rows_max(0) + 1):
        latency_us = replica.predict_us(rows, 0)
        slices = rate * latency_us / rows
        waits_us = latency_us / slices if slices > 1 else rows / rate
        if latency_us + waits_us <= slo_us * (1 + 1e-9):
            fitting.append(rows)
    assert target_rows(replica, 0, slo_us * (1 + 1e-9), rate) == max(fitting)


def test_while_no_rate_is_known_a_batch_may_take_half_the_slo() -> None:
    assert Targets(10).at(ReplicaSeen({0: 8}), 0, 0) == (5, 0.0)
    assert Targets(1).at(ReplicaSeen({0: 8}), 0, 0) == (1, 0.0)


def test_it_follows_the_rate_of_its_own_size_bucket_within_a_review() -> None:
    targets, replica = Targets(2_000_000), ReplicaSeen({0: 64, 1: 64}, base_us=100_000)
    assert targets.at(replica, 0, 0) == (64, 0.0)
    for now_us in range(0, 1_000_000, 100_000):
        targets.count(ArrivalSeen(3, bucket=0), now_us)
    target, rate = targets.at(replica, 0, 1_000_000)
    assert rate == pytest.approx(30e-6, rel=0.2)
    assert target == target_rows(replica, 0, 2_000_000, rate)
    assert targets.at(replica, 0, 1_000_000 + REVIEW_US - 1) == (target, rate)
    assert targets.at(replica, 0, 1_000_000 + REVIEW_US)[1] < rate
    assert targets.at(replica, 1, 1_000_000) == (64, 0.0)


@given(devices, st.integers(1, 7), st.integers(1, 7))
def test_what_a_larger_batch_saves_is_what_does_not_grow_with_it(
    replica: ReplicaSeen, rows: int, more: int
) -> None:
    assert saving_us(replica, 0, rows, rows + more) == pytest.approx(replica.base_us)


@given(devices, st.integers(1, 60), st.floats(0.02, 4))
def test_the_mean_target_lies_between_the_target_and_the_next_and_costs_as_much_as_such_batches_mixed(
    replica: ReplicaSeen, slo_us: int, rate: float
) -> None:
    target, mean = worth_target(replica, 0, slo_us, rate), mean_target(replica, 0, slo_us, rate)
    assert target <= mean <= min(target + 1, replica.rows_worth(0))
    if target < mean < target + 1:  # linear between them, the first row's wait and batch fill the SLO
        took_us = row_us(replica, mean, 0) * mean
        assert took_us + mean / rate == pytest.approx(slo_us)
    costs = [row_us(replica, rows, 0) for rows in (target, mean, min(target + 1, replica.rows_worth(0)))]
    assert costs == sorted(costs, reverse=True) or costs == pytest.approx([costs[0]] * 3)
