"""What `GET /v2/status` says of the tenants' rate limits."""

from typing import TypedDict

from serving.policy.limits.rate_limits import RateLimits


class RateStatus(TypedDict):
    """A tenant with limits (0: none), its requests without an answer, and those refused, by which limit."""

    tenant: str
    requests_per_s: float
    rows_per_s: float
    burst_s: float
    concurrent: int
    open: int
    refused: dict[str, int]


def rates_status(limits: RateLimits) -> list[RateStatus]:
    """Return the status of all tenants with limits."""
    return [
        {
            "tenant": name,
            "requests_per_s": rate.spec.requests_per_s,
            "rows_per_s": rate.spec.rows_per_s,
            "burst_s": rate.spec.burst_s,
            "concurrent": rate.spec.concurrent,
            "open": rate.open,
            "refused": dict(rate.refused),
        }
        for name, rate in limits.by_tenant.items()
    ]
