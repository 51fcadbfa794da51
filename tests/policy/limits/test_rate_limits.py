"""Token buckets: never more than capacity and rate allow, never less than a patient tenant is owed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.limits.rate_limits import CONCURRENT, REQUESTS, ROWS, RateLimits, TenantRate, TokenBucket
from serving.values.objectives import RateSpec
from serving.values.specs import TenantSpec
from tests.seeds import drawn

S_US = 1_000_000
RATES = st.integers(1, 5_000_000).map(lambda thousandths: thousandths / 1000)
BURSTS = st.sampled_from([0.01, 0.1, 1.0, 2.5, 60.0])
ASKED = st.lists(st.tuples(st.integers(0, 3 * S_US), st.integers(1, 50)), max_size=60)
"""Pauses before requests, and their rows."""


@given(RATES, BURSTS, ASKED)
@settings(max_examples=drawn(300))
def test_no_span_of_time_lets_in_more_than_its_share(
    per_s: float, burst_s: float, asked: list[tuple[int, int]]
) -> None:
    bucket, now_us, let_in = TokenBucket(per_s, burst_s, 0), 0, []
    capacity = max(per_s * burst_s, 1)
    for pause_us, rows in asked:
        now_us += pause_us
        if not bucket.wait_us(rows, now_us):
            bucket.take(rows)
            let_in.append((now_us, rows))
    for first, (begun_us, _) in enumerate(let_in):
        rows_then = 0
        for at_us, rows in let_in[first:]:
            allowed = capacity + per_s * (at_us - begun_us) / S_US
            assert rows_then <= allowed + 1e-6  # before the last of them, whose debt may follow
            rows_then += rows


@given(RATES, BURSTS, ASKED, st.integers(1, 50))
@settings(max_examples=drawn(300))
def test_the_wait_is_the_least_that_suffices(
    per_s: float, burst_s: float, asked: list[tuple[int, int]], units: int
) -> None:
    bucket, now_us = TokenBucket(per_s, burst_s, 0), 0
    for pause_us, rows in asked:
        now_us += pause_us
        if not bucket.wait_us(rows, now_us):
            bucket.take(rows)
    wait_us = bucket.wait_us(units, now_us)
    if wait_us:
        assert bucket.wait_us(units, now_us + wait_us - 1) == 1
    assert bucket.wait_us(units, now_us + wait_us) == 0
    assert bucket.wait_us(units, now_us + wait_us + S_US) == 0


@given(RATES, BURSTS, st.integers(1, 200))
def test_a_tenant_that_keeps_to_its_rate_is_never_refused(per_s: float, burst_s: float, count: int) -> None:
    bucket, gap_us = TokenBucket(per_s, burst_s, 0), -(-S_US * 1000 // round(per_s * 1000))
    for number in range(count):
        assert bucket.wait_us(1, number * gap_us) == 0
        bucket.take(1)


@given(ASKED)
def test_a_refused_request_takes_from_no_limit(asked: list[tuple[int, int]]) -> None:
    rate, now_us = TenantRate(RateSpec(5, 40, concurrent=3), 0), 0
    for pause_us, rows in asked:
        now_us += pause_us
        assert rate.requests is not None
        assert rate.rows is not None
        rate.requests.wait_us(0, now_us)
        rate.rows.wait_us(0, now_us)
        before = rate.requests.level, rate.rows.level, rate.open
        refusal = rate.enter(rows, now_us)
        after = rate.requests.level, rate.rows.level, rate.open
        assert (before == after) == (refusal is not None)
        if refusal is not None:
            assert refusal.retry_us > 0
        elif rate.open == 2:
            rate.leave()


def test_each_limit_refuses_by_its_name() -> None:
    def refused(spec: RateSpec, count: int, rows: int) -> list[str]:
        rate = TenantRate(spec, 0)
        found = (rate.enter(rows, 0) for _ in range(count))
        return [each.kind for each in found if each is not None]

    assert refused(RateSpec(requests_per_s=2), 4, 9) == [REQUESTS] * 2
    assert refused(RateSpec(rows_per_s=10, burst_s=2), 4, 9) == [ROWS] * 2
    assert refused(RateSpec(concurrent=3), 4, 9) == [CONCURRENT]
    assert refused(RateSpec(requests_per_s=0.5), 2, 1) == [REQUESTS]


def test_a_request_larger_than_the_bucket_is_let_in_and_leaves_a_debt() -> None:
    bucket = TokenBucket(10, 1, 0)
    assert bucket.wait_us(100, 0) == 0
    bucket.take(100)
    assert bucket.wait_us(1, 0) == 9_100_000


def test_other_limits_count_at_once_and_what_is_open_is_remembered() -> None:
    limits = RateLimits([TenantSpec("a", rate=RateSpec(concurrent=2)), TenantSpec("b")], 0)
    rate = limits.by_tenant["a"]
    assert list(limits.by_tenant) == ["a"]
    assert [rate.enter(1, 0), rate.enter(1, 0)] == [None, None]
    limits.follow([TenantSpec("a", rate=RateSpec(requests_per_s=1, concurrent=3))], 0)
    assert limits.by_tenant["a"] is rate
    assert (rate.open, rate.enter(1, 0)) == (2, None)
    assert rate.enter(1, 0) is not None
    limits.follow([TenantSpec("a")], 0)
    assert not limits.by_tenant
