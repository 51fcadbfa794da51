"""A gateway without workers for tests: a batch is answered when it is told to, what it told is kept."""

import asyncio
from collections.abc import Sequence

from serving.ports import Call, Reply, Serving
from serving.profile.derived.latency import Latency
from serving.runtime.calls.gateway import Gateway
from serving.values.specs import BatchingSpec, Limits, ServedModel
from serving.values.tensor import Tensor
from serving.worker.frames.batches import BatchInput, BatchOutput, BatchResult
from tests.builders import model_spec, profile, served
from tests.runtime.house import Tally

MODEL = served(model_spec(slo_ms=60_000), batching=BatchingSpec("static"))


class Bench:
    """A link to a worker that answers when it is told to."""

    def __init__(self, slice_name: str = "s") -> None:
        self.slice = slice_name
        self.running: list[tuple[int, int, int]] = []  # batch, replica, rows
        self.left: list[tuple[int, int]] = []  # batch, row

    def run(self, batch: int, replica: int, rows: int, inputs: Sequence[BatchInput], *said: object) -> None:
        self.running.append((batch, replica, rows))

    def leave(self, batch: int, row: int) -> None:
        self.left.append((batch, row))


class Ground:
    """A gateway with its worker, and what it told. `serving`: what calls are submitted to."""

    def __init__(self, *models: ServedModel) -> None:
        self.tally = Tally()
        self.gateway = Gateway(models, Limits(), self.tally)
        self.serving: Serving = self.gateway
        self.bench = Bench()
        self.told: list[tuple[str, ...]] = []
        self.gateway.on_missed = lambda model, variant: self.told.append(("missed", model, variant))
        self.gateway.on_retired = lambda model: self.told.append(("retired", model))
        self.gateway.on_models = lambda: self.told.append(("models", *self.gateway.models))
        self.replies: list[Reply] = []

    def route(self, model: str = "m", replica: int = 1, variant: str = "a") -> None:
        self.gateway.replica_up(self.bench, model, variant, replica, Latency(profile(model, variant)))

    def submit(self, model: ServedModel = MODEL, variant: str = "", timeout_us: int | None = None) -> int:
        call = Call(model, [Tensor("X", "FP32", (1, 4), bytes(16))], 1)
        call.variant, call.timeout_us = variant, timeout_us
        return self.serving.submit(call, self.replies.append)

    def finish(self, outputs: int = 1, compute_us: int = 50) -> None:
        batch, _, rows = self.bench.running.pop(0)
        parts = [BatchOutput("FP32", (4,), bytes(16 * rows), rows)] * outputs
        self.gateway.batch_done(BatchResult(batch, compute_us, 0, rows, parts))

    def outcomes(self) -> list[object]:
        return [reply.outcome for reply in self.replies]


async def turn() -> None:
    """Let what is due in this turn of the loop happen."""
    for _ in range(3):
        await asyncio.sleep(0)
