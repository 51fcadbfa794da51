"""A serving whose variants name what they are told to name: at once, when they are let, or never."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from serving.objectives import SelectionSpec
from serving.ports import Call, Reply
from serving.runtime.clock import now_us
from serving.specs import (
    DEFAULT_TENANT,
    ModelSpec,
    ServedModel,
    TenantSpec,
    TensorSpec,
    Validation,
    VariantSpec,
)
from serving.tensor import Tensor
from serving.vocabulary import CLIENT_GONE, COMPLETED, NO_REPLICA, Outcome

NAMES = ("a", "b", "c")
ACCURACY = {"a": 0.9, "b": 0.8, "c": 0.7}
CLASSES = 4


def validation(rows: int = 240) -> Validation:
    """Members that err apart: `a` on every 10th row, `b` on every 5th, `c` on three of 10, never together,
    so that all three are always right, and two as often as the better one."""
    labels = tuple(row // 20 % CLASSES for row in range(rows))
    wrong = {"a": {0}, "b": {1, 2}, "c": {3, 4, 5}}
    told = tuple(
        (name, tuple((label + (row // 2 % 10 in at)) % CLASSES for row, label in enumerate(labels)))
        for name, at in wrong.items()
    )
    return Validation(labels, told)


def selecting_model(policy: str, slo_us: int = 1_000_000, members: tuple[str, ...] = NAMES) -> ServedModel:
    """`m`: FP32 X [-1, 1] to FP32 SCORES [-1, 4] and the variant's name as INT8 WHO [-1, 1]."""
    spec = ModelSpec(
        name="m",
        folder=Path("nowhere"),
        inputs=(TensorSpec("X", "FP32", (-1, 1)),),
        outputs=(TensorSpec("WHO", "INT8", (-1, 1)), TensorSpec("SCORES", "FP32", (-1, CLASSES))),
        variants=tuple(
            VariantSpec(name, None, accuracy=ACCURACY[name], deterministic=True) for name in NAMES
        ),
        default_variant="a",
        slo_us=slo_us,
        batch_max=8,
        validation=validation(),
    )
    selection = SelectionSpec(policy, members, "SCORES")
    return ServedModel(spec, slo_us, NAMES, ("s",), selection=selection)


@dataclass(frozen=True, slots=True)
class Load:
    """As much of a standing as is read."""

    slices: int


class Members:
    """`named`: of each variant the class of each row, or how it ends; `held`: those that answer when `let` is
    called; `compute_us`: of each of their batches, of one row."""

    def __init__(self, model: ServedModel) -> None:
        self.models: Mapping[str, ServedModel] = {model.name: model}
        self.tenants: Mapping[str, TenantSpec] = {DEFAULT_TENANT: TenantSpec(DEFAULT_TENANT)}
        self.ready = True
        self.named: dict[str, list[int] | Outcome | np.ndarray] = {name: [0] for name in NAMES}
        self.compute_us = {"a": 4000, "b": 2000, "c": 1000}
        self.held: set[str] = set()
        self.calls: list[Call] = []
        self.turned_away: list[Outcome] = []
        self.cancelled: list[str] = []
        self.load: Load | None = None
        self.ahead_us = 0
        self._waiting: dict[int, tuple[Call, Callable[[Reply], None]]] = {}

    @property
    def open_requests(self) -> int:
        return len(self._waiting)

    @property
    def asked(self) -> list[str]:
        return [call.variant for call in self.calls]

    def standing(self, model: str) -> Load | None:
        return self.load

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        self.turned_away.append(outcome)

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        pass

    def model_ready(self, name: str) -> bool:
        return True

    def now_us(self) -> int:
        return now_us() + self.ahead_us

    def invalidate(self, model: str = "") -> int:
        return 7

    def submit(self, call: Call, deliver: Callable[[Reply], None]) -> int:
        self.calls.append(call)
        if call.variant not in self.held:
            deliver(self._reply(call))
            return 0
        self._waiting[len(self.calls)] = call, deliver
        return len(self.calls)

    def cancel(self, request_id: int) -> None:
        call, deliver = self._waiting.pop(request_id)
        self.cancelled.append(call.variant)
        deliver(Reply(CLIENT_GONE))

    def let(self, variant: str) -> None:
        """The oldest call of a held variant is answered."""
        place = next(place for place, (call, _) in self._waiting.items() if call.variant == variant)
        call, deliver = self._waiting.pop(place)
        deliver(self._reply(call))

    def _reply(self, call: Call) -> Reply:
        named = self.named[call.variant or "a"]
        if isinstance(named, Outcome):
            reply = Reply(named, f"{call.variant} said so")
            reply.retry_us = 5000 if named is NO_REPLICA else 0
            return reply
        reply = Reply(COMPLETED)
        reply.variant = call.variant
        reply.compute_us, reply.batch_rows = self.compute_us[call.variant or "a"], 1
        scores = np.eye(CLASSES, dtype=np.float32)[named] if isinstance(named, list) else named
        who = np.full(call.rows, ord(call.variant or "a"), np.int8)
        reply.outputs = [
            Tensor("WHO", "INT8", (call.rows, 1), who.tobytes()),
            Tensor("SCORES", "FP32", scores.shape, scores.tobytes()),
        ]
        return reply


def ask(model: ServedModel, rows: int = 1, floor: float = 0.0, timeout_us: int | None = None) -> Call:
    """A call of `m` by an edge."""
    call = Call(model, [Tensor("X", "FP32", (rows, 1), bytes(4 * rows))], rows)
    call.objective = replace(model.own, accuracy_min=floor)
    call.timeout_us = timeout_us
    return call
