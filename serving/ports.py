"""What passes between an edge and the core: a call goes in, exactly one reply comes back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from serving.objectives import Objective
from serving.specs import DEFAULT_TENANT, Parameters, ServedModel, TenantSpec
from serving.tensor import Tensor
from serving.vocabulary import Outcome


class Call:
    """One inference call as an edge understood it; already checked against the model's spec.

    `inputs`: in the order of the spec, every one present, all with the same first dimension `rows`.
    `size`: the size hint of the largest row (0 where the model has none).
    `timeout_us`: what the client gave (the tightest of its ways to say it), from `arrived_us`; or None.
    `variant`: pinned by the client, or "": then `objective` says which may answer, the model's own unless the
    client asks for a tier or states a floor. `tenant`: one that the settings list, or the default.
    `max_age_us`: the oldest kept answer that its client takes (0: none), or None where it does not say.
    `store`: False where its client forbids that the answer is kept.
    """

    __slots__ = (
        "arrived_us", "inputs", "max_age_us", "model", "objective", "parameters", "rows", "size", "store",
        "tenant", "timeout_us", "variant",
    )  # fmt: skip

    def __init__(self, model: ServedModel, inputs: Sequence[Tensor], rows: int) -> None:
        self.model = model
        self.inputs = inputs
        self.rows = rows
        self.size = 0
        self.timeout_us: int | None = None
        self.variant = ""
        self.objective: Objective = model.own
        self.tenant = DEFAULT_TENANT
        self.parameters: Parameters = ()
        self.arrived_us = 0
        self.max_age_us: int | None = None
        self.store = True

    @property
    def due_us(self) -> int:
        """How soon its answer is promised, from `arrived_us`: by its objective, or by its client's own
        deadline where that is tighter. The answer is in time up to then, and late from then on."""
        promised_us = self.objective.due_us(self.rows)
        return promised_us if self.timeout_us is None else min(promised_us, self.timeout_us)


class Reply:
    """How a call ended. `outputs` (in the order of the spec) only where the outcome is COMPLETED.

    `queue_us` is submission to dispatch (or to being shed) as far as the slice was busy, `batch_us` what the
    batch then waited to fill, `input_us` the way to the worker and the wait for it (of a call in several
    batches also what lies between these), `compute_us` the worker's measured run, `output_us` the way back,
    `batch_rows` the rows of the batch; `ready_us` is the instant at which all of it was back, `answered_us`
    that of this reply; zero where none of it happened. `retry_us`: where the call was turned away, when
    another try may fare better, from now on; 0 where nobody can say. `detail` is a sentence for people.

    `cache`: "hit" (a kept answer, computed `age_us` ago), "join" (the answer of a call with the same question
    that was under way), "miss" (computed for this call), or "" where the cache was not asked.

    `variant` computed it: of several, in as many batches, the least accurate; `accuracy` is its measured one.
    `downgrade`: why it was not the one that would have answered without pressure (`vocabulary.Downgrade`), ""
    where it was. Where several variants voted: `confidence` (0..1) is the share of their weight that agrees
    on the answer, the least of its rows, `votes` how many of how many took part ("2/3"). `query` names the
    answer to whoever sends feedback on it, "" where none is taken.
    """

    __slots__ = (
        "accuracy", "age_us", "answered_us", "batch_rows", "batch_us", "cache", "compute_us", "confidence",
        "detail", "downgrade", "input_us", "outcome", "output_us", "outputs", "query", "queue_us", "ready_us",
        "retry_us", "variant", "votes",
    )  # fmt: skip

    def __init__(self, outcome: Outcome, detail: str = "") -> None:
        self.outcome = outcome
        self.detail = detail
        self.outputs: Sequence[Tensor] = ()
        self.variant = ""
        self.accuracy: float | None = None
        self.downgrade = ""
        self.confidence: float | None = None
        self.votes = ""
        self.query = ""
        self.queue_us = 0
        self.batch_us = 0
        self.input_us = 0
        self.compute_us = 0
        self.output_us = 0
        self.ready_us = 0
        self.answered_us = 0
        self.batch_rows = 0
        self.retry_us = 0
        self.cache = ""
        self.age_us = 0


class Serving(Protocol):
    """The core as the edges see it; `serving.runtime.gateway.Gateway` is the one behind the servers."""

    models: Mapping[str, ServedModel]
    tenants: Mapping[str, TenantSpec]
    """By name; DEFAULT_TENANT is always among them, and stands for all that are not listed."""

    @property
    def ready(self) -> bool:
        """True while new requests are welcome and every model has a replica."""
        ...

    @property
    def open_requests(self) -> int:
        """Accepted calls without a reply."""
        ...

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """Count a request that an edge turned away before it became a call; `model` as its client said."""
        ...

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """Count what an edge itself took of a completed call: it read the call for `read_us` before its
        arrival, and made and wrote its answer for `made_us` after the core had given it."""
        ...

    def model_ready(self, name: str) -> bool:
        """Whether a replica of the model can take a batch now or after the running one."""
        ...

    def now_us(self) -> int:
        """The one clock of the deployment, integer microseconds, monotonic."""
        ...

    def submit(self, call: Call, deliver: Callable[[Reply], None]) -> int:
        """Take a call; `deliver` is called exactly once, on the event loop; it may submit or cancel others.

        Returns the request's id for `cancel`, or 0 where it was answered (rejected) before returning.
        """
        ...

    def cancel(self, request_id: int) -> None:
        """The client is gone: free queued work; `deliver` gets CLIENT_GONE unless it was called before."""
        ...

    def invalidate(self, model: str = "") -> int:
        """Forget the kept answers of a model ("": of all); returns how many those were.

        What is being computed now is not kept either.
        """
        ...
