"""A batch of a decoupled model: its rows' answers, sent as the model's generator yields them."""

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from typing import Final

from serving.values.specs import ParameterValue, TensorSpec
from serving.values.tensor import Buffer
from serving.worker.backends.contract import DecoupledModel
from serving.worker.frames.arrays import Arrays, TensorError, datatype_of, encode_outputs
from serving.worker.frames.batches import LAST, EncodedOutput, RunOrder, pack_result
from serving.worker.frames.wire import PAYLOAD_BYTES_MAX, FrameKind, gather_bytes
from serving.worker.replicas.guards import refused_rows

Send = Callable[[Sequence[Buffer]], None]
Gone = Callable[[], frozenset[int]]
"""Returns the rows that nobody waits for any more; asked after each answer."""
Answered = Generator[tuple[int, object], None, None]
_NOBODY: Final[frozenset[int]] = frozenset()


def answers_of(source: object, rows: int, gone: Gone) -> Answered:
    """Yield the answers of a batch as a model gives them, each with its row; None as the end of a row.

    It ends when the model does, or when every row has ended or has nobody that waits for it: then the model's
    generator is closed at its yield. Raises TensorError for what no model may yield.
    """
    if not isinstance(source, Generator):
        raise TensorError(f"stream returned {type(source).__name__}, expected a generator")
    ended: set[int] = set()
    left: frozenset[int] = frozenset()
    with closing(source):
        try:
            yielded = next(source)
            while True:
                row, outputs = _checked(yielded, rows, ended)
                if outputs is None:
                    ended.add(row)
                if row not in left:
                    yield row, outputs
                left = gone()
                if len(ended | left) >= rows:
                    return
                yielded = source.send(left)
        except StopIteration:
            return


def _checked(yielded: object, rows: int, ended: Collection[int]) -> tuple[int, object]:
    if not isinstance(yielded, tuple) or len(yielded) != 2:
        raise TensorError(f"stream yielded {type(yielded).__name__}, expected a pair of row and outputs")
    row, outputs = yielded
    if type(row) is not int or not 0 <= row < rows:
        raise TensorError(f"stream yielded an answer of row {row!r:.20} in a batch of {rows} rows")
    if row in ended:
        raise TensorError(f"stream yielded an answer of row {row} after its end")
    return row, outputs


def run_alone(
    model: DecoupledModel,
    inputs: Arrays,
    parameters: dict[str, ParameterValue],
    outputs: Sequence[TensorSpec],
) -> Mapping[str, object]:
    """Run a batch to its end, for nobody: every answer is checked. Return no outputs."""
    first = next(iter(inputs.values()))
    datatype = datatype_of(first)
    for _, answer in answers_of(model.stream(inputs, parameters), len(first), lambda: _NOBODY):
        if answer is not None:
            encode_outputs(outputs, answer, 1, datatype)
    return {}


class RowSender:
    """Sends the answers of one batch. `refused`: rows with an answer that a guard refuses."""

    def __init__(self, order: RunOrder, specs: Sequence[TensorSpec], send: Send) -> None:
        self._order = order
        self._specs = specs
        self._send = send
        self._datatype = order.inputs[0].datatype if order.inputs else ""
        self._began_ns = time.perf_counter_ns()
        self._answered_ns = [self._began_ns] * order.rows
        self.refused: set[int] = set()

    def send(self, row: int, answer: object) -> None:
        """Send an answer, or the end of a row. A row with a refused answer has no others."""
        if row in self.refused:
            return
        outputs: Sequence[EncodedOutput] = ()
        if answer is not None:
            outputs = encode_outputs(self._specs, answer, 1, self._datatype)
        refused = refused_rows(self._specs, outputs, 1) if outputs else []
        if refused:
            self.refused.add(row)
        data: list[Buffer] = [output.data for output in outputs]
        count = gather_bytes(data)
        if count > PAYLOAD_BYTES_MAX:
            raise OverflowError(f"an answer takes {count} bytes, at most {PAYLOAD_BYTES_MAX} fit a frame")
        flags = LAST if answer is None or refused else 0
        times = self._took_us(row), time.monotonic_ns() // 1000
        head = pack_result(
            (self._order.batch_id, *times, row, 1, flags), outputs, count, refused, FrameKind.ROW
        )
        self._send((head, *data))

    def _took_us(self, row: int) -> int:
        """Return the time since the row's answer before, or since the batch began."""
        now_ns = time.perf_counter_ns()
        took_ns, self._answered_ns[row] = now_ns - self._answered_ns[row], now_ns
        return (took_ns + 999) // 1000

    def end(self, padded_size: int) -> bytes:
        """Return the frame that ends the batch: every row has its last answer."""
        took_us = (time.perf_counter_ns() - self._began_ns + 999) // 1000
        order = self._order
        times = took_us, time.monotonic_ns() // 1000
        return pack_result((order.batch_id, *times, padded_size, order.rows, 0), (), 0)
