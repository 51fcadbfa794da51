"""Fitted estimators that joblib or pickle wrote: of scikit-learn, and of what has its interface, as XGBoost
and LightGBM do.

The variant's artifact is the file. Loading it runs code of the file, as pickle does, so it must be one that
the operator trusts. scikit-learn is imported with the first model that needs it.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from serving.values.specs import ParameterValue
from serving.worker.backends.checking import artifact_of
from serving.worker.backends.contract import LoadedModel
from serving.worker.backends.signature import Signature, SignatureError, Tensor, made_up, tensors_of
from serving.worker.frames.arrays import Array, Arrays
from serving.worker.frames.orders import LoadOrder

MISSING: Final = "scikit-learn is not installed here; try `pip install scikit-learn`"
FEATURES, TEXT = "x", "text"
"""The input: numbers, or texts where the first step counts words."""
LABEL, PROBABILITIES, OUTPUT = "label", "probabilities", "output"
ROWS: Final = (1, 2)
"""Of the runs that show what an estimator answers."""
ROWS_MAX: Final = 256
"""The most rows of a batch: estimators take many at a time for little more than one."""
OWN_RULE: Final = ("SVC", "NuSVC")
"""Classifiers whose label is not always the most probable one, as scikit-learn's guide says of them."""
_SAMPLE: Final = b"a text to measure with, some ten words long, no more"


class Estimator:
    """A fitted estimator. It computes the outputs that model.yaml lists, and no others."""

    def __init__(self, found: Any, outputs: Collection[str]) -> None:
        self._found = found
        self._outputs = outputs
        self._classes = _classes(found)
        self._width = _width(found)

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:  # noqa: ARG002  estimators take none
        """Return the outputs by name."""
        if self._width:
            rows: Any = inputs[FEATURES]
        else:
            rows = [each.decode("utf-8", "replace") for each in inputs[TEXT][:, 0]]
        if self._classes is None:
            return {OUTPUT: _answered(self._found, rows)}
        scores = self._found.predict_proba(rows)
        found: dict[str, object] = {PROBABILITIES: np.asarray(scores, np.float32)}
        if LABEL in self._outputs:
            found[LABEL] = self._labels(rows, scores)
        return {name: found[name] for name in self._outputs}

    def sample(self, rows: int, size: int) -> Arrays:  # noqa: ARG002  no size hint of such a model is known
        """Return made-up rows."""
        if self._width:
            return made_up(_inputs(self._width), {}, rows)
        return {TEXT: np.full((rows, 1), _SAMPLE, object)}

    def _labels(self, rows: Any, scores: Array) -> Array:
        classes = self._classes
        assert classes is not None  # noqa: S101  only classifiers have labels
        if _last(self._found) in OWN_RULE:
            return _plain(np.asarray(self._found.predict(rows)))
        found: Array = classes[np.argmax(scores, axis=1)]
        return found


class ScikitBackend:
    """It executes no code of a folder, so there is nothing to forget."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def prepare(self, order: LoadOrder) -> None:  # noqa: ARG002
        """Import scikit-learn. Raises ModuleNotFoundError if it is not installed."""
        _import_joblib()

    def settle(self) -> None: ...

    def keep(self, orders: Collection[LoadOrder]) -> None: ...

    def load(self, order: LoadOrder) -> LoadedModel:
        """Load a file. Raises FileNotFoundError if the variant names none, SignatureError if the file holds
        no estimator, and ValueError if model.yaml lists an output that the estimator does not have."""
        found = _loaded(artifact_of(order, "a .joblib or .pkl file"))
        with suppress(Exception):  # an estimator may refuse: then it computes with the threads that it has
            names = [name for name in found.get_params() if name.rpartition("__")[2] == "n_jobs"]
            found.set_params(**dict.fromkeys(names, self._threads))
        listed = [each.name for each in order.outputs]
        known = (OUTPUT,) if _classes(found) is None else (LABEL, PROBABILITIES)
        if unknown := [name for name in listed if name not in known]:
            raise ValueError(
                f"model.yaml lists the output {unknown[0]!r}; the file has {' and '.join(known)}"
            )
        return Estimator(found, listed)


def signature_of(artifact: str, options: Mapping[str, ParameterValue]) -> Signature:  # noqa: ARG001  none of them is of a size here
    """Return what an estimator takes and answers, found by runs with one row and with two.

    Raises SignatureError if the file holds none, or one that takes columns by name.
    """
    found = _loaded(Path(artifact))
    classes = _classes(found)
    model = Estimator(found, (OUTPUT,) if classes is None else (LABEL, PROBABILITIES))
    inputs = [model.sample(rows, 0) for rows in ROWS]
    try:
        outputs = [model.predict(each, {}) for each in inputs]
    except ValueError as error:
        raise SignatureError(
            f"it does not take an array of numbers ({error}); a .py file with predict and sample can make "
            "what it takes, such as a table with named columns"
        ) from error
    answers = tensors_of(outputs, ROWS)
    if classes is not None:
        names = tuple(_text(each) for each in classes)
        answers = tuple(
            Tensor(each.name, each.datatype, each.dimensions, names) if each.name == PROBABILITIES else each
            for each in answers
        )
    width = _width(found)
    takes = _inputs(width) if width else [Tensor(TEXT, "BYTES", ("batch", 1))]
    return Signature(tuple(takes), answers, rows_max=ROWS_MAX)


def _inputs(width: int) -> list[Tensor]:
    return [Tensor(FEATURES, "FP64", ("batch", width))]


def _import_joblib() -> Any:
    try:
        import joblib
        import sklearn  # noqa: F401  what the file's classes are found in
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    return joblib


def _loaded(file: Path) -> Any:
    joblib = _import_joblib()
    try:
        found = joblib.load(file)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{file.name} needs {error.name}, which is not installed here") from error
    except FileNotFoundError:
        raise
    except Exception as error:  # pickle raises whatever the bytes lead to
        raise SignatureError(f"{file} is no file of joblib or pickle: {error}") from error
    if not (callable(getattr(found, "predict", None)) or callable(getattr(found, "transform", None))):
        raise SignatureError(
            f"{file} holds an object of {type(found).__name__}; "
            "expected an estimator with predict or transform"
        )
    _width(found)
    return found


def _width(found: Any) -> int:
    """Return how many numbers a row has; 0 where a row is a text. SignatureError if it is not fitted."""
    width = getattr(found, "n_features_in_", None)
    if isinstance(width, int | np.integer):
        return int(width)
    first = found.steps[0][1] if getattr(found, "steps", None) else found
    if hasattr(first, "build_analyzer"):  # CountVectorizer and its like
        return 0
    raise SignatureError(
        f"{type(found).__name__} does not say how many features it takes; expected a fitted one"
    )


def _classes(found: Any) -> Array | None:
    """Return the classes as labels of the protocol; None if it is no classifier with probabilities."""
    classes = getattr(found, "classes_", None)
    if classes is None or isinstance(classes, list) or not hasattr(found, "predict_proba"):
        return None
    return _plain(np.asarray(classes))


def _answered(found: Any, rows: Any) -> Array:
    run = found.predict if callable(getattr(found, "predict", None)) else found.transform
    answer = run(rows)
    return _plain(np.asarray(answer.todense() if hasattr(answer, "todense") else answer))


def _plain(array: Array) -> Array:
    """Return texts as the bytes that the protocol has, and other values as they are."""
    if array.dtype.kind not in "UO":
        return array
    flat = [str(each).encode() for each in array.ravel()]
    texts = np.empty(len(flat), object)
    texts[:] = flat
    return texts.reshape(array.shape)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _last(found: Any) -> str:
    """Return the class of the last step, which classifies."""
    last = found.steps[-1][1] if getattr(found, "steps", None) else found
    return type(last).__name__
