"""A serving whose variants name what they are told to name: at once, when they are let, or never."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from serving.ports import Call, Reply
from serving.runtime.clocks.clock import now_us
from serving.values.specs import DEFAULT_TENANT, ServedModel, TenantSpec
from serving.values.vocabulary import CLIENT_GONE, NO_REPLICA, Outcome
from tests.selection.panels import NAMES, answer


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
        return answer(call.variant or "a", named, call.rows, self.compute_us[call.variant or "a"])
