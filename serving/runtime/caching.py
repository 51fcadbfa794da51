"""The result cache before the gateway: what was answered is not computed again, what is under way only once.

After Clipper's prediction cache (Crankshaw et al., NSDI 2017, section 4.2), with one difference: a call that
joins another enqueues nothing. Kept answers and joined calls never reach the scheduler: they are no load.
What a call may be answered with is decided in `serving.cache`; here calls wait, and are told.
"""

import logging
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Protocol

from serving.cache.entries import Entry, entry_of
from serving.cache.flights import Flights, Join
from serving.cache.keys import question_key
from serving.cache.memory import MemoryStore
from serving.ports import Call, Reply
from serving.runtime import gateway
from serving.runtime.alarm import Alarm
from serving.runtime.clock import now_us
from serving.scheduler.requests import Request
from serving.specs import DEFAULT_TENANT, CacheSpec, Limits, ServedModel
from serving.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_UNMET,
    NEVER_US,
    Kind,
    Outcome,
)

logger = logging.getLogger(__name__)

FAILURES_MAX = 1
"""Failures of a question after which another of its waiters is tried: one that kills workers, or that the
model raises on, ends for all who wait with the second."""

Deliver = Callable[[Reply], None]


class Observer(gateway.Observer, Protocol):
    """Who counts what happens; of the calls that the gateway never sees too."""

    def cache_asked(self, model: str, result: str, took_us: int) -> None:
        """The cache was asked ("hit", "join" or "miss"), which took so long, digest and all."""
        ...


class _Waiter:
    """A call that waits, as leader (with the `request_id` of its request) or joiner (0).

    `request` is how it is counted where it never becomes one of the gateway's; `failures` those of its
    question before it led.
    """

    __slots__ = ("call", "deliver", "epoch", "failures", "flight", "id", "key", "request", "request_id")

    def __init__(self, waiter_id: int, call: Call, request: Request, deliver: Deliver) -> None:
        self.id = waiter_id
        self.call = call
        self.request = request
        self.deliver = deliver
        self.request_id = 0
        self.failures = 0
        self.key = b""
        self.epoch = 0  # of the store
        self.flight = b""  # the key and the epoch: after an invalidation nobody joins what began before


class CachedServing:
    """`serving.ports.Serving` around a gateway. Made on the running event loop.

    Ids of calls that asked the cache are negative, all others the gateway's. `record` is called as the
    gateway's own, with every call that does not reach it. While `waiters_max` calls wait, others that are not
    answered at once are the gateway's, which has bounds of its own.
    """

    def __init__(
        self,
        behind: gateway.Gateway,
        spec: CacheSpec,
        observer: Observer,
        record: Callable[[Call, int], None] | None = None,
        waiters_max: int = Limits().queue_requests,
    ) -> None:
        self.models, self.tenants = behind.models, behind.tenants
        self.store = MemoryStore(spec.memory_bytes, spec.ttl_us)
        self._shared = spec.shared
        self._gateway = behind
        self._observer = observer
        self._record = record
        self._waiters_max = waiters_max
        self._flights = Flights()
        self._waiters: dict[int, _Waiter] = {}
        self._count = 0
        self._expiries: list[tuple[int, int]] = []  # heap of (instant, id) of joiners; the ended leave lazily
        self._alarm = Alarm(self._expire)
        self._kept = {name: _deterministic(model) for name, model in self.models.items()}

    # what edges see

    now_us = staticmethod(now_us)

    @property
    def ready(self) -> bool:
        """As the gateway."""
        return self._gateway.ready

    @property
    def open_requests(self) -> int:
        """Accepted calls without a reply: the gateway's and those that joined one."""
        return self._gateway.open_requests + len(self._waiters) - len(self._flights)

    def model_ready(self, name: str) -> bool:
        """As the gateway."""
        return self._gateway.model_ready(name)

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """As the gateway."""
        self._gateway.refused(model, outcome, tenant)

    def submit(self, call: Call, deliver: Deliver) -> int:
        """See `serving.ports.Serving.submit`."""
        model = call.model
        variant = call.variant or model.answering_variant
        if not call.store or variant not in self._kept[model.name] or call.rows > model.spec.batch_max:
            return self._gateway.submit(call, deliver)
        now = now_us()
        key = question_key(call, self._shared)
        entry = None if call.max_age_us == 0 else self.store.get(key, now)
        if entry is not None and (call.max_age_us is None or now - entry.stored_us <= call.max_age_us):
            self._hit(call, entry, deliver, now)
            return 0
        if len(self._waiters) >= self._waiters_max:
            return self._gateway.submit(call, deliver)
        self._count -= 1
        waiter = self._waiters[self._count] = _Waiter(self._count, call, _describe(call, now), deliver)
        waiter.key, waiter.epoch = key, self.store.epoch
        waiter.flight = key + waiter.epoch.to_bytes(8, "little")
        least_us = 0 if call.timeout_us is None else self._least_us(call)
        asked = self._flights.ask(waiter.flight, waiter.id, waiter.request.deadline_us, now, least_us)
        if isinstance(asked, Join):
            self._join(waiter, asked, now)
        else:
            self._observer.cache_asked(model.name, "miss", now_us() - now)
            self._lead(waiter)
        return waiter.id if waiter.id in self._waiters else 0

    def cancel(self, request_id: int) -> None:
        """See `serving.ports.Serving.cancel`. Where a leader's client goes, another waiter leads."""
        waiter = self._waiters.get(request_id)
        if waiter is None:
            self._gateway.cancel(request_id)
        elif waiter.request_id:
            self._gateway.cancel(waiter.request_id)  # which settles it
        else:
            self._leave(waiter, CLIENT_GONE)

    def invalidate(self, model: str = "") -> int:
        """See `serving.ports.Serving.invalidate`."""
        return self.store.invalidate(model)

    # asking

    def _hit(self, call: Call, entry: Entry, deliver: Deliver, now: int) -> None:
        request = _describe(call, now)
        self._tell(call, request, "hit", now)
        reply = Reply(COMPLETED)
        reply.outputs, reply.variant = entry.outputs, entry.variant
        reply.cache, reply.age_us = "hit", now - entry.stored_us
        self._count_done(request, reply)
        _deliver(deliver, reply, request.model)

    def _join(self, waiter: _Waiter, asked: Join, now: int) -> None:
        self._tell(waiter.call, waiter.request, "join", now)
        leader = self._waiters[asked.leader]
        waiter.call.inputs = leader.call.inputs  # equal: its own, of which nobody counts the bytes, can go
        if asked.tighten_us is not None:
            self._gateway.tighten(leader.request_id, asked.tighten_us)
        if waiter.request.expires_us != NEVER_US:
            if len(self._expiries) > 2 * len(self._waiters) + 64:
                self._expiries[:] = [each for each in self._expiries if each[1] in self._waiters]
                heapify(self._expiries)
            heappush(self._expiries, (waiter.request.expires_us, waiter.id))
            self._alarm.set(self._expiries[0][0], now)

    def _lead(self, waiter: _Waiter, again: bool = False) -> None:
        """Have it computed; `again`: after another's request, so that its arrival is known."""
        request_id = self._gateway.submit(waiter.call, partial(self._settle, waiter), again)
        if request_id:  # else it was settled within
            waiter.request_id = request_id
            due_us = self._flights.deadline_us(waiter.flight)
            if due_us < waiter.request.deadline_us:
                self._gateway.tighten(request_id, due_us)

    def _tell(self, call: Call, request: Request, result: str, now: int) -> None:
        """A call came that the gateway does not see."""
        if self._record is not None:
            self._record(call, request.arrived_us)
        self._observer.cache_asked(request.model, result, now_us() - now)
        self._observer.parsed(request.model, now - request.arrived_us)

    # ending

    def _settle(self, leader: _Waiter, reply: Reply) -> None:
        """The gateway has answered a leader, and counted it."""
        now = now_us()
        self._expire(now)
        if reply.outcome is COMPLETED:
            self._land(leader, reply, now)
        else:
            self._fall(leader, reply, now)

    def _land(self, leader: _Waiter, reply: Reply, now: int) -> None:
        waiters = [self._waiters.pop(each) for each in self._flights.landed(leader.flight)]
        if leader.epoch == self.store.epoch:
            entry = entry_of(leader.request.model, reply.variant, reply.outputs, now)
            self.store.put(leader.key, entry, now)
        reply.cache = "miss"
        for waiter in waiters:
            own = reply
            if waiter is not leader:
                own = Reply(COMPLETED)
                own.outputs, own.variant, own.cache = reply.outputs, reply.variant, "join"
                self._count_done(waiter.request, own)
            _deliver(waiter.deliver, own, waiter.request.model)

    def _fall(self, leader: _Waiter, reply: Reply, now: int) -> None:
        """No answer: another waiter leads, unless it would fare the same, as whoever asks again where a call
        was turned away just now."""
        kind = reply.outcome.kind
        leader.failures += kind is Kind.FAILED
        if kind is Kind.REJECTED or leader.failures > FAILURES_MAX:
            promoted, ended = None, self._flights.landed(leader.flight)
        else:
            promoted, ended = self._flights.fell(leader.flight, now, self._least_us(leader.call))
        del self._waiters[leader.id]
        if promoted is not None:
            self._waiters[promoted].failures = leader.failures
            self._lead(self._waiters[promoted], again=True)
        _deliver(leader.deliver, reply, leader.request.model)
        same = kind in (Kind.REJECTED, Kind.FAILED)
        for each in ended[1:]:
            waiter = self._waiters.get(each)
            if waiter is not None:  # else its client went as another was told
                own = Reply(reply.outcome, reply.detail) if same else Reply(DEADLINE_UNMET)
                own.retry_us = reply.retry_us
                self._end(waiter, own, now)

    def _expire(self, now: int) -> None:
        """End joiners whose own deadline has passed; the gateway sees to the leaders."""
        expiries = self._expiries
        while expiries and expiries[0][0] <= now:
            waiter = self._waiters.get(heappop(expiries)[1])
            if waiter is not None and self._flights.leader(waiter.flight) != waiter.id:
                self._leave(waiter, DEADLINE_QUEUED)
        if expiries:
            self._alarm.set(expiries[0][0], now)

    def _leave(self, waiter: _Waiter, outcome: Outcome) -> None:
        """A joiner waits no longer."""
        now = now_us()
        self._flights.leave(waiter.id, now, 0)
        self._end(waiter, Reply(outcome), now)

    def _end(self, waiter: _Waiter, reply: Reply, now: int) -> None:
        """A joiner ends without an answer."""
        del self._waiters[waiter.id]
        if reply.outcome.kind is Kind.SHED:
            reply.queue_us = now - waiter.request.arrived_us
        self._count_done(waiter.request, reply)
        _deliver(waiter.deliver, reply, waiter.request.model)

    def _count_done(self, request: Request, reply: Reply) -> None:
        answered_us = now_us()  # others with the same answer were told before
        latency_us = answered_us - request.arrived_us
        self._observer.request_done(request, reply, latency_us, answered_us <= request.deadline_us)

    def _least_us(self, call: Call) -> int:
        return ceil(self._gateway.quickest_us(call))


def _deterministic(model: ServedModel) -> frozenset[str]:
    """The variants whose answers may be kept."""
    names = model.variants if model.cache else ()
    return frozenset(name for name in names if model.spec.variant(name).deterministic)


def _describe(call: Call, now: int) -> Request:
    """What is counted of a call; its arrival is fixed."""
    arrived_us = call.arrived_us = call.arrived_us or now
    request = Request(0, call.model.name, call.rows, arrived_us, arrived_us + call.model.slo_us)
    if call.timeout_us is not None:
        request.expires_us = arrived_us + call.timeout_us
        request.deadline_us = min(request.deadline_us, request.expires_us)
    request.tenant = call.tenant
    return request


def _deliver(deliver: Deliver, reply: Reply, model: str) -> None:
    try:
        deliver(reply)
    except Exception:  # a bug of one edge must not cost the others their answers
        logger.exception("an answer of %s could not be delivered", model)
