"""A model without a batch dimension, as the worker runs it: each batch has one row, which the model never
sees as a dimension."""

from collections.abc import Callable, Mapping
from typing import Any, cast  # arrays of numpy and tensors of torch: both take indices

from serving.worker.backends.contract import LoadedModel
from serving.worker.frames.orders import LoadOrder

Run = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]


class Unbatched:
    """The model with a batch dimension added: it has the methods that the model has, and no others."""

    def __init__(self, model: object) -> None:
        self._model = model
        for name in ("predict", "predict_device"):
            if callable(method := getattr(model, name, None)):
                setattr(self, name, _of_one_row(method))
        if callable(sample := getattr(model, "sample", None)):
            self.sample = _in_one_row(sample)

    @property
    def padded_size(self) -> int:
        """What the model says of its last run, 0 if nothing."""
        return int(getattr(self._model, "padded_size", 0))


def as_ordered(model: LoadedModel, order: LoadOrder) -> LoadedModel:
    """Return the model, with a batch dimension added if the order says that it has none."""
    return cast(LoadedModel, Unbatched(model)) if order.unbatched else model


def _of_one_row(run: Run) -> Run:
    """Return the method for a batch of one row. It does not hold the adapter: a cycle would keep the model in
    memory after it was dropped."""

    def answer(inputs: dict[str, Any], parameters: dict[str, Any]) -> Any:
        found = run({name: array[0] for name, array in inputs.items()}, parameters)
        if not isinstance(found, Mapping):
            return found  # which is no answer: the worker says so
        return {name: _with_row(array) for name, array in found.items()}

    return answer


def _in_one_row(sample: Callable[[int, int], Mapping[str, Any]]) -> Callable[[int, int], dict[str, Any]]:
    def made(rows: int, size: int) -> dict[str, Any]:
        return {name: _with_row(array) for name, array in sample(rows, size).items()}

    return made


def _with_row(array: Any) -> Any:
    return array[None] if hasattr(array, "shape") else array
