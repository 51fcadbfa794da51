"""The interface between an edge and the core: a call goes in, and exactly one reply comes back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from serving.values.objectives import Objective
from serving.values.sequences import SequenceStep
from serving.values.specs import DEFAULT_TENANT, Parameters, ServedModel, TenantSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import Outcome

TakeAnswer = Callable[[Sequence[Tensor], int], None]
"""Takes an answer of a decoupled model, and its version."""


class Call:
    """One inference call as an edge understood it, already checked against the model's spec.

    - `inputs`: in the order of the spec, all present, and all with the same first dimension, `rows`.
    - `size`: the size hint of the largest row (0 if the model has none).
    - `timeout_us`: the client's tightest timeout, from `arrived_us`; None if the client gave none.
    - `variant`: the variant that the client pins, or "". If "", `objective` says which variants may answer.
      That is the model's own objective unless the client asks for a tier or states a floor.
    - `tenant`: a tenant of the settings, or the default one.
    - `max_age_us`: the oldest kept answer that the client takes (0: none); None if the client does not say.
    - `store`: False if the client forbids the gateway to keep the answer.
    - `on_answer`: takes each answer of a decoupled model, before the reply that ends the call and has none,
      with its version as `Reply.version` has it.
    - `priority`: the level that it states of the model's, 0 for none.
    - `sequence`: the sequence that it belongs to; None for a call that stands for itself.
    - `name`: the client's name for it, by which `penstock explain --request` finds it; "" for none.
    - `trace`: the `traceparent` that it came with (W3C Trace Context), "" for none; `trace_state`: the
      `tracestate` beside it (`serving.values.traces`).
    """

    __slots__ = (
        "arrived_us", "inputs", "max_age_us", "model", "name", "objective", "on_answer", "parameters",
        "priority", "rows", "sequence", "size", "store", "tenant", "timeout_us", "trace", "trace_state",
        "variant",
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
        self.on_answer: TakeAnswer | None = None
        self.sequence: SequenceStep | None = None
        self.priority = 0
        self.name = ""
        self.trace = ""
        self.trace_state = ""

    @property
    def due_us(self) -> int:
        """The time from `arrived_us` in which the answer is promised; an answer after that is late.

        The objective sets it, or the client's own deadline if that is tighter.
        """
        promised_us = self.objective.due_us(self.rows)
        return promised_us if self.timeout_us is None else min(promised_us, self.timeout_us)


class Reply:
    """How a call ended. `outputs` (in the order of the spec) are set only if the outcome is COMPLETED.

    Times of the phases, each zero if the phase did not happen:
    - `queue_us`: from submission to dispatch (or to being shed), as far as the slice was busy.
    - `batch_us`: how long the batch then waited to fill.
    - `input_us`: the way to the worker and the wait for it. For a call in several batches, it includes the
      time between them.
    - `compute_us`: the worker's measured run; `output_us`: the way back.
    - `ready_us`: the instant at which all rows were back; `answered_us`: the instant of this reply.

    `batch_rows`: the rows of the batch. `retry_us`: if the call was turned away, how soon another try may
    fare better; 0 if that is unknown. `detail`: a sentence for people.

    `cache` is one of these:
    - "hit": a kept answer, computed `age_us` ago.
    - "join": the answer of an equal call that was under way.
    - "miss": an answer that was computed for this call.
    - "": the gateway did not ask the cache.

    `variant` computed the answer; if several batches did, it is the least accurate variant. `accuracy` is its
    measured one. `downgrade`: why another variant would have answered without overload
    (`vocabulary.Downgrade`), or "".

    If several variants voted, `confidence` (0..1) is the share of their weight that agrees on the answer, the
    least of its rows. `votes` says how many of how many took part ("2/3"). `query` names the answer for
    feedback on it, "" if the gateway takes none. `rehearsed`: at least a part of it was made up.

    `version`: what answered, if it is another version than the one of the call's model: a candidate, or one
    that has got its name since; else 0. Other cells always say it.

    `limits`: what the tenant's rate limits leave, as header lines; "" where it has none.
    """

    __slots__ = (
        "accuracy", "age_us", "answered_us", "batch_rows", "batch_us", "cache", "compute_us", "confidence",
        "detail", "downgrade", "input_us", "limits", "outcome", "output_us", "outputs", "query", "queue_us",
        "ready_us", "rehearsed", "retry_us", "variant", "version", "votes",
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
        self.rehearsed = False
        self.cache = ""
        self.age_us = 0
        self.limits = ""
        self.version = 0


class Serving(Protocol):
    """The core as the edges see it; behind the servers it is `serving.runtime.calls.gateway.Gateway`."""

    models: Mapping[str, ServedModel]
    tenants: Mapping[str, TenantSpec]
    """Tenants by name. DEFAULT_TENANT is always present, for all tenants that are not listed."""

    @property
    def ready(self) -> bool:
        """True while the core accepts new requests and every model has a replica."""
        ...

    @property
    def open_requests(self) -> int:
        """The number of accepted calls without a reply."""
        ...

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """Count a request that an edge turned away before it became a call; `model` as its client said."""
        ...

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """Count the time that an edge itself spent on a completed call.

        `read_us`: to read the call, before its arrival. `made_us`: to make and write the answer, after the
        core gave it.
        """
        ...

    def model_ready(self, name: str) -> bool:
        """Return whether a replica of the model can take a batch now or after the running one."""
        ...

    def now_us(self) -> int:
        """Return the time on the one clock of the deployment, in integer microseconds, monotonic."""
        ...

    def submit(self, call: Call, deliver: Callable[[Reply], None]) -> int:
        """Take a call, and return its id for `cancel`, or 0 if it was answered (rejected) before returning.

        The core calls `deliver` exactly once, on the event loop; `deliver` may submit or cancel other calls.
        """
        ...

    def cancel(self, request_id: int) -> None:
        """Free the queued work of a call because its client left.

        `deliver` gets CLIENT_GONE unless it was called before.
        """
        ...

    def invalidate(self, model: str = "") -> int:
        """Forget the kept answers of a model ("": of all models), and return how many there were.

        Answers that are being computed now are not kept either.
        """
        ...
