"""What the scheduler keeps of a model, and what it tells those that it turns away."""

from collections.abc import Iterable
from math import ceil, inf

from serving.policy.batching.catalogue import create_policy
from serving.policy.batching.interface import Outlook
from serving.policy.estimates.rates import QUIET, Rate
from serving.policy.limits.admission import QueueLength, Thinning
from serving.scheduler.models.cold_variant import ColdVariant
from serving.scheduler.models.mean_rate import MeanRate
from serving.scheduler.models.model_counts import ModelCounts
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.slices.roster import LikeSlices, is_free
from serving.scheduler.slices.slices import Slice, SliceQueue
from serving.scheduler.waiting.lanes import Queue
from serving.scheduler.waiting.requests import Request, Wants, wants_of
from serving.scheduler.waiting.sequence_book import SequenceBook
from serving.values.specs import ServedModel
from serving.values.vocabulary import (  # fmt: skip
    DEADLINE_UNMET,
    DEADLINE_UNREACHABLE,
    NEVER_US,
    NO_REPLICA,
    NOT_LOADED,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    TOO_LARGE,
    Outcome,
)

LOOKED = 2  # slices at a review
NEVER_REVIEWED_US = -(1 << 40)


class TenantFlow:
    """What one tenant asks of one model in one way, admitted or not. `wants`: in which, None for what the
    model's answering variant answers. `rank`: in overload, the tenant's share goes to a higher one first."""

    __slots__ = (
        "contested",
        "need",
        "protected",
        "rank",
        "rate",
        "share",
        "tenant",
        "thinning",
        "verdict",
        "wants",
    )  # fmt: skip

    def __init__(self, tenant: str, wants: Wants | None = None, rank: int = 0) -> None:
        self.tenant = tenant
        self.wants = wants
        self.rank = rank
        self.rate = Rate()
        self.share = 1.0  # of its rows, to be admitted
        self.thinning = Thinning()
        self.need = 0.0  # slices' worth of time, as of the last review
        self.contested = False  # other tenants want the same slices
        self.protected = False  # it is within its share while others are not
        self.verdict = OVERLOAD  # for those that the thinning stops


class ScheduledModel:
    """What the scheduler keeps of a model.

    `open`: its accepted requests without an answer. `retired`: it takes no more. `absent`: the variants that
    can be loaded; those of them that are live are so still. `hopeless`: why others cannot be. `unsettled`: by
    id, requests that were split before a replica was there, with how much later each further piece of them is
    due. `book`: its sequences, None if it has none.
    """

    __slots__ = (
        "_alone_us", "_latest", "_least_us", "_plain", "_seen", "_turn", "absent", "alike", "book",
        "bucket", "flows", "forecast", "hopeless", "intake", "open", "outlook", "policy", "queue",
        "resident", "retired", "reviewed_us", "served", "since_us", "slices", "unsettled", "variant_us",
    )  # fmt: skip

    def __init__(self, served: ServedModel, since_us: int = -1, waiting: QueueLength | None = None) -> None:
        """Keep a model from `since_us` on. `waiting`: counts the rows that wait of all models."""
        self.served = served
        self.since_us = since_us
        self.bucket = served.spec.sizes[-1]  # the latest request's
        self.open = 0
        self.book: SequenceBook | None = None
        self.retired = False
        self.absent: dict[str, ColdVariant] = {}
        self.hopeless: dict[str, str] = {}
        self.unsettled: dict[int, tuple[Request, int]] = {}
        self.forecast = MeanRate()
        self.intake = ModelCounts()
        self._latest: dict[str, Replica] = {}  # of each variant the replica that last went
        self.queue = Queue(waiting)
        self.policy = create_policy(served.batching, served.slo_us)
        self.slices: list[Slice] = []  # live ones that hold a replica
        self.alike: list[LikeSlices] = []  # of these
        self.resident: dict[str, int] = {}  # variant -> live replicas
        self.flows: dict[tuple[str, Wants | None, int], TenantFlow] = {}  # by tenant, want and rank
        self.outlook: Outlook | None = None  # of what waits, as of the last review
        self.variant_us: dict[str, float] = {}  # of each variant, in the mean over slices
        self.reviewed_us = NEVER_REVIEWED_US
        self._plain = (served.answering_variant,)
        self._seen: dict[str, dict[str, Outlook]] = {}  # by slice and variant
        self._turn = 0
        self._least_us: dict[tuple[tuple[str, ...], int], float] = {}
        self._alone_us: dict[tuple[tuple[str, ...], int, int], float] = {}

    def serve(self, served: ServedModel) -> bool:
        """Serve the model as `served` from now on. Return whether batches may be no larger than less than
        before."""
        before, self.served = self.served, served
        self.retired = False
        if self.bucket not in served.spec.sizes:
            self.bucket = served.spec.sizes[-1]
        self._plain = (served.answering_variant,)
        self.queue.allowances.clear()
        self.flows = {key: flow for key, flow in self.flows.items() if flow.wants is None}
        if (before.batching, before.slo_us) != (served.batching, served.slo_us):
            self.policy = create_policy(served.batching, served.slo_us)
            self.outlook = None
            self._seen.clear()
            for live in self.slices:
                live.queues[served.name].follow(self.policy)
                live.fit()
        self._least_us.clear()
        return served.spec.batch_max < before.spec.batch_max

    def resides(self, variants: tuple[str, ...]) -> bool:
        """Return whether any of these is on a live slice."""
        for variant in variants:  # noqa: SIM110  any() of a generator costs 3 times more, per request
            if self.resident.get(variant):
                return True
        return False

    def can_answer(self, variant: str) -> bool:
        """Return whether a live replica of the variant exists, or will when one is asked for."""
        return bool(self.resident.get(variant)) or variant in self.absent

    def why_hopeless(self, variants: tuple[str, ...]) -> str:
        """Return why none of these can be loaded before something changes; "" where one may be."""
        for variant in variants:
            if variant not in self.hopeless:
                return ""
        name = self.served.name
        return "; ".join(
            [f"{name} {variant} cannot be loaded: {self.hopeless[variant]}" for variant in variants]
        )

    def stranded(self) -> list[Request]:
        """Return the waiting requests that nothing can answer, now or after a load."""
        waiting = {piece.request.id: piece.request for lane in self.queue.lanes for piece in lane.pieces}
        for line in [] if self.book is None else self.book.unplaced.values():
            waiting.update({sequence.waiting[0].id: sequence.waiting[0] for sequence in line})
        return [
            request
            for request in waiting.values()
            if not self.resides(request.variants)
            and not any(each in self.absent for each in request.variants)
        ]

    def check_over(self) -> None:
        """Raise ValueError while requests are open, or replicas live."""
        if self.open or self.slices:
            where = ", ".join(live.name for live in self.slices) or "no slice"
            name = self.served.name
            raise ValueError(f"{name} cannot be forgotten: {self.open} requests are open, it is on {where}")

    def leave(self, live: Slice, replicas: Iterable[Replica], last: bool) -> None:
        """Note that these replicas are gone from a slice; `last`: they were the slice's last replicas of the
        model."""
        if last:
            self.slices.remove(live)
        for replica in replicas:
            self.resident[replica.variant] -= 1
            self._latest[replica.variant] = replica

    def nearest(self, variants: tuple[str, ...], now_us: int) -> str:
        """Return which of these variants would be loaded first; "" if none can be."""
        found, first_us = "", NEVER_US
        for variant in variants:
            absent = self.absent.get(variant)
            if absent is not None and absent.loaded_us(now_us) < first_us:
                found, first_us = variant, absent.loaded_us(now_us)
        return found

    def row_us(self, variant: str, bucket: int) -> int:
        """Return the time of a row of a bucket when the variant was last on a slice; 0 if it has been on
        none."""
        replica = self._latest.get(variant)
        return 0 if replica is None else ceil(replica.typical_us(1, bucket))

    def first_us(self, variants: tuple[str, ...], bucket: int, now_us: int) -> int:
        """Return when a row could be answered by the first of these that is loaded; NEVER_US where none can
        be."""
        variant = self.nearest(variants, now_us)
        absent = self.absent.get(variant)
        return NEVER_US if absent is None else absent.loaded_us(now_us) + self.row_us(variant, bucket)

    def answer_us(self, request: Request, now_us: int) -> float:
        """Return when a row of a request could be answered at the earliest, here or by what can be loaded;
        NEVER_US where it cannot be."""
        if self.resides(request.variants):
            return now_us + self.quickest_us(request)
        return self.first_us(request.variants, request.bucket, now_us) + request.declared_us

    def flow(self, tenant: str, request: Request | None = None) -> TenantFlow:
        """Return the tenant's flow of such requests; without one, of those for the answering variant."""
        wants: Wants | None = None
        rank = 0
        if request is not None:
            rank = request.rank
            if request.variants != self._plain:
                wants = wants_of(request)
        flow = self.flows.get((tenant, wants, rank))
        if flow is None:
            flow = self.flows[tenant, wants, rank] = TenantFlow(tenant, wants, rank)
        return flow

    def review(self, now_us: int) -> None:
        """Look ahead at the present rates of all flows, from LOOKED slices in turn and what was seen of the
        others: slices are many, and alike."""
        self.reviewed_us = now_us
        self._least_us.clear()
        self._alone_us.clear()
        rate = sum([flow.rate.peak(now_us) for flow in self.flows.values()], 0.0)
        seen = self._seen
        self._seen = {live.name: seen[live.name] for live in self.slices if live.name in seen}
        due = [live for live in self.slices if live.name not in seen] or self._take_turns()
        for live in due:
            self._seen[live.name] = self._look(live.queues[self.served.name], rate, now_us)
        self.variant_us = _means(self._seen.values())
        self.outlook = None
        if self.variant_us:
            doubtful = any(outlook.doubtful for outlook in self._seen[due[-1].name].values())
            filling = max([each.filling for seen in self._seen.values() for each in seen.values()])
            self.outlook = Outlook(self._mean_row_us(now_us), doubtful, filling)

    def _look(self, here: SliceQueue, rate: float, now_us: int) -> dict[str, Outlook]:
        """Return what to expect of each replica on a slice."""
        seen: dict[str, Outlook] = {}
        for variant, replica in here.replicas.items():
            outlook = self.policy.outlook(here, replica, rate, now_us)
            if outlook is not None:
                seen[variant] = outlook
        if len(here.replicas) > 1:
            here.selector.renew({variant: outlook.row_us for variant, outlook in seen.items()}, now_us)
        return seen

    def _mean_row_us(self, now_us: int) -> float:
        """Return the mean time of a row over all flows, each answered by the quickest variant that it allows.
        If no flow has arrivals now, return the quickest variant's."""
        total = rate = 0.0
        for flow in self.flows.values():
            peak = flow.rate.peak(now_us)
            total += peak * self.least_row_us(flow.wants)
            rate += peak
        return total / rate if rate else min(self.variant_us.values())

    def least_row_us(self, wants: Wants | None) -> float:
        """Return the mean row time of the quickest variant that those `wants` allow; 0 if it is unknown."""
        names = self._plain if wants is None else wants[0]
        return min([self.variant_us[name] for name in names if name in self.variant_us], default=0.0)

    def _take_turns(self) -> list[Slice]:
        count, first = len(self.slices), self._turn
        self._turn = (first + LOOKED) % max(count, 1)
        return [self.slices[(first + place) % count] for place in range(min(LOOKED, count))]

    def weigh(self, now_us: int) -> float:
        """Return what all flows need at their present rates, in slices' worth of time."""
        total = 0.0
        for flow in self.flows.values():
            rate = flow.rate.peak(
                now_us
            )  # a flow that has gone asks for nothing: others need not share with it
            flow.need = rate * self.least_row_us(flow.wants) if rate > QUIET else 0.0
            total += flow.need
        return total

    def filling_share(self, now_us: int) -> float:
        """Return the share of what comes that must be admitted to fill batches (`Outlook.filling`), at most
        1."""
        filling = 0.0 if self.outlook is None else self.outlook.filling
        rate = sum([flow.rate.peak(now_us) for flow in self.flows.values()], 0.0)
        return min(filling / rate, 1.0) if rate > 0 else 1.0

    def replicas(self, request: Request) -> list[Replica]:
        """Return the live replicas that may answer a request."""
        found = (
            live.queues[self.served.name].replicas.get(variant)
            for live in self.slices
            for variant in request.variants
        )
        return [replica for replica in found if replica is not None]

    def least_us(self, request: Request) -> float:
        """Return `quickest_us` as of the last review."""
        key = (request.variants, request.size)
        least_us = self._least_us.get(key)
        if least_us is None:
            least_us = self._least_us[key] = self._row_us(request)
        return least_us + request.declared_us

    def cost_us(self, request: Request) -> float:
        """Return what all rows of a request typically take together, one batch after the other, on its
        quickest replica. Return 0 if it has none."""
        found = []
        for each in self.replicas(request):
            most = each.piece_max(request.size)
            whole, rest = divmod(request.rows, most)
            whole_us = whole * each.typical_us(most, request.size)
            rows_us = whole_us + (each.typical_us(rest, request.size) if rest else 0.0)
            found.append(rows_us + (whole + (rest > 0)) * request.declared_us)
        return min(found, default=0.0)

    def alone_us(self, request: Request) -> float:
        """Return the time of a request's first batch, alone on its quickest replica, as of the last review; 0
        if it has no replica."""
        key = (request.variants, request.size, request.rows)
        alone_us = self._alone_us.get(key)
        if alone_us is None:
            each_us = [
                each.predict_us(min(request.rows, each.piece_max(request.size)), request.size)
                for each in self.replicas(request)
            ]
            alone_us = self._alone_us[key] = min(each_us, default=0.0)
        return alone_us + request.declared_us

    def quickest_us(self, request: Request) -> float:
        """Return the least time that a row of a request takes, alone, on its quickest replica. Return what it
        declares if it has none."""
        return self._row_us(request) + request.declared_us

    def _row_us(self, request: Request) -> float:
        return min((each.typical_us(1, request.size) for each in self.replicas(request)), default=0.0)

    def preferred(self, wants: Wants) -> float:
        """Return the least accuracy, on any slice, of what carries the load of requests with these `wants`;
        -inf if it is unknown."""
        least = inf
        for live in self.slices:
            accuracy = live.queues[self.served.name].selector.accuracy(wants)
            least = min(least, -inf if accuracy is None else accuracy)
        return -inf if least == inf else least

    def free_us(self, now_us: int) -> int:
        """Return when a slice of the model may start another batch, as far as can be told."""
        if is_free(self.alike):
            return now_us
        first_us = NEVER_US if self.slices else now_us
        for live in self.slices:
            free_us = live.free_us(now_us)
            if free_us <= now_us:
                return now_us
            if free_us < first_us:
                first_us = free_us
        return first_us

    def frees_by(self, until_us: float, now_us: int) -> bool:
        """Return whether `free_us` is at most `until_us`: often the first slices tell."""
        if until_us < now_us or not self.slices:
            return until_us >= now_us
        if is_free(self.alike):
            return True
        for live in self.slices:  # noqa: SIM110  any() of a generator costs 3 times more, per request
            if live.free_us(now_us) <= until_us:
                return True
        return False

    def drained_us(self, free_us: int) -> float:
        """Return when all that waits could have been started, as far as can be told, from `free_us` on."""
        backlog = self.queue.backlog
        if self.outlook is None or not self.slices:
            return float(free_us)
        return free_us + backlog.rows * self.outlook.row_us / len(self.slices)


def _means(seen: Iterable[dict[str, Outlook]]) -> dict[str, float]:
    """Return the mean time of a row by variant; unequal slices count as if all had their mean speed."""
    speeds: dict[str, list[float]] = {}
    for outlooks in seen:
        for variant, outlook in outlooks.items():
            speeds.setdefault(variant, []).append(1 / outlook.row_us)
    return {variant: len(found) / sum(found, 0.0) for variant, found in speeds.items()}


def explain(outcome: Outcome, request: Request, model: ScheduledModel, now_us: int) -> str:
    """Return a sentence for the client that was turned away, where the outcome alone does not say enough."""
    name, backlog = request.model, model.queue.backlog
    if outcome is NO_REPLICA and model.retired:
        return f"{name} is being unloaded: it takes no new requests"
    if outcome is NO_REPLICA:
        hopeless = model.why_hopeless(request.variants)
        if hopeless:
            return hopeless
        return f"no replica of {name} {' or '.join(request.variants)} is ready"
    if outcome is QUEUE_FULL:
        return f"the queue of {name} is full: {backlog.requests} requests of {backlog.rows} rows wait"
    if outcome is OVERLOAD:
        return f"{name} is offered more than it can answer in time: {backlog.rows} rows wait"
    if outcome is QUOTA:
        return f"tenant {request.tenant} is over its share while {name} is offered more than it can answer"
    if outcome is DEADLINE_UNREACHABLE:
        slack_ms = max(request.deadline_us - request.arrived_us, 0) / 1000
        asked = f", as it asks for {request.declared_us / 1000:g} ms itself" if request.declared_us else ""
        return f"{name} could not answer within {slack_ms:g} ms even if the request ran next{asked}"
    if outcome is TOO_LARGE:
        takes_s = model.cost_us(request) / 1e6
        return (
            f"the {request.rows} rows of this request would take {name} {takes_s:.1f} s, which is more than"
            f" one request may (limits.stall_s); send fewer rows at once"
        )
    if outcome is NOT_LOADED or outcome is DEADLINE_UNMET:
        return _explain_absence(request, model, now_us)
    return ""


def _explain_absence(request: Request, model: ScheduledModel, now_us: int) -> str:
    absent = model.absent.get(model.nearest(request.variants, now_us))
    if absent is None or model.resides(request.variants):
        return ""
    takes = _span(absent.loaded_us(now_us) - now_us)
    said = f"not loaded, and loading it takes {takes}" if absent.cold else f"being loaded, for {takes} more"
    due = _span(max(request.deadline_us - now_us, 0))
    return f"{request.model} is {said}; the request is due in {due}"


def _span(us: int) -> str:
    return f"{us / 1e6:.1f} s" if us >= 1_000_000 else f"{us / 1000:.0f} ms"
