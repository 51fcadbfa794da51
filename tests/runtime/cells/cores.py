"""A core for tests of cells: it answers with what it got, at once or when it is let."""

import time
from collections.abc import Callable, Mapping, Sequence

from serving.ports import Call, Reply
from serving.values.specs import DEFAULT_TENANT, ServedModel, TenantSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, Outcome

Deliver = Callable[[Reply], None]


class Core:
    """`serving.ports.Serving`. `held`: calls wait for `release`."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models: Mapping[str, ServedModel] = {each.name: each for each in models}
        self.tenants: Mapping[str, TenantSpec] = {DEFAULT_TENANT: TenantSpec(DEFAULT_TENANT)}
        self.ready = True
        self.held = False
        self.outcome = COMPLETED
        self.parts = 0
        self.calls: list[Call] = []
        self.cancelled: list[int] = []
        self.turned_away: list[tuple[str, Outcome]] = []
        self._waiting: dict[int, tuple[Call, Deliver]] = {}

    @property
    def open_requests(self) -> int:
        return len(self._waiting)

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        self.turned_away.append((model, outcome))

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        pass

    def model_ready(self, name: str) -> bool:
        return name in self.models

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000

    def submit(self, call: Call, deliver: Deliver) -> int:
        self.calls.append(call)
        number = len(self.calls)
        self._waiting[number] = call, deliver
        if not self.held:
            self.release()
            return 0
        return number

    def release(self) -> None:
        """Answer all calls."""
        for number in [*self._waiting]:
            call, deliver = self._waiting.pop(number)
            for part in range(self.parts):
                assert call.on_answer is not None
                call.on_answer([Tensor("Y", "INT32", (1,), part.to_bytes(4, "little"))], 0)
            reply = Reply(self.outcome)
            if self.outcome is COMPLETED:
                reply.outputs, reply.answered_us = call.inputs, self.now_us()
            deliver(reply)

    def cancel(self, request_id: int) -> None:
        self.cancelled.append(request_id)
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None:
            waiting[1](Reply(CLIENT_GONE))

    def invalidate(self, model: str = "") -> int:
        return 0
