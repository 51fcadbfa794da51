"""Models to fuzz with, and a core that answers at once: what is behind the edge is not what is fuzzed."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from serving.ports import Call, Reply
from serving.values.specs import (
    DEFAULT_TENANT,
    Limits,
    ModelSpec,
    ParameterSpec,
    ServedModel,
    SizeHint,
    TenantSpec,
    TensorSpec,
    VariantSpec,
)
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, Outcome

LIMITS = Limits(body_bytes=1 << 20, tensor_bytes=1 << 20)


def _served(
    name: str, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], **more: object
) -> ServedModel:
    variants = (VariantSpec("exact", None, accuracy=1.0, deterministic=True), VariantSpec("quick", None))
    spec = ModelSpec(name, Path(name), inputs, outputs, variants, "exact", 100_000, 8, **more)  # type: ignore[arg-type]
    return ServedModel(spec, spec.slo_us, ("exact", "quick"), ("cpu",))


SIMPLE = _served(
    "simple",
    (TensorSpec("INPUT0", "INT32", (-1, 4)), TensorSpec("INPUT1", "INT32", (-1, 4))),
    (TensorSpec("OUTPUT0", "INT32", (-1, 4)), TensorSpec("OUTPUT1", "INT32", (-1, 4))),
)
IDENTITY = _served(
    "identity",
    (TensorSpec("INPUT0", "ANY", (-1, -1)),),
    (TensorSpec("OUTPUT0", "ANY", (-1, -1)),),
    parameters=(ParameterSpec("execute_delay_ms", "int", 0, 0, 60_000),),
)
TEXT = _served(
    "text",
    (TensorSpec("TEXT", "BYTES", (-1, 1)),),
    (TensorSpec("SCORES", "FP32", (-1, 2)),),
    size_hint=SizeHint("TEXT", (8, 16), "text"),
)
MODELS: Mapping[str, ServedModel] = {each.name: each for each in (SIMPLE, IDENTITY, TEXT)}


def outputs_of(call: Call) -> list[Tensor]:
    """Return outputs of the right kind and size: the inputs under the names of the outputs, or scores of
    zero."""
    model = call.model
    if model is TEXT:
        return [Tensor("SCORES", "FP32", (call.rows, 2), bytes(8 * call.rows))]
    pairs = zip(model.spec.outputs, call.inputs, strict=True)
    return [Tensor(output.name, each.datatype, each.shape, each.data) for output, each in pairs]


class Core:
    """A `serving.ports.Serving` that answers each call as it comes. `ended`: how many requests it heard of,
    as a call or as refused by the edge."""

    def __init__(self) -> None:
        self.models = MODELS
        self.tenants: Mapping[str, TenantSpec] = {DEFAULT_TENANT: TenantSpec(DEFAULT_TENANT)}
        self.ready = True
        self.open_requests = 0
        self.ended = 0

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:  # noqa: ARG002
        self.ended += 1

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None: ...

    def model_ready(self, name: str) -> bool:
        return name in self.models

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000

    def submit(self, call: Call, deliver: Callable[[Reply], None]) -> int:
        self.ended += 1
        reply = Reply(COMPLETED)
        reply.outputs = outputs_of(call)
        reply.variant, reply.batch_rows = "exact", call.rows
        deliver(reply)
        return 0

    def cancel(self, request_id: int) -> None: ...

    def invalidate(self, model: str = "") -> int:  # noqa: ARG002
        return 0
