"""What the scheduler keeps of a model, and what it tells those that it turns away."""

from serving.policy.batching.catalogue import create_policy
from serving.scheduler.lanes import Queue
from serving.scheduler.requests import Request
from serving.scheduler.slices import Slice
from serving.specs import ServedModel
from serving.vocabulary import NO_REPLICA, QUEUE_FULL, Outcome


class Model:
    """What the scheduler keeps of a model."""

    __slots__ = ("policy", "queue", "resident", "served", "slices")

    def __init__(self, served: ServedModel) -> None:
        self.served = served
        self.queue = Queue()
        self.policy = create_policy(served.batching, served.slo_us)
        self.slices: list[Slice] = []  # live ones that hold a replica
        self.resident: dict[str, int] = {}  # variant -> live replicas

    def can_answer(self, request: Request) -> bool:
        """Whether any variant that the request allows is on a live slice."""
        for variant in request.variants:  # noqa: SIM110  any() of a generator costs 3 times more, per request
            if self.resident.get(variant):
                return True
        return False


def explain(outcome: Outcome, request: Request, model: Model) -> str:
    """A sentence for the client that was turned away, where the outcome alone does not say enough."""
    if outcome is NO_REPLICA:
        return f"no replica of {request.model} {' or '.join(request.variants)} is ready"
    if outcome is QUEUE_FULL:
        backlog = model.queue.backlog
        return (
            f"the queue of {request.model} is full: {backlog.requests} requests of {backlog.rows} rows wait"
        )
    return ""
