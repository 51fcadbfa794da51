"""The backend of each variant, by its name in `model.yaml`."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from serving.worker.backends.contract import Backend, LoadedModel
from serving.worker.backends.hf.backend import TransformersBackend
from serving.worker.backends.onnx import OnnxBackend
from serving.worker.backends.openvino import OpenVinoBackend
from serving.worker.backends.python import PythonBackend
from serving.worker.backends.remote import RemoteBackend
from serving.worker.backends.scikit import ScikitBackend
from serving.worker.backends.torch_export import TorchExportBackend
from serving.worker.frames.orders import LoadOrder

BACKENDS: Final[Mapping[str, Callable[[int, str], Backend]]] = {
    "python": PythonBackend,
    "onnx": OnnxBackend,
    "openvino": OpenVinoBackend,
    "torch_export": TorchExportBackend,
    "transformers": TransformersBackend,
    "sklearn": lambda threads, _device: ScikitBackend(threads),
    "remote": lambda _threads, _device: RemoteBackend(),
}
"""Each takes the threads of the slice and the device. It imports its library with its first model."""


class ChosenBackend:
    """All backends of a worker, each made once. An order names the one that it is for."""

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self._backends = {name: make(threads, device) for name, make in BACKENDS.items()}

    def prepare(self, order: LoadOrder) -> None:
        """See `Backend.prepare`."""
        self._backends[order.backend].prepare(order)

    def load(self, order: LoadOrder) -> LoadedModel:
        """See `Backend.load`."""
        return self._backends[order.backend].load(order)

    def settle(self) -> None:
        """Set what the libraries of all backends keep by thread."""
        for backend in self._backends.values():
            backend.settle()

    def keep(self, orders: Collection[LoadOrder]) -> None:
        """Forget all code but these orders' code, in each backend."""
        for name, backend in self._backends.items():
            backend.keep([order for order in orders if order.backend == name])
