"""The result cache before the gateway: what was answered is not computed again, what is under way only once.

After Clipper's prediction cache (Crankshaw et al., NSDI 2017, section 4.2), with one difference: a call that
joins another enqueues nothing. Kept answers and joined calls never reach the scheduler: they are no load.
What a call may be answered with is decided in `serving.cache`; here calls wait, and are told.
"""

from collections.abc import Callable
from functools import partial
from math import ceil

from serving.cache.benefit import CacheBenefit
from serving.cache.entries import KeptAnswer, entry_of
from serving.cache.flights import Flights, Join, ends_alike
from serving.cache.keys import question_key
from serving.cache.memory import MemoryStore
from serving.cache.soundness import fault_of
from serving.cache.spec import CacheSpec
from serving.cache.suiting import accuracy_of, suits
from serving.ports import Call, Reply
from serving.runtime.accounts import Accounts
from serving.runtime.cached_models import CachedModels
from serving.runtime.clock import now_us
from serving.runtime.gateway import Gateway
from serving.runtime.observer import CacheObserver
from serving.runtime.pending_calls import (
    Deliver,
    Expiries,
    PendingCall,
    describe,
    flight_of,
    hand_over,
    joined,
    reply_of,
)
from serving.runtime.searching import Question, Searches, SharedTier
from serving.scheduler.variant_reasons import VariantReasons
from serving.specs import DEFAULT_TENANT, Limits
from serving.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    NEVER_US,
    Kind,
    Outcome,
)


class CachedServing:
    """`serving.ports.Serving` around a gateway. Made on the running event loop.

    Ids of calls that asked the cache are negative, all others the gateway's. `record` is called as the
    gateway's own, with every call that does not reach it. While `waiters_max` calls wait, others that are not
    answered at once are the gateway's, which has bounds of its own.
    """

    def __init__(
        self,
        behind: Gateway,
        spec: CacheSpec,
        observer: CacheObserver,
        record: Callable[[Call, int], None] | None = None,
        waiters_max: int = Limits().queue_requests,
    ) -> None:
        self.models, self.tenants = behind.models, behind.tenants
        self.store = MemoryStore(spec.memory_bytes, spec.ttl_us)
        self._shared = spec.shared
        self._gateway = behind
        self._waiters_max = waiters_max
        self._flights = Flights()
        self._waiters: dict[int, PendingCall] = {}
        self._count = 0
        self._expiries = Expiries(self._expire)
        self.searches = Searches(self._searched, observer.cache_looked)
        self._kept = CachedModels(self.models, behind.builds, behind.doubts)
        self._accounts = Accounts(observer, record, self._kept)
        behind.before = self._expire

    def share(self, tier: SharedTier) -> None:
        """Let other gateways have the answers of this one, and this one theirs."""
        self.searches.tier = tier
        tier.on_invalidated = self.store.invalidate
        tier.on_healed = self._expect_anew

    def _expect_anew(self) -> None:
        """What asking the cache gained while the others' answers were out of reach says nothing any more."""
        self._kept.restart()

    @property
    def worth(self) -> dict[str, CacheBenefit]:
        """Of each model of which answers are kept, whether asking pays."""
        return self._kept.worths()

    # what edges see

    now_us = staticmethod(now_us)

    @property
    def ready(self) -> bool:
        """As the gateway."""
        return self._gateway.ready

    @property
    def open_requests(self) -> int:
        """Accepted calls without a reply: the gateway's and those that joined one."""
        computed = len(self._flights) - len(self.searches)
        return self._gateway.open_requests + len(self._waiters) - computed

    def model_ready(self, name: str) -> bool:
        """As the gateway."""
        return self._gateway.model_ready(name)

    def standing(self, model: str) -> VariantReasons:
        """As the gateway."""
        return self._gateway.standing(model)

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """As the gateway."""
        self._gateway.refused(model, outcome, tenant)

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """As the gateway."""
        self._gateway.answered(model, reply, read_us, made_us)

    def submit(self, call: Call, deliver: Deliver) -> int:
        """See `serving.ports.Serving.submit`."""
        model = call.model
        kept = self._kept.of(model)
        if kept is None or not kept.asks(call):
            return self._gateway.submit(call, deliver)
        now = now_us()
        key = question_key(call, self._shared)
        entry = None if call.max_age_us == 0 else self.store.get(key, now)
        if entry is not None and suits(call, entry, now, self._gateway.preferred):
            self._hit(call, entry, deliver, now)
            return 0
        if len(self._waiters) >= self._waiters_max:
            return self._gateway.submit(call, deliver)
        self._count -= 1
        waiter = self._waiters[self._count] = PendingCall(self._count, call, describe(call, now), deliver)
        waiter.key, waiter.epoch = key, self.store.epoch
        waiter.flight = flight_of(call, key, waiter.epoch)
        if entry is not None:
            waiter.least = accuracy_of(call, entry.variant)
        least_us = 0 if call.timeout_us is None else self._least_us(call)
        asked = self._flights.ask(waiter.flight, waiter.id, waiter.request.deadline_us, now, least_us)
        if isinstance(asked, Join):
            self._join(waiter, asked, now)
        elif not self._search(waiter, now):
            self._accounts.asked(model.name, "miss", now_us() - now)
            self._lead(waiter)
        return waiter.id if waiter.id in self._waiters else 0

    def cancel(self, request_id: int) -> None:
        """See `serving.ports.Serving.cancel`. What is computed for a leader goes on for who joined it."""
        waiter = self._waiters.get(request_id)
        if waiter is None:
            self._gateway.cancel(request_id)
        elif not self._leads(waiter):
            self._leave(waiter, CLIENT_GONE)
        elif waiter.settled or self._pass_on(waiter, (CLIENT_GONE, CLIENT_GONE)):
            pass
        elif waiter.request_id:
            self._gateway.cancel(waiter.request_id)  # which settles it
        else:
            self._abandon(waiter, CLIENT_GONE)

    def invalidate(self, model: str = "") -> int:
        """See `serving.ports.Serving.invalidate`."""
        self.searches.invalidate(model)
        return self.store.invalidate(model)

    # asking

    def _hit(self, call: Call, entry: KeptAnswer, deliver: Deliver, now: int) -> None:
        request = describe(call, now)
        self._accounts.told(call, request, "hit", now)
        reply = reply_of(call, entry, "hit", now - entry.stored_us)
        self._accounts.done(request, reply)
        hand_over(deliver, reply, request.model)

    def _join(self, waiter: PendingCall, asked: Join, now: int) -> None:
        self._accounts.told(waiter.call, waiter.request, "join", now)
        leader = self._waiters[asked.leader]
        waiter.call.inputs = leader.call.inputs  # equal: its own, of which nobody counts the bytes, can go
        if asked.tighten_us is not None:
            self._gateway.tighten(leader.request_id, asked.tighten_us)
            self.searches.hurry(waiter.flight, asked.tighten_us, now)
        self._watch(waiter, now)
        if not leader.timed and leader.request.expires_us < waiter.request.expires_us:
            self._watch(leader, now)
            self._gateway.expire(leader.request_id, NEVER_US)  # it may go on for the others

    def _watch(self, waiter: PendingCall, now: int) -> None:
        """See to a waiter's own deadline, which the gateway does not know, or no more."""
        waiter.timed = True
        if waiter.request.expires_us != NEVER_US:
            self._expiries.add(waiter.request.expires_us, waiter.id, self._waiters, now)

    def _lead(self, waiter: PendingCall, again: bool = False) -> None:
        """Have it computed; `again`: after another's request, so that its arrival is known."""
        request_id = self._gateway.submit(waiter.call, partial(self._settle, waiter), again)
        if request_id:  # else it was settled within
            waiter.request_id = request_id
            if waiter.timed:
                self._gateway.expire(request_id, NEVER_US)  # as its deadline is watched here
            due_us = self._flights.deadline_us(waiter.flight)
            if due_us < waiter.request.deadline_us:
                self._gateway.tighten(request_id, due_us)

    # looking for what other gateways have

    def _search(self, waiter: PendingCall, now: int) -> bool:
        """Look for a new flight's answer elsewhere; False where it is to be computed at once."""
        call = waiter.call
        if self.searches.tier is None or call.max_age_us == 0:
            return False
        check = partial(fault_of, spec=call.model.spec, rows=call.rows)
        deadline_us, least_us = waiter.request.deadline_us, self._least_us(call)
        question = Question(call.model.name, waiter.key, deadline_us, least_us, check)
        if not self.searches.begin(waiter.flight, question, now):
            return False
        self._accounts.came(call, waiter.request, now)
        self._watch(waiter, now)
        waiter.asked_us, waiter.digest_us = now, now_us() - now
        return True

    def _searched(self, flight: bytes, entry: KeptAnswer | None) -> None:
        """It is elsewhere, or it is to be computed."""
        now = now_us()
        self._expire(now)
        leader_id = self._flights.leader(flight)
        if leader_id is None:
            return  # all have gone
        self.searches.close(flight)
        leader = self._waiters[leader_id]
        if entry is None:
            self._miss(leader, now)
        else:
            self._find(leader, entry, now)

    def _miss(self, leader: PendingCall, now: int) -> None:
        self._accounts.searched(leader, "miss", now)
        self._lead(leader, again=True)

    def _find(self, leader: PendingCall, entry: KeptAnswer, now: int) -> None:
        """Another gateway had an answer. For whom it is too old, or a lesser one, it is computed anew."""
        age_us, told, choosy = now - entry.stored_us, list[PendingCall](), list[PendingCall]()
        for each in self._flights.landed(leader.flight):
            waiter = self._waiters[each]
            (told if suits(waiter.call, entry, now, self._gateway.preferred) else choosy).append(waiter)
        if self._kept.may_keep(leader.call, entry.variant, leader.least):
            self.store.put(leader.key, entry, now)
            for waiter in choosy:
                waiter.least = accuracy_of(waiter.call, entry.variant)
        for waiter in told:
            del self._waiters[waiter.id]
        for waiter in choosy:  # of whom the first leads
            self._flights.ask(waiter.flight, waiter.id, waiter.request.deadline_us)
        if leader in choosy:
            self._miss(leader, now)
        elif choosy:
            self._lead(choosy[0], again=True)
        for waiter in told:
            reply = reply_of(waiter.call, entry, "join")
            if waiter is leader:
                reply = reply_of(leader.call, entry, "hit", age_us)
                self._accounts.searched(leader, "hit", now)
            self._accounts.done(waiter.request, reply)
            hand_over(waiter.deliver, reply, waiter.request.model)

    def _abandon(self, leader: PendingCall, outcome: Outcome) -> None:
        """The last who waits for a search waits no longer."""
        self.searches.drop(leader.flight)
        self._flights.landed(leader.flight)
        self._end(leader, Reply(outcome), now_us())

    # ending

    def _settle(self, leader: PendingCall, reply: Reply) -> None:
        """The gateway has answered a leader, and counted it."""
        now = now_us()
        leader.settled = True
        self._expire(now)
        if reply.outcome is COMPLETED:
            self._land(leader, reply, now)
        else:
            self._fall(leader, reply, now)

    def _land(self, leader: PendingCall, reply: Reply, now: int) -> None:
        waiters = [self._waiters.pop(each) for each in self._flights.landed(leader.flight)]
        may_keep = self._kept.may_keep(leader.call, reply.variant, leader.least)
        if may_keep and leader.epoch == self.store.epoch:
            entry = entry_of(leader.request.model, reply.variant, reply.outputs, now, reply.rehearsed)
            self.store.put(leader.key, entry, now)
        else:
            entry = None
        if entry is None or entry.rehearsed:  # other gateways must not take it for a real one
            self.searches.drop(leader.flight)
        else:
            self.searches.offer(leader.flight, leader.key, entry)
        device_us = reply.compute_us * leader.call.rows / reply.batch_rows
        self._kept.worth(leader.request.model).computed(device_us, now_us() - now)
        reply.cache = "miss"
        for waiter in waiters:
            own = reply
            if waiter is not leader:
                own = joined(reply)
                own.queue_us, own.ready_us = now - waiter.request.arrived_us, now
                self._accounts.done(waiter.request, own)
            hand_over(waiter.deliver, own, waiter.request.model)

    def _fall(self, leader: PendingCall, reply: Reply, now: int) -> None:
        """No answer: another waiter leads, unless it would fare the same, as whoever asks again where a call
        was turned away just now."""
        kind = reply.outcome.kind
        promoted, ended = self._flights.fell(leader.flight, kind, now, self._least_us(leader.call))
        del self._waiters[leader.id]
        if promoted is not None:
            self._lead(self._waiters[promoted], again=True)
        else:
            self.searches.drop(leader.flight)
        hand_over(leader.deliver, reply, leader.request.model)
        same = ends_alike(kind)
        for each in ended[1:]:
            waiter = self._waiters.get(each)
            if waiter is not None:  # else its client went as another was told
                own = Reply(reply.outcome, reply.detail) if same else Reply(DEADLINE_UNMET)
                own.retry_us = reply.retry_us
                self._end(waiter, own, now)

    def _expire(self, now: int) -> None:
        """End waiters whose own deadline has passed, leaders last: a request then goes on for who is left."""
        for waiter_id, leads in self._flights.expiring(self._expiries.take(now)):
            waiter = self._waiters.get(waiter_id)
            if waiter is None or (leads and waiter.settled):
                continue
            if not leads:
                self._leave(waiter, DEADLINE_QUEUED)
            elif self._pass_on(waiter, (DEADLINE_QUEUED, DEADLINE_RUNNING)):
                pass
            elif waiter.request_id:
                self._gateway.expire(waiter.request_id, now)  # which settles it
            else:
                self._abandon(waiter, DEADLINE_QUEUED)

    def _leads(self, waiter: PendingCall) -> bool:
        return self._flights.leader(waiter.flight) == waiter.id

    def _pass_on(self, leader: PendingCall, outcomes: tuple[Outcome, Outcome]) -> bool:
        """Return a leader waits no longer: its request becomes another waiter's. False where there is no
        other, and nothing has changed. `outcomes`: of one that was not dispatched yet, and of one that was.
        """
        now = now_us()
        heir_id = self._flights.resign(leader.flight, now, self._least_us(leader.call))
        if heir_id is None:
            return False
        heir = self._waiters[heir_id]
        heir.request_id = leader.request_id
        heir.asked_us, heir.digest_us = leader.asked_us, leader.digest_us
        waits = True
        if heir.request_id:  # else it is being looked for elsewhere
            waits = self._gateway.pass_on(heir.request_id, heir.call, partial(self._settle, heir))
            due_us = self._flights.deadline_us(heir.flight)
            if due_us < heir.request.deadline_us:
                self._gateway.tighten(heir.request_id, due_us)
        self._end(leader, Reply(outcomes[not waits]), now)
        return True

    def _leave(self, waiter: PendingCall, outcome: Outcome) -> None:
        """A joiner waits no longer."""
        self._flights.leave(waiter.id)
        self._end(waiter, Reply(outcome), now_us())

    def _end(self, waiter: PendingCall, reply: Reply, now: int) -> None:
        """A waiter that is not the gateway's ends without an answer."""
        del self._waiters[waiter.id]
        if reply.outcome.kind is Kind.SHED:
            reply.queue_us = now - waiter.request.arrived_us
        self._accounts.done(waiter.request, reply)
        hand_over(waiter.deliver, reply, waiter.request.model)

    def _least_us(self, call: Call) -> int:
        return ceil(self._gateway.quickest_us(call))
