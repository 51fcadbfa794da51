"""Other ways to run a model of tensors on a GPU: `torch.compile`, or CUDA graphs of every batch size.

A graph replays all kernels of a batch with one call of the driver: small batches no longer wait for Python.
Its shapes and memory are fixed: inputs are copied to where it reads, and outputs from where it writes.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Protocol

from serving.values.specs import ParameterValue
from serving.worker.device.ports import Tensor, Tensors
from serving.worker.device.running import Predict

GRAPHS: Final = "graphs"
TORCH: Final = "torch"

Replay = Callable[[], object]
_TRIAL_RUNS: Final = 2
"""Before a capture, in which libraries choose kernels and allocate what they keep (torch, "CUDA graphs")."""


class Capture(Protocol):
    """What records the work of a device."""

    def capture(self, work: Callable[[], Tensors]) -> tuple[Replay, Tensors]:
        """Record the work; return what does it again, and where it leaves its outputs."""
        ...


class GpuGraphs:
    """CUDA graphs by torch. Those of one model share a pool of memory, as they run one after the other."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch: Any = torch
        self._pool: Any = None

    def capture(self, work: Callable[[], Tensors]) -> tuple[Replay, Tensors]:
        cuda = self._torch.cuda
        self._pool = self._pool or cuda.graph_pool_handle()
        graph = cuda.CUDAGraph()
        # Other threads of the worker may allocate meanwhile: only this one's calls are recorded or refused.
        with cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = work()
        return graph.replay, outputs


class CapturedPredict:
    """A model's `predict_device`, by a graph for each shape of inputs that came before `seal`.

    Other shapes, and batches with parameters, run as they would without graphs.
    """

    def __init__(self, predict: Predict, capture: Capture) -> None:
        self._predict = predict
        self._capture = capture
        self._graphs: dict[object, tuple[Replay, Tensors, Tensors]] = {}
        self._sealed = False

    def seal(self) -> None:
        """Stop capturing, because served batches come from now on."""
        self._sealed = True

    @property
    def count(self) -> int:
        """How many graphs there are."""
        return len(self._graphs)

    def __call__(self, inputs: Tensors, parameters: dict[str, ParameterValue]) -> Mapping[str, Tensor]:
        if parameters:
            return self._predict(inputs, parameters)
        key = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in sorted(inputs.items()))
        if key not in self._graphs:
            if self._sealed:
                return self._predict(inputs, parameters)
            self._graphs[key] = self._captured(inputs)
        replay, read, written = self._graphs[key]
        for name, tensor in inputs.items():
            read[name].copy_(tensor)
        replay()
        return {name: tensor.clone() for name, tensor in written.items()}

    def _captured(self, inputs: Tensors) -> tuple[Replay, Tensors, Tensors]:
        read = {name: tensor.clone() for name, tensor in inputs.items()}

        def work() -> Tensors:
            return dict(self._predict(dict(read), {}))

        for _ in range(_TRIAL_RUNS):
            work()
        replay, written = self._capture.capture(work)
        return replay, read, written


def compiled(torch: ModuleType, predict: Predict, batches: int, backend: str = "inductor") -> Predict:
    """Return a model's `predict_device` compiled by `torch.compile`, for up to `batches` batch sizes without
    a fallback."""
    settings: Any = import_module("torch._dynamo").config
    settings.recompile_limit = max(settings.recompile_limit, batches)
    found: Predict = torch.compile(predict, dynamic=False, backend=backend)
    return found
