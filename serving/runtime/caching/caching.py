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
from serving.runtime.caching.accounts import Accounts
from serving.runtime.caching.cached_models import CachedModels
from serving.runtime.caching.searching import Question, Searches, SharedTier
from serving.runtime.calls.gateway import Gateway
from serving.runtime.calls.pending_calls import (
    Deliver,
    Expiries,
    PendingCall,
    describe,
    flight_of,
    hand_over,
    joined,
    reply_of,
)
from serving.runtime.clocks.clock import now_us
from serving.runtime.observer import CacheObserver
from serving.scheduler.models.variant_reasons import VariantReasons
from serving.values.specs import DEFAULT_TENANT, Limits
from serving.values.vocabulary import (
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
    gateway's own, with every call that does not reach it. While `members_max` calls wait, others that are not
    answered at once are the gateway's, which has bounds of its own.
    """

    def __init__(
        self,
        behind: Gateway,
        spec: CacheSpec,
        observer: CacheObserver,
        record: Callable[[Call, int], None] | None = None,
        members_max: int = Limits().queue_requests,
    ) -> None:
        self.models, self.tenants = behind.models, behind.tenants
        self.store = MemoryStore(spec.memory_bytes, spec.ttl_us)
        self._shared = spec.shared
        self._gateway = behind
        self._members_max = members_max
        self._flights = Flights()
        self._members: dict[int, PendingCall] = {}
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
        """Forget what asking the cache gained while the others' answers were out of reach: it says nothing
        any more."""
        self._kept.restart()

    @property
    def worth(self) -> dict[str, CacheBenefit]:
        """Whether asking the cache pays, for each model with answers that are kept."""
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
        return self._gateway.open_requests + len(self._members) - computed

    def model_ready(self, name: str) -> bool:
        """Return whether the gateway has the model ready."""
        return self._gateway.model_ready(name)

    def standing(self, model: str) -> VariantReasons:
        """Return why the gateway answers with the variants that it does."""
        return self._gateway.standing(model)

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """Pass a refused request on to the gateway."""
        self._gateway.refused(model, outcome, tenant)

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """Pass on to the gateway the time that an edge itself spent on a completed call."""
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
        if len(self._members) >= self._members_max:
            return self._gateway.submit(call, deliver)
        self._count -= 1
        member = self._members[self._count] = PendingCall(self._count, call, describe(call, now), deliver)
        member.key, member.epoch = key, self.store.epoch
        member.flight = flight_of(call, key, member.epoch)
        if entry is not None:
            member.least = accuracy_of(call, entry.variant)
        least_us = 0 if call.timeout_us is None else self._least_us(call)
        asked = self._flights.ask(member.flight, member.id, member.request.deadline_us, now, least_us)
        if isinstance(asked, Join):
            self._join(member, asked, now)
        elif not self._search(member, now):
            self._accounts.asked(model.name, "miss", now_us() - now)
            self._lead(member)
        return member.id if member.id in self._members else 0

    def cancel(self, request_id: int) -> None:
        """Cancel a request; see `serving.ports.Serving.cancel`. What is computed for a leader goes on for the
        calls that joined it."""
        member = self._members.get(request_id)
        if member is None:
            self._gateway.cancel(request_id)
        elif not self._leads(member):
            self._leave(member, CLIENT_GONE)
        elif member.settled or self._pass_on(member, (CLIENT_GONE, CLIENT_GONE)):
            pass
        elif member.request_id:
            self._gateway.cancel(member.request_id)  # which settles it
        else:
            self._abandon(member, CLIENT_GONE)

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

    def _join(self, member: PendingCall, asked: Join, now: int) -> None:
        self._accounts.told(member.call, member.request, "join", now)
        leader = self._members[asked.leader]
        member.call.inputs = leader.call.inputs  # equal: its own can go; no account counts their bytes
        if asked.tighten_us is not None:
            self._gateway.tighten(leader.request_id, asked.tighten_us)
            self.searches.hurry(member.flight, asked.tighten_us, now)
        self._watch(member, now)
        if not leader.timed and leader.request.expires_us < member.request.expires_us:
            self._watch(leader, now)
            self._gateway.expire(leader.request_id, NEVER_US)  # it may go on for the others

    def _watch(self, member: PendingCall, now: int) -> None:
        """See to a member's own deadline, which the gateway does not know, or no more."""
        member.timed = True
        if member.request.expires_us != NEVER_US:
            self._expiries.add(member.request.expires_us, member.id, self._members, now)

    def _lead(self, member: PendingCall, again: bool = False) -> None:
        """Have the gateway compute the leader's answer. `again`: an earlier request asked for it, so the
        arrival is already recorded."""
        request_id = self._gateway.submit(member.call, partial(self._settle, member), again)
        if request_id:  # else it was settled within
            member.request_id = request_id
            if member.timed:
                self._gateway.expire(request_id, NEVER_US)  # as its deadline is watched here
            due_us = self._flights.deadline_us(member.flight)
            if due_us < member.request.deadline_us:
                self._gateway.tighten(request_id, due_us)

    # looking for what other gateways have

    def _search(self, member: PendingCall, now: int) -> bool:
        """Look for a new flight's answer elsewhere; False where it is to be computed at once."""
        call = member.call
        if self.searches.tier is None or call.max_age_us == 0:
            return False
        check = partial(fault_of, spec=call.model.spec, rows=call.rows)
        deadline_us, least_us = member.request.deadline_us, self._least_us(call)
        question = Question(call.model.name, member.key, deadline_us, least_us, check)
        if not self.searches.begin(member.flight, question, now):
            return False
        self._accounts.came(call, member.request, now)
        self._watch(member, now)
        member.asked_us, member.digest_us = now, now_us() - now
        return True

    def _searched(self, flight: bytes, entry: KeptAnswer | None) -> None:
        """Take the end of a search: another gateway has the answer (`entry`), or this gateway computes it."""
        now = now_us()
        self._expire(now)
        leader_id = self._flights.leader(flight)
        if leader_id is None:
            return  # all have gone
        self.searches.close(flight)
        leader = self._members[leader_id]
        if entry is None:
            self._miss(leader, now)
        else:
            self._find(leader, entry, now)

    def _miss(self, leader: PendingCall, now: int) -> None:
        self._accounts.searched(leader, "miss", now)
        self._lead(leader, again=True)

    def _find(self, leader: PendingCall, entry: KeptAnswer, now: int) -> None:
        """Take another gateway's answer. The calls for which it is too old or not accurate enough have theirs
        computed anew."""
        age_us, told, choosy = now - entry.stored_us, list[PendingCall](), list[PendingCall]()
        for each in self._flights.landed(leader.flight):
            member = self._members[each]
            (told if suits(member.call, entry, now, self._gateway.preferred) else choosy).append(member)
        if self._kept.may_keep(leader.call, entry.variant, leader.least):
            self.store.put(leader.key, entry, now)
            for member in choosy:
                member.least = accuracy_of(member.call, entry.variant)
        for member in told:
            del self._members[member.id]
        for member in choosy:  # of whom the first leads
            self._flights.ask(member.flight, member.id, member.request.deadline_us)
        if leader in choosy:
            self._miss(leader, now)
        elif choosy:
            self._lead(choosy[0], again=True)
        for member in told:
            reply = reply_of(member.call, entry, "join")
            if member is leader:
                reply = reply_of(leader.call, entry, "hit", age_us)
                self._accounts.searched(leader, "hit", now)
            self._accounts.done(member.request, reply)
            hand_over(member.deliver, reply, member.request.model)

    def _abandon(self, leader: PendingCall, outcome: Outcome) -> None:
        """End the last call that waits for a search."""
        self.searches.drop(leader.flight)
        self._flights.landed(leader.flight)
        self._end(leader, Reply(outcome), now_us())

    # ending

    def _settle(self, leader: PendingCall, reply: Reply) -> None:
        """Take the gateway's reply to a leader; the gateway has counted it."""
        now = now_us()
        leader.settled = True
        self._expire(now)
        if reply.outcome is COMPLETED:
            self._land(leader, reply, now)
        else:
            self._fall(leader, reply, now)

    def _land(self, leader: PendingCall, reply: Reply, now: int) -> None:
        members = [self._members.pop(each) for each in self._flights.landed(leader.flight)]
        may_keep = not reply.version and self._kept.may_keep(leader.call, reply.variant, leader.least)
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
        for member in members:
            own = reply
            if member is not leader:
                own = joined(reply)
                own.queue_us, own.ready_us = now - member.request.arrived_us, now
                self._accounts.done(member.request, own)
            hand_over(member.deliver, own, member.request.model)

    def _fall(self, leader: PendingCall, reply: Reply, now: int) -> None:
        """End a leader that got no answer, and let another member lead. None leads if it would fare the same,
        for example after a rejection just now."""
        kind = reply.outcome.kind
        promoted, ended = self._flights.fell(leader.flight, kind, now, self._least_us(leader.call))
        del self._members[leader.id]
        if promoted is not None:
            self._lead(self._members[promoted], again=True)
        else:
            self.searches.drop(leader.flight)
        hand_over(leader.deliver, reply, leader.request.model)
        same = ends_alike(kind)
        for each in ended[1:]:
            member = self._members.get(each)
            if member is not None:  # else its client went as another was told
                own = Reply(reply.outcome, reply.detail) if same else Reply(DEADLINE_UNMET)
                own.retry_us, own.version = reply.retry_us, reply.version
                self._end(member, own, now)

    def _expire(self, now: int) -> None:
        """End the waiting calls with a passed deadline, leaders last: a request then goes on for the calls
        that remain."""
        for member_id, leads in self._flights.expiring(self._expiries.take(now)):
            member = self._members.get(member_id)
            if member is None or (leads and member.settled):
                continue
            if not leads:
                self._leave(member, DEADLINE_QUEUED)
            elif self._pass_on(member, (DEADLINE_QUEUED, DEADLINE_RUNNING)):
                pass
            elif member.request_id:
                self._gateway.expire(member.request_id, now)  # which settles it
            else:
                self._abandon(member, DEADLINE_QUEUED)

    def _leads(self, member: PendingCall) -> bool:
        return self._flights.leader(member.flight) == member.id

    def _pass_on(self, leader: PendingCall, outcomes: tuple[Outcome, Outcome]) -> bool:
        """Give the request of a leader that waits no longer to another member. False where there is no
        other, and nothing has changed. `outcomes`: of one that was not dispatched yet, and of one that was.
        """
        now = now_us()
        successor_id = self._flights.resign(leader.flight, now, self._least_us(leader.call))
        if successor_id is None:
            return False
        successor = self._members[successor_id]
        successor.request_id = leader.request_id
        successor.asked_us, successor.digest_us = leader.asked_us, leader.digest_us
        waits = True
        if successor.request_id:  # else it is being looked for elsewhere
            waits = self._gateway.pass_on(
                successor.request_id, successor.call, partial(self._settle, successor)
            )
            due_us = self._flights.deadline_us(successor.flight)
            if due_us < successor.request.deadline_us:
                self._gateway.tighten(successor.request_id, due_us)
        self._end(leader, Reply(outcomes[not waits]), now)
        return True

    def _leave(self, member: PendingCall, outcome: Outcome) -> None:
        """End a joined call that waits no longer."""
        self._flights.leave(member.id)
        self._end(member, Reply(outcome), now_us())

    def _end(self, member: PendingCall, reply: Reply, now: int) -> None:
        """End a member that is not the gateway's, without an answer."""
        del self._members[member.id]
        if reply.outcome.kind is Kind.SHED:
            reply.queue_us = now - member.request.arrived_us
        self._accounts.done(member.request, reply)
        hand_over(member.deliver, reply, member.request.model)

    def _least_us(self, call: Call) -> int:
        return ceil(self._gateway.quickest_us(call))
