"""Python models in their short form: a class `Model` without arguments, or just functions in a file.

def predict(x):  # inputs by name; or predict(inputs, parameters)
    return x @ weights  # an array where there is one output; or arrays by name

def sample(rows):
    return {"x": np.zeros((rows, 4), np.float32)}
"""

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from serving.values.specs import ParameterValue
from serving.worker.frames.arrays import Arrays

OUTPUT: Final = "output"
"""The name of a model's only output, where its code gives it none."""
LONG_FORM: Final = (("inputs",), ("inputs", "parameters"))
"""Parameters of a `predict` that takes its inputs as one mapping."""


def has_short_form(module: ModuleType) -> bool:
    """Return whether a file without `load` has a class `Model` or a function `predict`."""
    return inspect.isclass(getattr(module, "Model", None)) or callable(getattr(module, "predict", None))


def short_form(module: ModuleType) -> object:
    """Return the object with `predict` of such a file: a `Model()`, or the file itself."""
    made = getattr(module, "Model", None)
    return made() if inspect.isclass(made) else module


class ShortModel:
    """A short model with the methods of a long one."""

    def __init__(self, model: object, output: str) -> None:
        self._predict: Callable[..., object] = getattr(model, "predict")  # noqa: B009  of any object
        self._takes = tuple(inspect.signature(self._predict).parameters)
        self._output = output
        given = getattr(model, "sample", None)
        if callable(given):
            self._sample: Callable[..., object] = given
            self._sizes = len(inspect.signature(given).parameters) > 1
            self.sample = self._sampled

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:
        """Return the outputs by name. Tensors of torch become arrays."""
        if self._takes in LONG_FORM:
            found = self._predict(*(inputs, parameters)[: len(self._takes)])
        else:
            found = self._predict(**inputs)
        named = found if isinstance(found, Mapping) else {self._output: found}
        return {name: _array(each) for name, each in named.items()}

    def _sampled(self, rows: int, size: int) -> Arrays:
        found = self._sample(rows, size) if self._sizes else self._sample(rows)
        named = found if isinstance(found, Mapping) else {self._takes[0]: found}
        return {str(name): _array(each) for name, each in named.items()}


def _array(each: Any) -> Any:
    return each.detach().cpu().numpy() if hasattr(each, "detach") else each
