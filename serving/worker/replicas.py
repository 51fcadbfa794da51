"""The replicas of one worker: load, run, measure, and what to say when a model's code fails."""

import gc
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from serving.specs import ParameterValue
from serving.worker.arrays import Arrays, TensorError, datatype_of, encode_outputs
from serving.worker.backends.contract import Backend, Model
from serving.worker.orders import LoadOrder, MeasureOrder

MODEL_ERRORS: Final = (Exception, SystemExit)
"""What a model's code may raise without taking the worker along."""

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4096


class Replica:
    """A loaded variant and the spec that its answers are held to."""

    __slots__ = ("_model", "order")

    def __init__(self, order: LoadOrder, model: Model) -> None:
        self.order = order
        self._model = model

    def predict(
        self, inputs: Arrays, parameters: dict[str, ParameterValue]
    ) -> tuple[Mapping[str, object], int]:
        """The model's outputs and its own time in us, rounded up."""
        started_ns = time.perf_counter_ns()
        outputs = self._model.predict(inputs, parameters)
        return outputs, (time.perf_counter_ns() - started_ns + 999) // 1000

    @property
    def padded_size(self) -> int:
        """Tokens per row of the last predict, 0 where the model does not say."""
        return max(0, min(int(getattr(self._model, "padded_size", 0)), 0xFFFFFFFF))

    def warm_up(self) -> None:
        """One row of the smallest and of the largest size, answers checked: first runs are slow."""
        for size in sorted(set(self.order.sizes)):
            inputs = self._model.sample(1, size)
            missing = [spec.name for spec in self.order.inputs if spec.name not in inputs]
            if missing:
                raise TensorError(f"sample(1, {size}) lacks the inputs {missing}")
            first = datatype_of(inputs[self.order.inputs[0].name])
            outputs, _ = self.predict(inputs, {})
            encode_outputs(self.order.outputs, outputs, 1, first)

    def measure(self, order: MeasureOrder) -> list[int]:
        """Latencies in us of up to `repeats` runs; stops early where the next would leave the budget."""
        inputs = self._model.sample(order.rows, order.size)
        latencies: list[int] = []
        spent_us = 0
        while not latencies or (
            len(latencies) < order.repeats and spent_us + latencies[-1] <= order.budget_us
        ):
            latencies.append(self.predict(inputs, {})[1])
            spent_us += latencies[-1]
        return latencies


def load_replica(backend: Backend, order: LoadOrder) -> tuple[Replica, int, int]:
    """A replica that has run once, its load time in us and the memory in bytes that it took (resident)."""
    started_ns, before_bytes = time.perf_counter_ns(), _resident_bytes()
    replica = Replica(order, backend.load(order))
    replica.warm_up()
    # What loading made lives as long as the worker: a collection that walks over torch's modules would
    # stop a batch for tens of milliseconds.
    gc.collect()
    gc.freeze()
    load_us = (time.perf_counter_ns() - started_ns) // 1000
    return replica, load_us, max(0, _resident_bytes() - before_bytes)


def describe(error: BaseException) -> str:
    """Type, text and place of what a model's code raised, in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, TensorError):
        return text
    places = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("model.py")
    ]
    place = f" (model.py:{places[-1].lineno})" if places else ""
    return f"{type(error).__name__}: {text}"[:900] + place


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
