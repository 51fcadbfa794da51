"""`--require`: comparisons of figures that have to hold."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from router.settings.values.problems import unknown_name
from router.verbs.simulate.runs import Result
from router.verbs.simulate.traffic import SimulateRequestError
from serving.simulation.results.series import RunFigures

_FORM = re.compile(r"\s*(?:(?P<model>.+)\.)?(?P<figure>\w+)\s*(?P<sign><=|>=|<|>)\s*(?P<bound>[^\s<>=]+)\s*$")
_SIGNS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
)
_FIGURES: Mapping[str, Callable[[RunFigures], float]] = MappingProxyType(
    {
        "attainment": lambda figures: figures.attainment,
        "goodput": lambda figures: figures.goodput,
        "p50_ms": lambda figures: figures.p50_ms,
        "p99_ms": lambda figures: figures.p99_ms,
        "busy": lambda figures: figures.busy,
    }
)
CAPACITY, ACCURACY = "capacity", "accuracy"
_KNOWN = (*_FIGURES, ACCURACY, CAPACITY)


@dataclass(frozen=True, slots=True)
class Requirement:
    """`text` as it was asked for; `model` "" means all requests together."""

    text: str
    model: str
    figure: str
    sign: str
    bound: float

    def got(self, result: Result) -> float:
        """Return the figure that is compared; nan where there is none."""
        if self.figure == CAPACITY:
            return result.capacity.rate if result.capacity else float("nan")
        if self.figure == ACCURACY:
            return result.choices[self.model or next(iter(result.choices))].accuracy
        return _FIGURES[self.figure](result.figures[self.model] if self.model else result.total)

    def holds(self, result: Result) -> bool:
        """Return whether it does; never for a figure that does not exist, as a latency of no answers."""
        return _SIGNS[self.sign](self.got(result), self.bound)


def read_requirements(texts: Sequence[str], models: Sequence[str], capacity: bool) -> list[Requirement]:
    """Return those of all --require options; UsageError for one that is none."""
    return [_read(part, models, capacity) for text in texts for part in text.split(",")]


def _read(text: str, models: Sequence[str], capacity: bool) -> Requirement:
    match = _FORM.match(text)
    if match is None:
        raise SimulateRequestError(f"--require: expected something like 'attainment>=0.99', got {text!r}")
    model, figure = match["model"] or "", match["figure"]
    if figure not in _KNOWN:
        raise SimulateRequestError(f"--require: {unknown_name('unknown figure', figure, _KNOWN)}")
    if model and model not in models:
        raise SimulateRequestError(f"--require: {unknown_name('unknown model', model, models)}")
    if figure == CAPACITY and (model or not capacity):
        raise SimulateRequestError("--require: capacity is that of all models together, and needs --capacity")
    if figure == ACCURACY and not model and len(models) > 1:
        raise SimulateRequestError(f"--require: accuracy is that of one model, such as {models[0]}.accuracy")
    percent = match["bound"].endswith("%")
    try:
        bound = float(match["bound"].rstrip("%")) / (100 if percent else 1)
    except ValueError:
        raise SimulateRequestError(f"--require: {match['bound']!r} in {text!r} is no number") from None
    if figure in ("attainment", "busy", ACCURACY) and not 0 <= bound <= 1:
        raise SimulateRequestError(
            f"--require: {figure} is a share from 0 to 1 (or 99%), got {match['bound']}"
        )
    return Requirement(text.strip(), model, figure, match["sign"], bound)
