"""A small real `serving.ports.Serving`: it computes at once, and answers when it is told to."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from router.observing.telemetry import Telemetry
from serving.ports import Call, Reply
from serving.values.objectives import Needs
from serving.values.specs import (
    DEFAULT_TENANT,
    ModelSpec,
    ParameterSpec,
    ServedModel,
    TenantSpec,
    TensorSpec,
    VariantSpec,
)
from serving.values.tensor import Tensor
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, Outcome

Deliver = Callable[[Reply], None]


TIERS = (Needs("gold", slo_us=20_000, accuracy_min=0.9), Needs("cheap", optimize="cheapest"))


def served(
    name: str, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], **more: object
) -> ServedModel:
    """A model with one variant, on one slice, for who asks for a tier or does not."""
    variants = (VariantSpec("exact", None, accuracy=1.0, deterministic=True),)
    spec = ModelSpec(name, Path(name), inputs, outputs, variants, "exact", 100_000, 8, **more)  # type: ignore[arg-type]
    return ServedModel(spec, spec.slo_us, ("exact",), ("cpu0",), tiers=TIERS)


PAIR = ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")
_INPUT0, _INPUT1, _OUTPUT0, _OUTPUT1 = (TensorSpec(name, "INT32", (-1, 16)) for name in PAIR)
SIMPLE = served("simple", (_INPUT0, _INPUT1), (_OUTPUT0, _OUTPUT1))
"""OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1: what every Triton client example expects."""

IDENTITY = served(
    "identity",
    (TensorSpec("IN", "ANY", (-1, -1)),),
    (TensorSpec("OUT", "ANY", (-1, -1)),),
    parameters=(ParameterSpec("execute_delay_ms", "int", 0),),
)
"""OUT = IN, of any datatype."""

CRASH = served("crash", (TensorSpec("IN", "FP32", (-1, 1)),), (TensorSpec("OUT", "FP32", (-1, 1)),))
"""`submit` itself raises: a bug in the core."""


TENANTS = {each.name: each for each in map(TenantSpec, (DEFAULT_TENANT, "gold"))} | {
    "batch.jobs": TenantSpec("batch.jobs", tier="cheap")
}


class FakeServing:
    """Answers within `submit`; with `held`, when `release` is called; with `later_s`, after that time.

    `waited_us` (queue, batch, compute), `retry_us`, `cache` and `age_us` go into every reply, and `said` by
    names of its fields; each `invalidate` drops `kept` answers, it says.
    A test in another thread than the event loop's may use everything here.
    """

    def __init__(self) -> None:
        self.models: Mapping[str, ServedModel] = {model.name: model for model in (SIMPLE, IDENTITY, CRASH)}
        self.tenants: Mapping[str, TenantSpec] = TENANTS
        self.telemetry = Telemetry(self.models.values(), self.tenants)
        self.ready = True
        self.unready_models: set[str] = set()
        self.held = False
        self.later_s: float | None = None
        self.outcome = COMPLETED
        self.detail = ""
        self.waited_us = (0, 0, 0)
        self.retry_us = 0
        self.cache = ""
        self.age_us = 0
        self.said: dict[str, object] = {}
        self.kept = 0
        self.invalidated: list[str] = []
        self.calls: list[Call] = []
        self.cancelled: list[int] = []
        self.turned_away: list[tuple[str, Outcome, str]] = []
        self._waiting: dict[int, tuple[Call, Deliver]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = threading.Condition()

    @property
    def open_requests(self) -> int:
        return len(self._waiting)

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        self.turned_away.append((model, outcome, tenant))

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        self.telemetry.answered(model, reply, read_us, made_us)

    def model_ready(self, name: str) -> bool:
        return self.ready and name not in self.unready_models

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000

    def submit(self, call: Call, deliver: Deliver) -> int:
        if call.model is CRASH:
            raise ZeroDivisionError("a bug in the core")
        with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
        if not self.held and self.later_s is None:
            deliver(self._reply(call))
            return 0
        self._loop = asyncio.get_running_loop()
        request_id = len(self.calls)
        self._waiting[request_id] = (call, deliver)
        if self.later_s is not None:
            self._loop.call_later(self.later_s, self._answer, request_id)
        return request_id

    def cancel(self, request_id: int) -> None:
        _, deliver = self._waiting.pop(request_id)
        with self._changed:
            self.cancelled.append(request_id)
            self._changed.notify_all()
        deliver(Reply(CLIENT_GONE))

    def invalidate(self, model: str = "") -> int:
        self.invalidated.append(model)
        return self.kept

    def wait_calls(self, count: int, timeout_s: float = 60) -> None:
        """Until `count` calls were submitted in all; AssertionError where they do not come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.calls) >= count, timeout_s), len(self.calls)

    def wait_cancelled(self, count: int, timeout_s: float = 60) -> None:
        """Until `count` calls were cancelled in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.cancelled) >= count, timeout_s), self.cancelled

    def release(self) -> None:
        """Answer the held calls, the newest first, and hold no more: order is the edge's promise."""
        assert self._loop is not None
        self.held = False
        self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        for request_id in sorted(self._waiting, reverse=True):
            self._answer(request_id)

    def _answer(self, request_id: int) -> None:
        if request_id in self._waiting:
            call, deliver = self._waiting.pop(request_id)
            deliver(self._reply(call))

    def _reply(self, call: Call) -> Reply:
        reply = Reply(self.outcome, self.detail)
        reply.queue_us, reply.batch_us, reply.compute_us = self.waited_us
        reply.retry_us = self.retry_us
        reply.cache, reply.age_us = self.cache, self.age_us
        if self.outcome == COMPLETED:
            reply.outputs = compute(call)
            reply.variant, reply.batch_rows = "exact", call.rows
            for name, value in self.said.items():
                setattr(reply, name, value)
        return reply


def compute(call: Call) -> list[Tensor]:
    """What the fake's models answer."""
    first = call.inputs[0]
    if call.model.name != SIMPLE.name:
        return [Tensor("OUT", first.datatype, first.shape, first.data)]
    a, b = (np.frombuffer(tensor.data, "<i4") for tensor in call.inputs)
    return [
        Tensor(name, "INT32", first.shape, data.tobytes())
        for name, data in (("OUTPUT0", a + b), ("OUTPUT1", a - b))
    ]
