"""Promises of captured models: a graph a shape, made before it serves, and the same answers as without."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from serving.worker.device.compiling import CapturedPredict, compiled
from serving.worker.device.ports import Tensors


class Recorded:
    """A `Capture` that does the work again at each replay, into the memory of the first time."""

    def __init__(self) -> None:
        self.replays = 0

    def capture(self, work: Callable[[], Tensors]) -> tuple[Callable[[], object], Tensors]:
        outputs = work()

        def replay() -> None:
            self.replays += 1
            for name, tensor in work().items():
                outputs[name].copy_(tensor)

        return replay, outputs


def double(inputs: Tensors, parameters: dict[str, Any]) -> Tensors:
    return {"Y": inputs["X"] * parameters.get("by", 2)}


def rows(*numbers: float) -> Tensors:
    return {"X": torch.tensor(numbers).reshape(-1, 1)}


def test_each_shape_is_captured_once_and_replayed_with_the_inputs_of_the_moment() -> None:
    capture = Recorded()
    model = CapturedPredict(double, capture)
    first = model(rows(1, 2), {})["Y"]
    second = model(rows(5, 6), {})["Y"]
    assert first.tolist() == [[2], [4]]  # a later batch does not write where an earlier one answers
    assert second.tolist() == [[10], [12]]
    model(rows(1), {})
    assert (model.count, capture.replays) == (2, 3)


def test_once_sealed_an_unknown_shape_runs_without_a_graph() -> None:
    capture = Recorded()
    model = CapturedPredict(double, capture)
    model(rows(1), {})
    model.seal()
    assert model(rows(1, 2, 3), {})["Y"].tolist() == [[2], [4], [6]]
    assert model(rows(4), {})["Y"].tolist() == [[8]]
    assert (model.count, capture.replays) == (1, 2)


def test_parameters_go_past_the_graphs() -> None:
    model = CapturedPredict(double, Recorded())
    assert model(rows(3), {"by": 10})["Y"].tolist() == [[30]]
    assert model.count == 0


def test_a_model_that_cannot_be_captured_says_why() -> None:
    def cannot(inputs: Tensors, parameters: dict[str, Any]) -> Tensors:
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        CapturedPredict(cannot, Recorded())(rows(1), {})


@pytest.mark.slow
def test_torch_compiles_for_as_many_sizes_as_are_warmed() -> None:
    model = compiled(torch, double, 100, backend="eager")
    for count in range(1, 20):
        assert model(rows(*range(count)), {})["Y"].shape == (count, 1)
