"""Who may join a queue: bounds, deadlines that cannot be met, and in overload each flow's share.

An arrival costs O(slices). It notes what is due: a review of its model and of the shares, each at most every
REVIEW_US. The scheduler's next `wake` makes them. Only the first after a change of replicas is made at once.
"""

from collections.abc import Mapping, Sequence
from math import inf

from serving.policy.limits.admission import FlowDemand, allot, queue_fault
from serving.policy.limits.memory import CUT_SHARE, SMALL_BYTES
from serving.policy.variants.selection import SLACK_SHARE
from serving.scheduler.models.climbing import climb_all
from serving.scheduler.models.models import NEVER_REVIEWED_US, ScheduledModel, TenantFlow
from serving.scheduler.slices.slices import Slice, steady
from serving.scheduler.waiting.accepted import Accepted
from serving.scheduler.waiting.requests import Request
from serving.values.specs import DEFAULT_TENANT, Limits, TenantSpec
from serving.values.vocabulary import (
    DEADLINE_UNMET,
    DEADLINE_UNREACHABLE,
    DRAINING,
    MEMORY_FULL,
    NEVER_US,
    NO_REPLICA,
    NOT_LOADED,
    OVERLOAD,
    QUOTA,
    TOO_LARGE,
    Outcome,
)

REVIEW_US = 50_000
HEADROOM = 1.1
"""What is admitted in overload, over what the slices can do with the batches aimed at: from more than that
the window drop forms larger batches."""
HEADROOM_MIXED = 1.6
"""The same for one tenant's models that share slices: thinning those that need most is not what costs least.
In simulation (2 slices, SLOs of 25 and 500 ms, the loose one asked four times as often) 1.1 costs 8 % of
goodput at 1.5 times the capacity."""
FLOOR = 0.3
"""Of what one of several models of a tenant is entitled to in overload: with less it goes first. In the same
simulation .5 costs 3 % of goodput and .8 8 %, as the one goes first that needs most for a request."""
LITTLE = 0.5
"""Of an equal share of the slices: a model that needs no more is protected from others of its tenant. In the
same simulation, at 1.15 times the capacity, to shelter all within their shares costs 4 % of goodput."""
QUEUE_SHARE = 0.6
"""Of a request's slack that the rows ahead of it may take before its flow is thinned, unless another tenant
wants the same slices: a burst that the queue can hold costs nobody anything. In simulation (1 slice, 1.1 and
.6, at 2 and 3 times capacity) goodput is 5 and 10 % less than without thinning, and 63 and 78 % of the bad
answers come at once instead of 0."""
SAFE_LOAD = 0.75
"""From this load on requests are given up for others (one slice, SLO of 25 ms: 1 % at .76 of what batches of
the target size could carry). A flow that fits into it with its fair share is protected from that."""
RETRY_US_MIN = 1000
SHARE_MIN = 0.05  # one review never turns requests away for more than 20 SLOs
RESTART_US = 1_000_000  # a worker is mostly back in 1.4 s: new process .2 s, loading and warming the rest


_UNLISTED = TenantSpec(DEFAULT_TENANT)


class Admission:
    """Admission at arrival, over all models of a scheduler."""

    def __init__(
        self, models: Mapping[str, ScheduledModel], tenants: Mapping[str, TenantSpec], limits: Limits
    ) -> None:
        self._models = models
        self._tenants = tenants
        self._limits = limits
        self._groups: list[list[ScheduledModel]] | None = []  # None: to be found at the next review
        self._reviewed_us = NEVER_REVIEWED_US
        self._late: dict[ScheduledModel, None] = {}  # models that an arrival found due
        self.is_due = False  # whether `review` has something to do
        self.draining = False

    def admit(
        self, model: ScheduledModel, request: Request, accepted: Accepted, now_us: int
    ) -> Outcome | None:
        """Count a request as offered load, and return None where it may join, else why it may not.

        It counts whatever the answer is: shares follow the rate.
        """
        flow = model.flow(request.tenant, request)
        flow.rate.add(request.rows, now_us)
        if self.draining:
            return DRAINING
        if model.retired:
            return NO_REPLICA
        live = model.resides(request.variants)
        if not live and not model.nearest(request.variants, now_us):
            return NO_REPLICA
        if request.declared_us and request.is_vain(now_us):
            return DEADLINE_UNREACHABLE
        held, size = accepted.held_bytes, request.payload_bytes
        if held and held + size > self._limits.held_bytes * (1 if size <= SMALL_BYTES else CUT_SHARE):
            return MEMORY_FULL  # the last of it is kept for small requests
        if now_us - model.reviewed_us >= REVIEW_US or now_us - self._reviewed_us >= REVIEW_US:
            self._note(model, now_us)
        request.protected = flow.protected
        if model.queue.comers is not None:
            slack_us = SLACK_SHARE * (request.deadline_us - request.arrived_us)
            model.queue.comers.add(slack_us - model.alone_us(request), now_us)
        if not live and model.answer_us(request, now_us) > request.deadline_us:
            return NOT_LOADED
        outcome = queue_fault(model.queue.backlog, request.rows, self._limits)
        if outcome is not None or not live:
            return outcome
        return TOO_LARGE if self._is_too_dear(model, request) else _hold_off(model, flow, request, now_us)

    def review(self, now_us: int) -> None:
        """Make the reviews that arrivals found due."""
        self.is_due = False
        for model in self._late:
            model.review(now_us)
        self._late.clear()
        if now_us - self._reviewed_us >= REVIEW_US:
            self._review(now_us)

    def _note(self, model: ScheduledModel, now_us: int) -> None:
        """Note that reviews are due; make at once what has not been made since replicas came or went."""
        if model.reviewed_us == NEVER_REVIEWED_US:
            model.review(now_us)
        elif now_us - model.reviewed_us >= REVIEW_US:
            self._late[model] = None
            self.is_due = True
        if self._reviewed_us == NEVER_REVIEWED_US:
            self._review(now_us)
        elif now_us - self._reviewed_us >= REVIEW_US:
            self.is_due = True

    def _is_too_dear(self, model: ScheduledModel, request: Request) -> bool:
        """Return whether its rows take a slice longer than a batch may be late. A single row is as it is."""
        most_us = self._limits.stall_us
        if request.rows == 1 or request.rows * model.least_us(request) <= most_us:
            return False  # rows that travel together take less than one by one
        return model.cost_us(request) > most_us

    def retry_us(self, outcome: Outcome, model: ScheduledModel, request: Request, now_us: int) -> int:
        """Return in how many us another try may fare better, from what waits; 0 if that is unknown."""
        if outcome is DRAINING or outcome is TOO_LARGE or request.is_vain(request.arrived_us):
            return 0
        if outcome is NO_REPLICA:
            return 0 if model.retired or model.why_hopeless(request.variants) else RESTART_US
        if model.absent and not model.resides(request.variants):
            answer_us = model.answer_us(request, now_us)
            if answer_us < NEVER_US:
                return max(int(answer_us) - now_us, RETRY_US_MIN)
        wait_us = model.drained_us(model.free_us(now_us)) - now_us
        if outcome is QUOTA or outcome is OVERLOAD or outcome is DEADLINE_UNMET:
            # Whoever comes back while the queue is the same meets the same; of those, `share` are admitted.
            share = max(model.flow(request.tenant, request).share, SHARE_MIN)
            wait_us = max(wait_us, model.served.slo_us) / share
        return max(int(wait_us), RETRY_US_MIN)

    def regroup(self) -> None:
        """Review all anew at the next arrival, as replicas came or went, or models."""
        self._groups = None
        self._reviewed_us = NEVER_REVIEWED_US
        for model in self._models.values():
            model.reviewed_us = NEVER_REVIEWED_US
            if not model.slices:
                model.outlook = None
                model.variant_us = {}

    def _grouped(self) -> list[list[ScheduledModel]]:
        """Return the models that share slices, directly or through others."""
        if self._groups is not None:
            return self._groups
        groups: list[list[ScheduledModel]] = []
        waiting = list(self._models.values())
        while waiting:
            group, slices = [waiting.pop()], set[Slice]()
            for member in group:  # it grows while it is walked
                slices.update(member.slices)
                group += [other for other in waiting if not slices.isdisjoint(other.slices)]
                waiting = [other for other in waiting if slices.isdisjoint(other.slices)]
            groups.append(group)
        self._groups = groups
        return groups

    def _review(self, now_us: int) -> None:
        self._reviewed_us = now_us
        for group in self._grouped():
            needs = {model: model.weigh(now_us) for model in group}
            climb_all(group, now_us)
            if _calm(needs):
                continue
            flows = [flow for model in group for flow in model.flows.values() if flow.need > 0]
            contested = len({(flow.tenant, flow.rank) for flow in flows}) > 1
            mixed = len(group) > 1 and not contested
            self._protect(group, LITTLE / max(len(flows), 1) if mixed else inf)
            shares = self._shares(group, HEADROOM)
            admitted = self._shares(group, HEADROOM_MIXED) if mixed else shares
            for flow, share in admitted.items():
                flow.share = share
                flow.contested = contested
            overload = any(share < 1 for share in shares.values())
            for model in group:
                fair_share = sum([flow.need * shares[flow] for flow in model.flows.values()], 0.0)
                model.queue.fair_share = fair_share if overload else 0.0
                model.queue.floor = FLOOR if mixed else inf
                if not contested:
                    filling = model.filling_share(now_us)
                    for flow in model.flows.values():
                        flow.share = max(flow.share, filling)

    def _protect(self, group: Sequence[ScheduledModel], least: float) -> None:
        """Shelter the flows that are within their shares while others are not, if they need no more than
        `least` of the slices: what others give up makes room for larger batches of their own."""
        safe = self._shares(group, SAFE_LOAD)
        overloaded = any(share < 1 for share in safe.values())
        room = SAFE_LOAD * steady({live for model in group for live in model.slices})
        for flow, share in safe.items():
            flow.protected = overloaded and share >= 1 and flow.need <= least * room

    def _shares(self, group: Sequence[ScheduledModel], load: float) -> dict[TenantFlow, float]:
        """Return the share of each flow's need that its slices can take up to a `load`: first each model
        alone, then all together."""
        shares = {flow: 1.0 for model in group for flow in model.flows.values()}
        for model in group:
            self._fit(list(model.flows.values()), load * steady(model.slices), shares)
        together = [each for model in group for each in model.flows.values()]
        self._fit(together, load * steady({live for model in group for live in model.slices}), shares)
        return shares

    def _fit(self, flows: Sequence[TenantFlow], room: float, shares: dict[TenantFlow, float]) -> None:
        """Reduce the shares to `room` slices: max-min between tenants. Within a tenant the highest rank goes
        first, and models of a rank share max-min."""
        wants: dict[str, float] = {}
        for flow in flows:
            if flow.need > 0:
                wants[flow.tenant] = wants.get(flow.tenant, 0.0) + flow.need * shares[flow]
        if sum(wants.values(), 0.0) <= room:
            return
        specs = [self._tenants.get(tenant, _UNLISTED) for tenant in wants]
        demands = [
            FlowDemand(need, spec.weight, spec.priority)
            for need, spec in zip(wants.values(), specs, strict=True)
        ]
        given = dict(zip(wants, allot(demands, room), strict=True))
        content = any(given[tenant] >= need for tenant, need in wants.items())
        for tenant in wants:
            own = [flow for flow in flows if flow.tenant == tenant and flow.need > 0]
            within = [FlowDemand(flow.need * shares[flow], 1.0, flow.rank) for flow in own]
            parts = allot(within, given[tenant])
            for flow, part in zip(own, parts, strict=True):
                flow.verdict = QUOTA if content else OVERLOAD
                if part < flow.need * shares[flow]:
                    shares[flow] = part / flow.need


def _calm(needs: Mapping[ScheduledModel, float]) -> bool:
    """Return whether the slices can take all of it without giving anybody up, alone and together; nothing is
    shared out then."""
    slices = {live for model in needs for live in model.slices}
    if sum(needs.values(), 0.0) > SAFE_LOAD * steady(slices):
        return False
    alone = (need <= SAFE_LOAD * steady(model.slices) for model, need in needs.items() if need)
    if len(slices) > 1 and not all(alone):
        return False
    for model in needs:
        model.queue.fair_share = 0.0
        for flow in model.flows.values():
            flow.share = 1.0
            flow.protected = False
    return True


def _hold_off(model: ScheduledModel, flow: TenantFlow, request: Request, now_us: int) -> Outcome | None:
    """Refuse what could not be met even next, and in overload what is over its flow's share."""
    outlook = model.outlook
    if outlook is None or outlook.doubtful:
        return None
    if not model.frees_by(request.deadline_us - model.least_us(request), now_us):
        return DEADLINE_UNREACHABLE
    if flow.share >= 1:
        return None
    most_us = request.arrived_us + QUEUE_SHARE * (request.deadline_us - request.arrived_us)
    if not flow.contested and model.frees_by(most_us - model.drained_us(0), now_us):
        return None
    return None if flow.thinning.admit(request.rows, flow.share) else flow.verdict
