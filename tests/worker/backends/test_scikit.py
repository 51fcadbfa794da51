"""Fitted estimators from joblib files: what they say they take is what they answer."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from serving.worker.backends.scikit import ROWS_MAX, ScikitBackend, signature_of
from serving.worker.backends.signature import Signature, SignatureError, batch_max_of
from tests.worker.backends.orders import loaded, order_of

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 3))
NUMBERS = (X[:, 0] > 0).astype(np.int64)
NAMES = np.where(X[:, 0] > 0, "up", "down")
TEXTS = ["the promise is kept", "the promise is broken"] * 10


def written(folder: Path, found: Any) -> Path:
    file = folder / "model.joblib"
    joblib.dump(found, file)
    return file


def told(signature: Signature) -> list[tuple[str, str, int]]:
    """Names, datatypes and ranks, inputs first."""
    tensors = (*signature.inputs, *signature.outputs)
    return [(each.name, each.datatype, len(each.dimensions)) for each in tensors]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # newer releases would have SVC calibrated
@pytest.mark.parametrize(
    ("estimator", "answers", "label"),
    [
        (LogisticRegression(), NUMBERS, "INT64"),
        (LogisticRegression(), NUMBERS > 0, "BOOL"),
        (RandomForestClassifier(5, random_state=1), NAMES, "BYTES"),
        (make_pipeline(StandardScaler(), LogisticRegression()), NAMES, "BYTES"),
        (SVC(probability=True, random_state=1), NAMES, "BYTES"),
    ],
    ids=["ints", "bools", "texts", "pipeline", "svc"],
)
def test_a_classifier_answers_label_and_probabilities(
    tmp_path: Path, estimator: Any, answers: Any, label: str
) -> None:
    estimator.fit(X, answers)
    file = written(tmp_path, estimator)
    found = signature_of(str(file), {})
    assert told(found) == [("x", "FP64", 2), ("label", label, 1), ("probabilities", "FP32", 2)]
    labels = next(each.labels for each in found.outputs if each.name == "probabilities")
    assert labels == tuple(map(str, estimator.classes_))
    assert batch_max_of(found) == ROWS_MAX
    answer = loaded(order_of("sklearn", file, found)).predict({"x": X}, {})
    expected = [str(each).encode() if label == "BYTES" else each for each in estimator.predict(X)]
    assert np.asarray(answer["label"]).tolist() == expected
    assert np.allclose(np.asarray(answer["probabilities"]), estimator.predict_proba(X), atol=1e-6)


def test_texts_go_to_a_pipeline_that_counts_words(tmp_path: Path) -> None:
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, ["kept", "broken"] * 10)
    file = written(tmp_path, pipeline)
    found = signature_of(str(file), {})
    assert told(found)[0] == ("text", "BYTES", 2)
    texts = np.array([[b"kept"], [b"broken"], [b"\xff kept"]], object)
    answer = loaded(order_of("sklearn", file, found)).predict({"text": texts}, {})
    assert np.asarray(answer["label"]).tolist() == [b"kept", b"broken", b"kept"]


@pytest.mark.parametrize(
    ("estimator", "rank"),
    [(LinearRegression().fit(X, X[:, 0]), 1), (LinearRegression().fit(X, X), 2), (StandardScaler().fit(X), 2),
     (KMeans(2, n_init=1, random_state=1).fit(X), 1), (SVC().fit(X, NUMBERS), 1)],
    ids=["regressor", "several", "transformer", "clusters", "no probabilities"],
)  # fmt: skip
def test_all_others_have_one_output(tmp_path: Path, estimator: Any, rank: int) -> None:
    file = written(tmp_path, estimator)
    found = signature_of(str(file), {})
    ((name, _, ranked),) = told(found)[1:]
    assert (name, ranked) == ("output", rank)
    run = getattr(estimator, "predict", None) or estimator.transform
    answer = loaded(order_of("sklearn", file, found)).predict({"x": X}, {})
    assert np.allclose(np.asarray(answer["output"]), run(X))


def test_it_computes_with_the_threads_of_its_slice(tmp_path: Path) -> None:
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(5, n_jobs=-1)).fit(X, NUMBERS)
    file = written(tmp_path, forest)
    model: Any = ScikitBackend(3).load(order_of("sklearn", file, signature_of(str(file), {})))
    assert model._found.steps[-1][1].n_jobs == 3


def test_only_outputs_that_are_listed_are_computed(tmp_path: Path) -> None:
    file = written(tmp_path, LogisticRegression().fit(X, NUMBERS))
    order = order_of("sklearn", file, signature_of(str(file), {}))
    fewer = tuple(each for each in order.outputs if each.name == "probabilities")
    assert set(loaded(replace(order, outputs=fewer)).predict({"x": X}, {})) == {"probabilities"}
    other = replace(order.outputs[0], name="score")
    with pytest.raises(ValueError, match=r"model\.yaml lists the output 'score'; the file has label"):
        loaded(replace(order, outputs=(other,)))
    with pytest.raises(FileNotFoundError, match=r"expected a \.joblib or \.pkl file"):
        loaded(replace(order, artifact=None))


def unframed(rows: Any) -> Any:
    raise ValueError("Specifying the columns using strings is only supported for dataframes.")


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"a": 1}, "holds an object of dict; expected an estimator with predict or transform"),
        (LogisticRegression(), "does not say how many features it takes; expected a fitted one"),
        (
            make_pipeline(FunctionTransformer(unframed), LinearRegression()),
            "it does not take an array of numbers .* a .py file with predict and sample can make",
        ),
    ],
    ids=["no estimator", "not fitted", "columns by name"],
)
def test_what_cannot_be_served_says_so(tmp_path: Path, held: Any, message: str) -> None:
    if hasattr(held, "steps"):
        held.steps[0][1].n_features_in_ = 3
    with pytest.raises(SignatureError, match=message):
        signature_of(str(written(tmp_path, held)), {})


def test_a_broken_file_and_a_missing_package_are_named(tmp_path: Path) -> None:
    (tmp_path / "junk.pkl").write_bytes(b"junk")
    with pytest.raises(SignatureError, match=r"is no file of joblib or pickle"):
        signature_of(str(tmp_path / "junk.pkl"), {})
    (tmp_path / "other.pkl").write_bytes(b"cno_such_package\nThing\n.")
    with pytest.raises(
        ModuleNotFoundError, match=r"other\.pkl needs no_such_package, which is not installed"
    ):
        signature_of(str(tmp_path / "other.pkl"), {})


def test_plain_pickle_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(LinearRegression().fit(X, X[:, 0])))
    assert told(signature_of(str(tmp_path / "model.pkl"), {}))[0] == ("x", "FP64", 2)
