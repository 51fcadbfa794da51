"""How many requests and rows a tenant may send: token buckets, and a bound on what is open at a time.

A bucket holds at most `burst_s` seconds of its rate, and gets its rate back all the time. A request that has
more rows than a full bucket holds is let in when the bucket is full, and leaves a debt. So over any time T at
most `capacity + rate * T` units are let in, and one request more.

All sums are whole numbers: instants in microseconds, units in thousand-millionths.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final

from serving.policy.limits.rate_shares import GRAIN
from serving.values.objectives import RateSpec
from serving.values.specs import TenantSpec

REQUESTS, ROWS, CONCURRENT = KINDS = ("requests", "rows", "concurrent")
"""What may be over its limit, as metrics and answers name it."""

UNIT: Final = 1_000_000_000
"""Of what a bucket holds, one request or row."""

CONCURRENT_RETRY_US: Final = 100_000
"""In place of the time until another request has ended, which is not known."""


class TokenBucket:
    """Full at first. `level`: what may be taken, below 0 after a request larger than the bucket."""

    __slots__ = ("at_us", "capacity", "level", "per_us")

    def __init__(self, per_s: float, burst_s: float, now_us: int) -> None:
        self.per_us = max(round(per_s * UNIT / 1_000_000), 1)
        self.capacity = max(round(per_s * burst_s * UNIT), UNIT)
        self.level = self.capacity
        self.at_us = now_us

    def change(self, per_s: float, burst_s: float) -> None:
        """Have another rate from now on, as full as before."""
        filled, before = self.level, self.capacity
        self.per_us = max(round(per_s * UNIT / 1_000_000), 1)
        self.capacity = max(round(per_s * burst_s * UNIT), UNIT)
        self.level = filled * self.capacity // before

    def wait_us(self, units: int, now_us: int) -> int:
        """Return in how long so many units may be taken; 0 for now."""
        if now_us > self.at_us:
            self.level = min(self.level + (now_us - self.at_us) * self.per_us, self.capacity)
            self.at_us = now_us
        lacking = min(units * UNIT, self.capacity) - self.level
        return 0 if lacking <= 0 else -(-lacking // self.per_us)

    def take(self, units: int) -> None:
        """Take so many units, for which the wait is 0."""
        self.level -= units * UNIT

    @property
    def left(self) -> int:
        """The whole units that may be taken, as of the latest question."""
        return max(self.level // UNIT, 0)

    @property
    def quota(self) -> int:
        """The whole units of a full bucket."""
        return self.capacity // UNIT

    @property
    def window_us(self) -> int:
        """How long an empty bucket takes to be full."""
        return -(-self.capacity // self.per_us)

    @property
    def filling_us(self) -> int:
        """How long it takes to be full from now on."""
        return -(-(self.capacity - self.level) // self.per_us)


class Refusal:
    """Why a request may not be let in: `kind`, one of KINDS; `retry_us`: when another try may fare better."""

    __slots__ = ("kind", "retry_us")

    def __init__(self, kind: str, retry_us: int) -> None:
        self.kind = kind
        self.retry_us = retry_us


class TenantRate:
    """One tenant's limits. `open`: its requests without an answer; `refused`: how many, by kind. `share`: of
    the limits, what this gateway has beside others; `sent`: requests that came, refused ones included."""

    __slots__ = ("concurrent", "open", "refused", "requests", "rows", "sent", "share", "spec")

    def __init__(self, spec: RateSpec, now_us: int) -> None:
        self.spec = spec
        self.share = 1.0
        self.sent = 0
        self.concurrent = spec.concurrent
        self.open = 0
        self.refused: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.requests = _bucket(spec.requests_per_s, spec.burst_s, now_us)
        self.rows = _bucket(spec.rows_per_s, spec.burst_s, now_us)

    def change(self, spec: RateSpec, now_us: int) -> None:
        """Set other limits; what is open and what was refused is remembered. Buckets are full again."""
        self.spec = spec
        self.requests = _bucket(spec.requests_per_s, spec.burst_s, now_us)
        self.rows = _bucket(spec.rows_per_s, spec.burst_s, now_us)
        self.divide(self.share)

    def divide(self, share: float) -> None:
        """Hold the tenant to this share of its limits (0 to 1); at least one request may be open."""
        spec, self.share = self.spec, share
        if self.requests is not None:
            self.requests.change(spec.requests_per_s * share, spec.burst_s)
        if self.rows is not None:
            self.rows.change(spec.rows_per_s * share, spec.burst_s)
        self.concurrent = ceil(spec.concurrent * share)

    def enter(self, rows: int, now_us: int) -> Refusal | None:
        """Let a request in, and return None; or return why it may not. It takes from all limits, or from
        none."""
        most = self.concurrent
        self.sent += 1
        wait_us, kind = 0, ""
        if self.requests is not None:
            wait_us, kind = self.requests.wait_us(1, now_us), REQUESTS
        if self.rows is not None:
            rows_us = self.rows.wait_us(rows, now_us)
            if rows_us > wait_us:
                wait_us, kind = rows_us, ROWS
        if wait_us == 0 and most and self.open >= most:
            wait_us, kind = CONCURRENT_RETRY_US, CONCURRENT
        if wait_us:
            self.refused[kind] += 1
            return Refusal(kind, wait_us)
        if self.requests is not None:
            self.requests.take(1)
        if self.rows is not None:
            self.rows.take(rows)
        self.open += 1
        return None

    def leave(self) -> None:
        """Note that a request that was let in is answered."""
        self.open -= 1


def _bucket(per_s: float, burst_s: float, now_us: int) -> TokenBucket | None:
    return TokenBucket(per_s, burst_s, now_us) if per_s else None


class RateLimits:
    """The limits of all tenants that have any, by name."""

    __slots__ = ("by_tenant",)

    def __init__(self, tenants: Iterable[TenantSpec] = (), now_us: int = 0) -> None:
        self.by_tenant: dict[str, TenantRate] = {}
        self.follow(tenants, now_us)

    def follow(self, tenants: Iterable[TenantSpec], now_us: int) -> None:
        """Have these limits from now on, and no others. Limits that stay go on as they are."""
        wanted = {each.name: each.rate for each in tenants if each.rate is not None}
        for name in [name for name in self.by_tenant if name not in wanted]:
            del self.by_tenant[name]
        for name, spec in wanted.items():
            known = self.by_tenant.get(name)
            if known is None:
                self.by_tenant[name] = TenantRate(spec, now_us)
            elif known.spec != spec:
                known.change(spec, now_us)

    def divide(self, shares: Mapping[str, float]) -> None:
        """Hold tenants to these shares of their limits, by tenant. A share that is much alike stays."""
        for name, share in shares.items():
            rate = self.by_tenant.get(name)
            if rate is not None and abs(rate.share - share) >= GRAIN:
                rate.divide(share)
