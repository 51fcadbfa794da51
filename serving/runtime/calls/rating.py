"""Rate limits of tenants, before all else: a call that is over one is answered at once, and costs nothing.

`serving.policy.limits.rate_limits` decides. What the limits leave goes with each answer of such a tenant, as
the fields of draft-ietf-httpapi-ratelimit-headers-11 (sections 3 and 4).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial

from serving.policy.limits.rate_limits import (
    CONCURRENT,
    REQUESTS,
    ROWS,
    RateLimits,
    Refusal,
    TenantRate,
    TokenBucket,
)
from serving.ports import Call, Reply, Serving
from serving.runtime.calls.pending_calls import Deliver, hand_over, stating
from serving.runtime.calls.selecting import SelectingServing
from serving.runtime.calls.splitting import Splits
from serving.selection.feedback import Feedback
from serving.values.specs import DEFAULT_TENANT, TenantSpec
from serving.values.vocabulary import RATE_LIMITED

S_US = 1_000_000


class RatedServing(SelectingServing):
    """A `SelectingServing` that holds each tenant to its rate. `rates`: its limits, which may change.
    `splits`: the shares of candidates."""

    def __init__(
        self,
        behind: Serving,
        selected: Callable[[Call, Reply, int], None] = lambda *_: None,
        seed: int | None = None,
        limited: Iterable[TenantSpec] = (),
    ) -> None:
        super().__init__(behind, selected, seed)
        self.rates = RateLimits(limited, behind.now_us())
        self._limited = self.rates.by_tenant  # one object, whatever comes and goes
        self.splits = Splits(seed)
        self._split = self.splits.by_model  # one object as well, and so are the next two
        self._shadow = self.splits.shadows
        self._labels = self.splits.labels.books

    def follow(self, tenants: Iterable[TenantSpec]) -> None:
        """Hold tenants to these limits from now on."""
        self.rates.follow(tenants, self.now_us())

    def submit(self, call: Call, deliver: Deliver) -> int:
        """See `serving.ports.Serving.submit`."""
        asked = call
        if self._split:
            call = self.splits.route(call)
            version = call.model.spec.version
            if version and call is not asked:
                deliver = stating(version, call, deliver)
        if self._labels:
            deliver = self.splits.labels.beside(asked, call, deliver)
        if self._shadow:
            deliver = self.splits.beside(call, deliver, self._behind.submit)
        rate = self._limited.get(call.tenant) if self._limited else None
        if rate is None:
            return super().submit(call, deliver)
        now = self.now_us()
        refusal = rate.enter(call.rows, now)
        if refusal is None:
            return super().submit(call, partial(self._answered, rate, deliver))
        reply = Reply(RATE_LIMITED, sentence_of(call, rate, refusal))
        reply.retry_us = refusal.retry_us
        reply.limits = limit_lines(rate, now, refusal)
        self._behind.refused(call.model.name, RATE_LIMITED, call.tenant)
        hand_over(deliver, reply, call.model.name)
        return 0

    def feedback(self, model: str, given: Sequence[Feedback], tenant: str = DEFAULT_TENANT) -> int:
        """Do as SelectingServing; feedback on a model with a candidate says which of them was right."""
        book = self._labels.get(model)
        if book is None:
            return super().feedback(model, given, tenant)
        book.learn(given, self.now_us(), tenant)
        return len(given)

    def _answered(self, rate: TenantRate, deliver: Deliver, reply: Reply) -> None:
        rate.leave()
        reply.limits = limit_lines(rate, self.now_us(), None)
        deliver(reply)


def sentence_of(call: Call, rate: TenantRate, refusal: Refusal) -> str:
    """Return what the client is told: which limit, and what it is."""
    who, spec = f"tenant {call.tenant}", rate.spec
    if refusal.kind == CONCURRENT:
        return f"{who} has its limit of {rate.concurrent} requests open (rate.concurrent)"
    if refusal.kind == ROWS:
        return f"{who} sends more than {spec.rows_per_s * rate.share:g} rows a second (rate.rows_per_s)"
    per_s = spec.requests_per_s * rate.share
    return f"{who} sends more than {per_s:g} requests a second (rate.requests_per_s)"


def limit_lines(rate: TenantRate, now_us: int, refusal: Refusal | None) -> str:
    """Return the limits and what they leave, as header lines. After a refusal no window ends before another
    try may fare better."""
    policies, standings = [], []
    for kind, bucket in ((REQUESTS, rate.requests), (ROWS, rate.rows)):
        if bucket is not None:
            bucket.wait_us(0, now_us)  # what came back until now
            policies.append(_policy(kind, bucket.quota, _seconds(bucket.window_us)))
            standings.append(_standing(kind, bucket, refusal))
    if most := rate.concurrent:
        policies.append(f'"{CONCURRENT}";q={most};qu="concurrent-requests"')
        standings.append(f'"{CONCURRENT}";r={max(most - rate.open, 0)}')
    return f"\r\nratelimit-policy: {', '.join(policies)}\r\nratelimit: {', '.join(standings)}"


@lru_cache(256)
def _policy(kind: str, quota: int, window_s: int) -> str:
    unit = ";penstock-unit=rows" if kind == ROWS else ""
    return f'"{kind}";q={quota};w={window_s}{unit}'


def _standing(kind: str, bucket: TokenBucket, refusal: Refusal | None) -> str:
    until_us = refusal.retry_us if refusal is not None and refusal.kind == kind else bucket.filling_us
    return f'"{kind}";r={bucket.left};t={_seconds(until_us)}'


def _seconds(span_us: int) -> int:
    return -(-span_us // S_US)
