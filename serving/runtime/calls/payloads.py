"""The tensors of requests in flight: gathered into batches, and results handed back row by row.

The scheduler knows pieces (rows of a request); here they meet their bytes. Nothing is copied on the way
to the worker: a batch's input is the list of its requests' buffers.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from serving.ports import Call, Reply
from serving.runtime.observer import RowAnswer
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.specs import ModelSpec, TensorSpec
from serving.values.tensor import ABSENT, Buffer, Tensor
from serving.values.vocabulary import COMPLETED, MODEL_ERROR
from serving.worker.frames.batches import BatchInput, BatchOutput, BatchResult, RefusedRow
from serving.worker.replicas.padding import cut_sizes, pack_sizes
from serving.worker.replicas.sequences import Row, pack_steps

logger = logging.getLogger(__name__)

SEVERAL: Final = -1
"""In the place of a version: of several versions."""


class Pending:
    """A call that waits for its answer since `submitted_us`; `request` is the scheduler's view of the call.

    `outputs`: the outputs of the whole call if one batch held all of it; else `parts`, by first row.
    `back_us`: when its last batch came back, `output_us` after the model's end. `accuracy` and `variant`
    describe its least accurate batch; `downgrade` says why that batch was less accurate. `refused_output`:
    the output that a guard refuses, "" for none; `refusal` says why. `rehearsed`: a rehearsed worker ran at
    least one of its batches. `answers`: how many it has had, of a decoupled model.
    """

    __slots__ = (
        "accuracy", "answers", "back_us", "call", "compute_us", "deliver", "downgrade", "output_us",
        "outputs", "parts", "refusal", "refused_output", "rehearsed", "request", "reserve_us",
        "submitted_us", "variant", "version",
    )  # fmt: skip

    def __init__(
        self, call: Call, request: Request, deliver: Callable[[Reply], None], submitted_us: int
    ) -> None:
        self.call = call
        self.request = request
        self.deliver = deliver
        self.submitted_us = submitted_us
        self.reserve_us = 0  # by which it is planned to be ready before it is due
        self.outputs: Sequence[Tensor] | None = None
        self.parts: dict[int, Sequence[Tensor]] | None = None
        self.compute_us = 0  # of the batches that it was in
        self.output_us = 0
        self.back_us = 0
        self.variant = ""
        self.accuracy: float | None = None
        self.downgrade = ""
        self.refused_output = self.refusal = ""
        self.rehearsed = False
        self.answers = 0
        self.version = 0  # of what computes it, SEVERAL for more than one; 0 where there are none

    @property
    def other_version(self) -> int:
        """What computed the call, if it is another version than the one of its model; else 0."""
        return 0 if self.version == self.call.model.spec.version else self.version

    def answered(self, batch: RunBatch, piece: Piece, answer: BatchResult, now_us: int) -> RowAnswer:
        """Note an answer of a decoupled model to the call, or its end; return what is to be counted."""
        self.compute_us += answer.compute_us
        self.output_us, self.back_us = output_us(batch, answer, now_us), now_us
        self.ran(batch, piece)
        kind = "fail" if answer.refused else "success" if answer.outputs else "empty_response"
        place, self.answers = self.answers, self.answers + 1
        since_us = now_us - self.request.arrived_us
        return RowAnswer(place, kind, answer.compute_us, self.output_us, since_us)

    def keep(self, piece: Piece, outputs: Sequence[Tensor]) -> None:
        """Enter the outputs of a piece's rows."""
        if piece.rows == self.call.rows:
            self.outputs = outputs
        else:
            self.parts = self.parts or {}
            self.parts[piece.first_row] = outputs

    def ran(self, batch: RunBatch, piece: Piece) -> None:
        """Note that a batch with a piece of the call is back."""
        if batch.variant == self.variant:
            return
        accuracy = self.call.model.accuracy(batch.variant)
        if self.variant and (self.accuracy is None or (accuracy is not None and accuracy >= self.accuracy)):
            return
        self.variant, self.accuracy, self.downgrade = batch.variant, accuracy, piece.downgrade

    def refuse(self, piece: Piece, first: int, refused: Sequence[RefusedRow]) -> None:
        """Note the rows that guards refuse in a batch with the piece's rows from row `first` on. If a refused
        row is the call's, no row of the call is answered."""
        if self.refusal:
            return
        for each in refused:
            model, spec = self.call.model.name, self.call.model.spec.outputs[each.output]
            if first <= each.row < first + piece.rows and spec.guard is not None:
                place = f"row {piece.first_row + each.row - first} of output {spec.name!r}"
                what = f"the answer of {model} is refused: {place} holds {each.value:.10g}"
                self.refused_output, self.refusal = spec.name, f"{what}, expected {spec.guard}"
                return

    def complete(self, last: RunBatch) -> Reply:
        """Return the answer once all rows are in. `last`: the batch that brought the last rows."""
        reply = self._answer()
        reply.variant, reply.accuracy, reply.downgrade = self.variant, self.accuracy, self.downgrade
        reply.batch_rows, reply.rehearsed = last.rows, self.rehearsed
        reply.compute_us, reply.output_us, reply.ready_us = self.compute_us, self.output_us, self.back_us
        ran_us = self.back_us - max(
            self.request.started_us, self.submitted_us
        )  # a successor may have come after
        reply.input_us = max(ran_us - self.compute_us - self.output_us, 0)
        return reply

    def _answer(self) -> Reply:
        if self.refusal:
            return Reply(MODEL_ERROR, self.refusal)
        if self.call.model.spec.decoupled:
            return Reply(COMPLETED)
        try:
            outputs = self.outputs if self.outputs is not None else join(self.parts or {})
        except ValueError as error:
            reply = Reply(MODEL_ERROR, str(error))
        else:
            reply = Reply(COMPLETED)
            if not outputs:
                name = self.call.model.name
                reply = Reply(MODEL_ERROR, f"{name} has other outputs than when the request came")
            reply.outputs = outputs
        return reply


def run_by(version: int, pieces: Sequence[Piece], pending: Sequence[Pending]) -> None:
    """Note the version of the replica that a batch is sent to. A replica of the version before may be live
    yet, and what waits goes to the one after it."""
    for piece, owner in zip(pieces, pending, strict=True):
        known = owner.version
        alone = not known or piece.rows == owner.call.rows
        owner.version = version if alone or known == version else SEVERAL


def gather(pieces: Sequence[Piece], pending: Sequence[Pending]) -> list[BatchInput]:
    """Return the inputs of a batch, each the buffers of its pieces in order."""
    first = pending[0].call.inputs
    inputs = []
    for index, model_input in enumerate(first):
        buffers: list[Buffer] = []
        for piece, owner in zip(pieces, pending, strict=True):
            tensor = owner.call.inputs[index]
            if piece.rows == owner.call.rows:
                buffers.append(tensor.data)
            else:
                buffers.append(cut_rows(tensor, piece.first_row, piece.rows))
        inputs.append(BatchInput(model_input.datatype, model_input.shape[1:], buffers))
    if pending[0].call.model.spec.padded:
        inputs.extend(level(inputs, pieces, pending))
    if pending[0].call.sequence is not None:
        steps = [Row(piece.request.slot, piece.request.step) for piece in pieces if piece.request.step]
        inputs.append(pack_steps(steps))
    return inputs


def cut_rows(tensor: Tensor, first: int, count: int) -> memoryview:
    """Return the bytes of `count` rows from row `first` on; BYTES elements are found by their lengths."""
    view = memoryview(tensor.data)
    rows = tensor.shape[0]
    if tensor.datatype != "BYTES":
        width = len(view) // rows
        return view[first * width : (first + count) * width]
    per_row = 1
    for dimension in tensor.shape[1:]:
        per_row *= dimension
    begin = _skip_elements(view, 0, first * per_row)
    return view[begin : _skip_elements(view, begin, count * per_row)]


def _skip_elements(view: memoryview, offset: int, count: int) -> int:
    for _ in range(count):
        offset += 4 + int.from_bytes(view[offset : offset + 4], "little")
    return offset


def level(
    inputs: Sequence[BatchInput], pieces: Sequence[Piece], pending: Sequence[Pending]
) -> list[BatchInput]:
    """Give padded inputs the largest sizes of the batch. Return an input with the sizes of each row where
    they differ, nothing where they are the same."""
    spec = pending[0].call.model.spec
    sizes = [sizes_of(spec, owner.call) for owner in pending]
    whole = tuple(map(max, zip(*sizes, strict=True)))
    by_name = {each.name: size for each, size in zip(spec.padded, whole, strict=True)}
    for tensor, entry in zip(spec.inputs, inputs, strict=False):
        if tensor.pad is not None and entry.datatype != ABSENT:
            entry.dims = tuple(
                by_name.get(name, size) for name, size in zip(tensor.names[1:], entry.dims, strict=True)
            )
    if all(each == whole for each in sizes):
        return []
    return [pack_sizes([(own, piece.rows) for own, piece in zip(sizes, pieces, strict=True)])]


def sizes_of(spec: ModelSpec, call: Call) -> tuple[int, ...]:
    """Return the request's own sizes along which rows are filled up, in the order of `spec.padded`."""
    return tuple(call.inputs[each.input].shape[each.dimension] for each in spec.padded)


def scatter(outputs: Sequence[BatchOutput], call: Call, first: int, rows: int) -> list[Tensor]:
    """Return the outputs of `rows` rows of a batch from its row `first` on, without what stands for the
    filling of shorter rows."""
    spec = call.model.spec
    found = [
        Tensor(each.name, output.datatype, (rows, *output.dims), output.rows(first, rows))
        for each, output in zip(spec.outputs, outputs, strict=True)
    ]
    if not spec.padded:
        return found
    sizes = {each.name: size for each, size in zip(spec.padded, sizes_of(spec, call), strict=True)}
    return [cut_sizes(tensor, each.names, sizes) for each, tensor in zip(spec.outputs, found, strict=True)]


def join(parts: Mapping[int, Sequence[Tensor]]) -> Sequence[Tensor]:
    """Return the outputs of a request from those of its pieces, in the order of their rows.

    ValueError where pieces differ in shape or datatype, as they may for a model with free output shapes.
    """
    ordered = [parts[first_row] for first_row in sorted(parts)]
    joined = []
    for tensors in zip(*ordered, strict=True):
        head = tensors[0]
        kinds = {(tensor.datatype, tensor.shape[1:]) for tensor in tensors}
        if len(kinds) > 1:
            raise ValueError(
                f"output {head.name} came in unlike shapes for parts of one request: {sorted(kinds)}"
            )
        rows = sum(tensor.shape[0] for tensor in tensors)
        data = b"".join(tensor.data for tensor in tensors)
        joined.append(Tensor(head.name, head.datatype, (rows, *head.shape[1:]), data))
    return joined


def output_us(batch: RunBatch, result: BatchResult, now_us: int) -> int:
    """Return how long ago the model was done with a batch that is back; within its own time, whatever clock
    its worker has."""
    transport_us = now_us - batch.started_us - result.compute_us
    return max(0, min(now_us - result.ended_us, transport_us)) if result.ended_us else 0


def give_rows(batch: RunBatch, result: BatchResult, open_calls: Mapping[int, Pending]) -> None:
    """Give each call of a decoupled model's batch its row, as an answer; a rehearsed worker answers so."""
    for row, piece in enumerate(batch.pieces):
        pending = open_calls.get(piece.request.id)
        if pending is not None and len(result.outputs) == len(pending.call.model.spec.outputs):
            give(pending, scatter(result.outputs, pending.call, row, 1))


def give(pending: Pending, outputs: Sequence[Tensor]) -> None:
    """Give a call of a decoupled model one of its answers."""
    take = pending.call.on_answer
    if take is None or (pending.other_version and pending.call.model.stays):
        return  # it is asked again, as another version computes it
    try:
        take(outputs, pending.other_version)
    except Exception:  # as in `serving.runtime.calls.pending_calls.hand_over`
        logger.exception("an answer of %s could not be delivered", pending.call.model.name)


def take_row(pending: Pending, piece: Piece, answer: BatchResult) -> None:
    """Give a call of a decoupled model an answer to its row, if it has outputs that no guard refuses."""
    specs = pending.call.model.spec.outputs
    if answer.refused:
        pending.refuse(piece, 0, answer.refused)
    elif len(answer.outputs) == len(specs):
        give(pending, scatter(answer.outputs, pending.call, 0, 1))


def rows_of(request: Request, batches: Iterable[RunBatch]) -> Iterator[tuple[RunBatch, int]]:
    """Yield each batch that has the request, with the number of its row there."""
    for batch in batches:
        if batch.model == request.model:
            for row, piece in enumerate(batch.pieces):
                if piece.request is request:
                    yield batch, row


def keep_parts(
    batch: RunBatch,
    result: BatchResult,
    open_calls: Mapping[int, Pending],
    now_us: int,
    rehearsed: bool = False,
) -> None:
    """Hand the rows of a batch that is back to the calls that wait for them."""
    back_for_us = output_us(batch, result, now_us)
    specs: Sequence[TensorSpec] = ()
    first = 0
    for piece in batch.pieces:
        pending = open_calls.get(piece.request.id)
        if pending is not None:
            specs = specs or pending.call.model.spec.outputs  # a batch is of one edition of its model
            fits = len(specs) == len(result.outputs)  # else it ran on a replica of another
            outputs = scatter(result.outputs, pending.call, first, piece.rows) if fits else ()
            pending.keep(piece, outputs)
            if pending.call.model.spec.decoupled:
                pending.compute_us = 0  # counted by its answers until now: this is all of it
            pending.compute_us += result.compute_us
            pending.output_us, pending.back_us = back_for_us, now_us
            if result.refused and fits:
                pending.refuse(piece, first, result.refused)
            pending.ran(batch, piece)
            pending.rehearsed = pending.rehearsed or rehearsed
        first += piece.rows
