"""Python models in their short form: a class `Model` without arguments, or just functions in a file.

def predict(x):  # inputs by name; or predict(inputs, parameters)
    return x @ weights  # an array where there is one output; or arrays by name

def sample(rows):
    return {"x": np.zeros((rows, 4), np.float32)}

Annotations say the same as a sample of numbers does: def predict(x: Annotated[np.ndarray, "FP32", 4]).
"""

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from serving.values.specs import ParameterValue
from serving.worker.backends.signature import SignatureError, Tensor, made_up
from serving.worker.frames.arrays import DTYPES, Arrays

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

    def __init__(self, model: object, output: str, sizes: Mapping[str, int] | None = None) -> None:
        """Take a short model. `sizes`: of the free dimensions of its annotations, in samples."""
        self._predict: Callable[..., object] = getattr(model, "predict")  # noqa: B009  of any object
        self._takes = tuple(inspect.signature(self._predict).parameters)
        self._output = output
        given = getattr(model, "sample", None)
        if callable(given):
            self._sample: Callable[..., object] = given
            self._sizes = len(inspect.signature(given).parameters) > 1
            self.sample = self._sampled
        self.annotated = () if callable(given) else annotations_of(self._predict)
        if self.annotated:
            self._dimensions = sizes or {}
            self.sample = self._made_up

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:
        """Return the outputs by name. Tensors of torch become arrays."""
        if self._takes in LONG_FORM:
            found = self._predict(*(inputs, parameters)[: len(self._takes)])
        else:
            found = self._predict(**inputs)
        named = found if isinstance(found, Mapping) else {self._output: found}
        return {name: _array(each) for name, each in named.items()}

    def _made_up(self, rows: int, size: int) -> Arrays:  # noqa: ARG002  annotations have no size hint
        return made_up(self.annotated, self._dimensions, rows)

    def _sampled(self, rows: int, size: int) -> Arrays:
        found = self._sample(rows, size) if self._sizes else self._sample(rows)
        named = found if isinstance(found, Mapping) else {self._takes[0]: found}
        return {str(name): _array(each) for name, each in named.items()}


def annotations_of(predict: Callable[..., object]) -> tuple[Tensor, ...]:
    """Return the inputs that annotations state: `Annotated[np.ndarray, DATATYPE, SIZES OF A ROW]`. A size is
    a number, or a name where requests choose. Return () where not all inputs are annotated so.

    Raises SignatureError for an annotation that states no tensor.
    """
    takes = inspect.signature(predict).parameters.values()
    try:
        hints = get_type_hints(predict, include_extras=True)
    except (NameError, TypeError):  # an annotation that is for people
        return ()
    found = []
    for each in takes:
        hint = hints.get(each.name)
        if get_origin(hint) is not Annotated:
            return ()
        found.append(_annotated(each.name, get_args(hint)[1:], each.default is not each.empty))
    return tuple(found)


def _annotated(name: str, stated: tuple[object, ...], optional: bool) -> Tensor:
    datatype, *sizes = stated
    sound = all(map(_is_size, sizes))
    if datatype not in DTYPES or not sound:
        got = ", ".join(map(repr, stated))
        raise SignatureError(
            f"predict's {name!r} is annotated with {got}; "
            "expected a datatype and the sizes of a row, such as Annotated[np.ndarray, 'FP32', 3, 'width']"
        )
    dimensions = [size if isinstance(size, int) else str(size) for size in sizes]
    return Tensor(name, str(datatype), ("batch", *dimensions), optional=optional)


def _is_size(side: object) -> bool:
    return side.isidentifier() if isinstance(side, str) else type(side) is int and side > 0


def _array(each: Any) -> Any:
    return each.detach().cpu().numpy() if hasattr(each, "detach") else each
