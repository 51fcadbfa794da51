"""Promises of rates over several gateways: together they let in what the tenant may send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.limits.rate_limits import KINDS, UNIT, RateLimits, Refusal, TokenBucket
from serving.policy.limits.rate_shares import SPARE, rate_shares
from serving.ports import Call
from serving.runtime.calls.rating import sentence_of
from serving.values.objectives import RateSpec
from serving.values.specs import TenantSpec
from tests.builders import served

SENT = st.dictionaries(
    st.sampled_from("abcd"),
    st.fixed_dictionaries({"t": st.floats(0, 1e6), "u": st.floats(0, 1e6)}),
    min_size=1,
)


@given(SENT)
def test_all_shares_of_a_rate_are_the_rate(sent: dict[str, dict[str, float]]) -> None:
    for tenant in ("t", "u"):
        shares = [rate_shares(own, sent)[tenant] for own in sent]
        assert sum(shares) == pytest.approx(1)
        assert all(share >= SPARE / len(sent) * 0.999 for share in shares)


def test_a_share_follows_the_requests() -> None:
    sent = {"a": {"t": 90.0}, "b": {"t": 10.0}}
    assert rate_shares("a", sent)["t"] == pytest.approx(0.05 + 0.9 * 0.9)
    assert rate_shares("b", sent)["t"] == pytest.approx(0.05 + 0.9 * 0.1)
    assert rate_shares("b", {"a": {"t": 0.0}, "b": {"t": 0.0}})["t"] == 0.5
    assert rate_shares("c", sent) == {}


def limits(spec: RateSpec) -> RateLimits:
    return RateLimits([TenantSpec("t", rate=spec)], 0)


def let_in(found: RateLimits, seconds: int, per_s: int, start_us: int = 0) -> int:
    """How many requests are let in that come evenly."""
    rate, count = found.by_tenant["t"], 0
    for number in range(seconds * per_s):
        if rate.enter(1, start_us + number * 1_000_000 // per_s) is None:
            rate.leave()
            count += 1
    return count


def test_a_divided_limit_lets_in_its_share() -> None:
    found = limits(RateSpec(100.0))
    found.divide({"t": 0.25, "unknown": 0.5})
    assert let_in(found, 10, 1000) == pytest.approx(25 * 10 + 25, abs=2)


def test_a_bucket_stays_as_full_as_it_was() -> None:
    bucket = TokenBucket(100, 1, 0)
    bucket.take(50)
    bucket.change(50, 1)
    assert (bucket.level, bucket.capacity) == (25 * UNIT, 50 * UNIT)
    bucket.change(100, 1)
    assert bucket.level == 50 * UNIT


def test_a_share_that_is_much_alike_stays() -> None:
    found = limits(RateSpec(100.0))
    found.divide({"t": 0.5})
    found.divide({"t": 0.51})
    assert found.by_tenant["t"].share == 0.5


def test_at_least_one_request_may_be_open() -> None:
    found = limits(RateSpec(concurrent=4))
    found.divide({"t": 0.1})
    rate = found.by_tenant["t"]
    assert rate.enter(1, 0) is None
    refusal = rate.enter(1, 0)
    assert refusal is not None
    assert refusal.kind == "concurrent"
    assert rate.sent == 2


def test_an_edit_of_the_limits_keeps_the_share() -> None:
    found = limits(RateSpec(100.0))
    found.divide({"t": 0.5})
    found.follow([TenantSpec("t", rate=RateSpec(1000.0))], 0)
    requests = found.by_tenant["t"].requests
    assert requests is not None
    assert requests.quota == 500


def test_a_refusal_states_the_share_that_is_enforced() -> None:
    found = limits(RateSpec(20.0, 8.0, concurrent=4))
    found.divide({"t": 0.5})
    rate, call = found.by_tenant["t"], Call(served(), (), 1)
    call.tenant = "t"
    said = [sentence_of(call, rate, Refusal(kind, 1)) for kind in KINDS]
    assert said == [
        "tenant t sends more than 10 requests a second (rate.requests_per_s)",
        "tenant t sends more than 4 rows a second (rate.rows_per_s)",
        "tenant t has its limit of 2 requests open (rate.concurrent)",
    ]
