"""Which trace a batch takes to another server, and that no other batch takes any."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from serving.ports import Call
from serving.runtime.calls.batch_lanes import Lanes
from serving.runtime.calls.outgoing import Outgoing
from serving.runtime.calls.payloads import Pending
from serving.scheduler.waiting.requests import Request
from serving.values.specs import REMOTE, BatchingSpec, ServedModel
from serving.values.tensor import Tensor
from serving.values.traces import NO_TRACE, TraceContext
from serving.worker.frames.batches import BatchInput
from tests.builders import model_spec, served
from tests.runtime.ground import Bench, Ground, turn

FIRST, SECOND, OFF = (f"00-{each * 32}-{'b' * 16}-0{on}" for each, on in (("1", 1), ("2", 1), ("3", 0)))


def asking() -> ServedModel:
    """A model with a variant of its own, "a", and one that another server computes, "far"."""
    spec = model_spec(variants=("a", "far"), slo_ms=60_000)
    variants = spec.variants[0], replace(spec.variants[1], backend=REMOTE)
    return served(replace(spec, variants=variants), batching=BatchingSpec("static"))


MODEL = asking()
LANES = Lanes(MODEL)


def waiting(trace: str, state: str = "") -> Pending:
    call = Call(MODEL, (), 1)
    call.trace, call.trace_state = trace, state
    return Pending(call, LANES.describe(call, 1, 0, 0), lambda _reply: None, 0)


@pytest.mark.parametrize(
    ("traces", "found"),
    [
        ((), ""),
        (("", ""), ""),
        (("", FIRST, SECOND), FIRST),
        ((OFF, SECOND, FIRST), SECOND),
        (("", OFF), OFF),
    ],
)
def test_the_first_that_is_sampled_is_taken_or_else_the_first_with_a_trace(
    traces: Sequence[str], found: str
) -> None:
    assert Outgoing().trace(LANES, "far", [waiting(each) for each in traces]).parent == found


def test_a_state_goes_with_its_own_trace() -> None:
    pending = [waiting(OFF, "off=1"), waiting(FIRST, "first=1")]
    assert Outgoing().trace(LANES, "far", pending) == TraceContext(FIRST, "first=1")
    pending[1].call = waiting(SECOND, "successor=1").call  # its client has left; another waits for the answer
    assert Outgoing().trace(LANES, "far", pending) == TraceContext(FIRST, "")


def test_what_the_worker_computes_takes_none_and_asks_nobody() -> None:
    outgoing = Outgoing()

    def below(_request: Request) -> str:
        raise AssertionError("it is no other server's")

    outgoing.below = below
    assert outgoing.trace(LANES, "a", [waiting(FIRST)]) is NO_TRACE


class Noting(Bench):
    """A bench that notes the traces of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.traces: list[object] = []

    def run(self, batch: int, replica: int, rows: int, inputs: Sequence[BatchInput], *said: object) -> None:
        super().run(batch, replica, rows, inputs)
        self.traces.append(said[-1])


@pytest.mark.parametrize(("variant", "parent"), [("a", ""), ("far", FIRST)])
async def test_a_gateway_gives_it_to_the_worker_with_the_batch(variant: str, parent: str) -> None:
    ground = Ground(MODEL)
    ground.bench = bench = Noting()
    ground.route(variant=variant)
    call = Call(MODEL, [Tensor("X", "FP32", (1, 4), bytes(16))], 1)
    call.trace, call.variant = FIRST, variant
    ground.gateway.submit(call, ground.replies.append)
    await turn()
    assert bench.traces == [TraceContext(parent, "")]
