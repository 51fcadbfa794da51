"""What classifiers answer is counted: the class, the confidence, and no tensor."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from router.observing.telemetry.counting.answers import (
    CLASSES,
    CLASSES_MAX,
    CONFIDENCES,
    SAMPLED_PER_S,
    AnswerCounts,
    best,
    counts_for,
    step_of,
)
from serving.ports import Reply
from serving.values.applications import CLASSIFY, Application
from serving.values.specs import Labels, ModelSpec, TensorSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED
from tests.builders import model_spec

S = 1_000_000


def tensor(values: Any, dtype: Any = np.float32) -> Tensor:
    array = np.asarray(values, dtype)
    names = {np.float16: "FP16", np.float32: "FP32", np.float64: "FP64", np.int64: "INT64"}
    return Tensor("y", names[dtype], array.shape, array.tobytes())


def answered(*rows: Any) -> Reply:
    reply = Reply(COMPLETED)
    reply.outputs = [tensor(rows)]
    return reply


def classifier(shape: tuple[int, ...] = (-1, 3), datatype: str = "FP32", **more: Any) -> ModelSpec:
    output = TensorSpec("y", datatype, shape, labels=Labels(("a", "b", "c")))
    return replace(model_spec("m"), outputs=(output,), **more)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_class_is_the_largest_and_a_distribution_states_its_confidence(dtype: Any) -> None:
    found = best(tensor([[0.1, 0.7, 0.2], [1, 0, 0]], dtype), 3)
    assert found is not None
    assert found[0] == 1
    assert found[1] == pytest.approx(0.7, abs=0.01)


def test_of_other_values_softmax_is_the_confidence() -> None:
    scores = np.array([2.0, -1.0, 4.0])
    share = (np.exp(scores) / np.exp(scores).sum())[2]
    found = best(tensor([scores]), 3)
    assert found is not None
    assert found[0] == 2
    assert found[1] == pytest.approx(share)
    assert best(tensor([[1e30, 0.0, -1e30]]), 3) == (0, 1.0)


@pytest.mark.parametrize("values", [[[np.nan, 1, 2]], [[np.inf, 1, 2]], [[-np.inf] * 3], [[1, 2]]])
def test_rows_without_a_finite_largest_value_are_passed_over(values: Any) -> None:
    assert best(tensor(values), 3) is None


def test_numbers_of_other_kinds_are_passed_over() -> None:
    assert best(tensor([[1, 2, 3]], np.int64), 3) is None


def test_only_models_that_say_so_are_classifiers() -> None:
    plain = replace(classifier(), outputs=(TensorSpec("y", "FP32", (-1, 3)),))
    assert counts_for(plain) is None
    for says_so in (
        classifier(),
        replace(plain, accuracy_metric="accuracy"),
        replace(plain, application=Application(CLASSIFY, ("x",), "y", "", None, (), 0, ())),
    ):
        found = counts_for(says_so)
        assert found is not None
        assert (found.output, found.width) == (0, 3)
    for other in (classifier((-1, -1)), classifier((-1,)), classifier((-1, 1)), classifier(datatype="INT64")):
        assert counts_for(other) is None


def test_answers_are_counted_by_class_and_by_tenth() -> None:
    counts = AnswerCounts(0, 3)
    for row in ([0.95, 0.05, 0], [0.85, 0.15, 0], [0, 0.06, 0.94]):
        counts.take(answered(row), 5 * S)
    assert counts.drain() == {CLASSES: {"0": 2, "2": 1}, CONFIDENCES: {"0.9": 2, "0.8": 1}}
    assert counts.drain() == {CLASSES: {}, CONFIDENCES: {}}


def test_a_few_a_second_are_looked_at() -> None:
    counts = AnswerCounts(0, 3)
    for second in (1, 2):
        for _ in range(1000):
            counts.take(answered([1, 0, 0]), second * S)
    assert sum(counts.drain()[CLASSES].values()) == 2 * SAMPLED_PER_S


def test_many_classes_share_counts() -> None:
    counts = AnswerCounts(0, 10 * CLASSES_MAX)
    for number in range(0, 10 * CLASSES_MAX, 50):
        row = np.zeros(10 * CLASSES_MAX)
        row[number] = 1
        counts.take(answered(row), number * S)
    assert len(counts.drain()[CLASSES]) <= CLASSES_MAX


def test_an_answer_without_that_output_is_passed_over() -> None:
    counts = AnswerCounts(1, 3)
    counts.take(answered([1, 0, 0]), S)
    assert counts.drain()[CLASSES] == {}


def test_steps_are_named_by_their_lower_end() -> None:
    assert [step_of(each) for each in (0, 0.099, 0.1, 0.95, 1.0)] == ["0.0", "0.0", "0.1", "0.9", "0.9"]
