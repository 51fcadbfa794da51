"""Where answers of a decoupled model come to the gateway, each goes to its call, and a call has one end."""

from collections.abc import Sequence
from dataclasses import replace

from serving.ports import Call, Reply
from serving.values.specs import BatchingSpec, Guard, TensorSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, MODEL_ERROR
from serving.worker.frames.batches import BatchOutput, BatchResult, RefusedRow
from tests.builders import model_spec, served
from tests.runtime.ground import Ground, turn

OUTPUTS = (TensorSpec("Y", "FP32", (-1, 4), Guard(most=9)),)
MODEL = served(
    replace(model_spec(), outputs=OUTPUTS, decoupled=True), batching=BatchingSpec("static", size=2)
)


class Asked:
    """A call, its answers and its ends."""

    def __init__(self, ground: Ground) -> None:
        self.answers: list[Sequence[Tensor]] = []
        self.ends: list[Reply] = []
        call = Call(MODEL, [Tensor("X", "FP32", (1, 4), bytes(16))], 1)
        call.on_answer = lambda outputs, _version: self.answers.append(outputs)
        self.call = call
        self.id = ground.gateway.submit(call, self.ends.append)

    @property
    def outcome(self) -> object:
        (reply,) = self.ends
        return reply.outcome


def row(batch: int, number: int, *, last: bool = False, values: bytes | None = b"\1" * 16) -> BatchResult:
    """A row's answer as its link gives it; without values it has no outputs."""
    outputs = [] if values is None else [BatchOutput("FP32", (4,), values, 1)]
    found = BatchResult(batch, 7, number, 1, outputs)
    found.is_last = last
    return found


async def two_in_a_batch() -> tuple[Ground, int, Asked, Asked]:
    ground = Ground(MODEL)
    ground.route()
    first, second = Asked(ground), Asked(ground)
    await turn()
    ((batch, _, rows),) = ground.bench.running
    assert rows == 2
    return ground, batch, first, second


async def test_answers_go_to_their_calls_and_the_batchs_end_ends_what_has_not() -> None:
    ground, batch, first, second = await two_in_a_batch()
    ground.gateway.row_answered(row(batch, 1))
    ground.gateway.row_answered(row(batch, 0))
    ground.gateway.row_answered(row(batch, 1, last=True, values=None))
    assert (len(first.answers), len(second.answers), first.ends) == (1, 1, [])
    assert second.outcome is COMPLETED
    ground.gateway.batch_done(BatchResult(batch, 50, 0, 2, []))
    assert first.outcome is COMPLETED
    assert first.ends[0].compute_us == 50
    assert ground.gateway.open_requests == 0
    told = [(each.place, each.kind) for each in ground.tally.row_answers]
    assert told == [(0, "success"), (0, "success"), (1, "empty_response")]


async def test_a_batch_that_comes_back_whole_gives_each_call_one_answer() -> None:
    """A rehearsed worker answers so."""
    ground, batch, first, second = await two_in_a_batch()
    output = BatchOutput("FP32", (4,), b"\1" * 16 + b"\2" * 16, 2)
    ground.gateway.batch_done(BatchResult(batch, 50, 0, 2, [output]))
    for asked, value in ((first, b"\1"), (second, b"\2")):
        ((tensor,),) = asked.answers
        assert bytes(tensor.data) == value * 16
        assert asked.outcome is COMPLETED


async def test_a_call_that_ends_early_leaves_its_row_and_gets_no_answer_more() -> None:
    ground, batch, first, second = await two_in_a_batch()
    ground.gateway.row_answered(row(batch, 0))
    ground.gateway.cancel(first.id)
    assert ground.bench.left == [(batch, 0)]
    ground.gateway.row_answered(row(batch, 0))
    ground.gateway.row_answered(row(batch, 0, last=True, values=None))
    assert (first.outcome, len(first.answers)) == (CLIENT_GONE, 1)
    ground.gateway.batch_done(BatchResult(batch, 50, 0, 2, []))
    assert second.outcome is COMPLETED
    assert [each.kind for each in ground.tally.row_answers] == ["success", "cancel"]


async def test_a_refused_answer_fails_its_call_alone() -> None:
    ground, batch, first, second = await two_in_a_batch()
    refused = row(batch, 0, last=True)
    refused.refused = [RefusedRow(0, 0, 99.0)]
    ground.gateway.row_answered(refused)
    assert (first.outcome, first.answers) == (MODEL_ERROR, [])
    assert "holds 99, expected at most 9" in first.ends[0].detail
    assert ground.tally.refused_outputs == [("m", "Y")]
    ground.gateway.batch_done(BatchResult(batch, 50, 0, 2, []))
    assert second.outcome is COMPLETED


async def test_an_edge_that_fails_on_an_answer_harms_no_other_call() -> None:
    ground, batch, first, second = await two_in_a_batch()

    def fail(_outputs: Sequence[Tensor], _version: int) -> None:
        raise ZeroDivisionError("a bug in an edge")

    first.call.on_answer = fail
    for number in (0, 1):
        ground.gateway.row_answered(row(batch, number))
    assert len(second.answers) == 1
    ground.gateway.batch_done(BatchResult(batch, 50, 0, 2, []))
    assert (first.outcome, second.outcome) == (COMPLETED, COMPLETED)


async def test_answers_of_unknown_batches_are_dropped() -> None:
    ground, batch, first, _ = await two_in_a_batch()
    ground.gateway.row_answered(row(batch + 1, 0))
    assert (first.answers, first.ends) == ([], [])
