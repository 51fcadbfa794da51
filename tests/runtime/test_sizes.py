"""What the gateway makes of size hints: buckets share batches, and a batch is as large as its largest row."""

import asyncio
from collections.abc import Sequence

from serving.ports import Call
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.runtime.calls.batch_lanes import PLACES
from serving.runtime.calls.gateway import Gateway
from serving.scheduler.commands import RunBatch
from serving.values.specs import BatchingSpec, Limits
from serving.values.tensor import Tensor
from serving.worker.frames.batches import BatchInput, BatchOutput, BatchResult
from tests.builders import KIND, model_spec, served
from tests.runtime.house import Tally

MODEL = served(model_spec(buckets=(64, 128), slo_ms=60_000), batching=BatchingSpec("static"))
POINTS = tuple(Point(size, rows, 10.0 * size * rows, 1.0, 3) for size in (64, 128) for rows in (1, 8))
LATENCY = Latency(Profile("m", "a", KIND, POINTS))


class Kept(Tally):
    """It keeps the batches that came back."""

    def __init__(self) -> None:
        super().__init__()
        self.back: list[RunBatch] = []

    def batch_done(self, batch: RunBatch, compute_us: int, elapsed_us: int, output_us: int = 0) -> None:
        self.back.append(batch)


class Bench:
    """A link to a worker that computes nothing."""

    slice = "s"

    def __init__(self) -> None:
        self.running: list[tuple[int, int]] = []

    def run(self, batch: int, replica: int, rows: int, inputs: Sequence[BatchInput], *_: object) -> None:
        self.running.append((batch, rows))

    def leave(self, batch: int, row: int) -> None:
        raise AssertionError("no model here is decoupled")


async def batches_of(sizes: Sequence[int]) -> list[RunBatch]:
    """The batches of calls that come together, of one row each."""
    kept, bench = Kept(), Bench()
    gateway = Gateway([MODEL], Limits(queue_requests=10_000), kept)
    gateway.replica_up(bench, "m", "a", 1, LATENCY)
    gateway.hold("s")
    for size in sizes:
        call = Call(MODEL, [Tensor("TEXT", "BYTES", (1, 1), b"\1\0\0\0x")], 1)
        call.size = size
        gateway.submit(call, lambda _: None)
    gateway.release("s")
    while bench.running:
        batch_id, rows = bench.running.pop()
        gateway.batch_done(BatchResult(batch_id, 50, 0, rows, [BatchOutput("FP32", (4,), bytes(16), rows)]))
    return kept.back


def test_rows_of_a_bucket_share_a_batch_which_is_foretold_by_the_largest() -> None:
    batches = asyncio.run(batches_of([100, 30, 65, 9999, 10]))
    assert [(batch.bucket, batch.size, batch.rows) for batch in batches] == [(128, 128, 3), (64, 30, 2)]
    assert [batch.typical_us for batch in batches] == [10 * 128 * 3, 10 * 32 * 2]  # half of the smallest


def test_all_sizes_that_a_client_can_think_of_are_placed() -> None:
    batches = asyncio.run(batches_of(range(PLACES + 100)))
    assert sum(batch.rows for batch in batches) == PLACES + 100
    assert {batch.bucket for batch in batches} == {64, 128}
