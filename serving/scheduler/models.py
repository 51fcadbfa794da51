"""What the scheduler keeps of a model, and what it tells those that it turns away."""

from serving.policy.admission import Thinning
from serving.policy.batching.catalogue import create_policy
from serving.policy.batching.seam import Outlook
from serving.policy.rates import QUIET, Rate
from serving.scheduler.lanes import Queue
from serving.scheduler.requests import Request
from serving.scheduler.slices import Replica, Slice
from serving.specs import ServedModel
from serving.vocabulary import DEADLINE_UNREACHABLE, NO_REPLICA, OVERLOAD, QUEUE_FULL, QUOTA, Outcome


class Flow:
    """What one tenant asks of one model, admitted or not."""

    __slots__ = ("contested", "need", "rate", "share", "sheltered", "thinning", "verdict")

    def __init__(self) -> None:
        self.rate = Rate()
        self.share = 1.0  # of its rows, to be admitted
        self.thinning = Thinning()
        self.need = 0.0  # slices' worth of time, as of the last review
        self.contested = False  # other tenants want the same slices
        self.sheltered = False  # it is within its share while others are not
        self.verdict = OVERLOAD  # for those that the thinning stops


class Model:
    """What the scheduler keeps of a model."""

    __slots__ = ("_least_us", "flows", "outlook", "policy", "queue", "resident", "served", "slices")

    def __init__(self, served: ServedModel) -> None:
        self.served = served
        self.queue = Queue()
        self.policy = create_policy(served.batching, served.slo_us)
        self.slices: list[Slice] = []  # live ones that hold a replica
        self.resident: dict[str, int] = {}  # variant -> live replicas
        self.flows: dict[str, Flow] = {}  # by tenant
        self.outlook: Outlook | None = None  # as of the last review
        self._least_us: dict[tuple[tuple[str, ...], int], float] = {}

    def can_answer(self, request: Request) -> bool:
        """Whether any variant that the request allows is on a live slice."""
        for variant in request.variants:  # noqa: SIM110  any() of a generator costs 3 times more, per request
            if self.resident.get(variant):
                return True
        return False

    def flow(self, tenant: str) -> Flow:
        """The tenant's flow."""
        flow = self.flows.get(tenant)
        if flow is None:
            flow = self.flows[tenant] = Flow()
        return flow

    def review(self, now_us: int) -> float:
        """Look ahead at the present rates of all flows; returns the slices' worth of time that they need."""
        self._least_us.clear()
        self.outlook = None
        rates = {tenant: flow.rate.peak(now_us) for tenant, flow in self.flows.items()}
        outlooks = [
            self.policy.outlook(live.queues[self.served.name], sum(rates.values()), now_us)
            for live in self.slices
        ]
        known = [outlook for outlook in outlooks if outlook is not None]
        row_us = 0.0
        if known:  # of unequal slices, as if all were of their mean speed
            row_us = len(known) / sum(1 / outlook.row_us for outlook in known)
            self.outlook = Outlook(row_us, known[0].doubtful)
        for tenant, flow in self.flows.items():
            rate = rates[tenant]  # who has gone asks for nothing: others need not share with it
            flow.need = rate * row_us if rate > QUIET else 0.0
        return sum(flow.need for flow in self.flows.values())

    def replicas(self, request: Request) -> list[Replica]:
        """The live replicas that may answer a request."""
        found = (
            live.queues[self.served.name].replicas.get(variant)
            for live in self.slices
            for variant in request.variants
        )
        return [replica for replica in found if replica is not None]

    def least_us(self, request: Request) -> float:
        """`quickest_us` as of the last review."""
        key = (request.variants, request.size)
        least_us = self._least_us.get(key)
        if least_us is None:
            least_us = self._least_us[key] = self.quickest_us(request)
        return least_us

    def quickest_us(self, request: Request) -> float:
        """What a row of a request takes at least, alone, on its quickest replica; 0 where it has none."""
        return min((each.typical_us(1, request.size) for each in self.replicas(request)), default=0.0)

    def free_us(self, now_us: int) -> int:
        """When a slice of the model may start another batch, as far as can be told."""
        return min((live.free_us(now_us) for live in self.slices), default=now_us)

    def drained_us(self, now_us: int) -> float:
        """When all that waits could have been started, as far as can be told."""
        backlog = self.queue.backlog
        if self.outlook is None or not self.slices:
            return float(self.free_us(now_us))
        return self.free_us(now_us) + backlog.rows * self.outlook.row_us / len(self.slices)


def explain(outcome: Outcome, request: Request, model: Model) -> str:
    """A sentence for the client that was turned away, where the outcome alone does not say enough."""
    name, backlog = request.model, model.queue.backlog
    if outcome is NO_REPLICA:
        return f"no replica of {name} {' or '.join(request.variants)} is ready"
    if outcome is QUEUE_FULL:
        return f"the queue of {name} is full: {backlog.requests} requests of {backlog.rows} rows wait"
    if outcome is OVERLOAD:
        return f"{name} is offered more than it can answer in time: {backlog.rows} rows wait"
    if outcome is QUOTA:
        return f"tenant {request.tenant} is over its share while {name} is offered more than it can answer"
    if outcome is DEADLINE_UNREACHABLE:
        slack_ms = (request.deadline_us - request.arrived_us) / 1000
        return f"{name} could not answer within {slack_ms:g} ms even if the request ran next"
    return ""
