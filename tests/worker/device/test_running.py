"""Promises of batches on a device: they overlap, are answered after their copies, and fail alone."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from serving.values.specs import TensorSpec
from serving.worker.device.ports import Lane, Streams, Tensors
from serving.worker.device.running import TensorModel
from serving.worker.device.streams import HostStreams
from serving.worker.frames.arrays import Array, Arrays, TensorError
from tests.worker.device.stand_in import StandIn

Predict = Callable[[Tensors], Mapping[str, Any]]


class Model:
    def __init__(self, predict: Predict) -> None:
        self._predict = predict

    def predict_device(self, inputs: Tensors, parameters: dict[str, Any]) -> Mapping[str, Any]:
        return self._predict(inputs)


def model(
    streams: Streams, predict: Predict = lambda inputs: {"Y": inputs["X"] * 2}, datatypes: str = "FP32 FP32"
) -> TensorModel:
    into, out = datatypes.split()
    specs = (TensorSpec("X", into, (-1, 1)),), (TensorSpec("Y", out, (-1, 1)),)
    return TensorModel(Model(predict), streams, specs, (torch.bfloat16, torch.int16))


def rows(*numbers: float) -> Arrays:
    return {"X": np.array(numbers, np.float32).reshape(-1, 1)}


def numbers(arrays: Arrays) -> list[float]:
    found: Array = arrays["Y"]
    return [float(each) for each in found.reshape(-1)]


def test_an_answer_is_there_only_after_its_copy_out() -> None:
    streams = StandIn()
    flight = model(streams).launch(rows(1, 2), {})
    landed = streams.marks[-1]
    streams.go(Lane.COPY_IN, Lane.COMPUTE)
    assert not landed.passed.is_set()
    streams.go(Lane.COPY_OUT)
    assert landed.passed.is_set()
    assert numbers(flight.land()) == [2, 4]


def test_each_stream_waits_for_the_one_before() -> None:
    streams = StandIn()
    model(streams).launch(rows(1), {})
    streams.go(Lane.COPY_OUT, Lane.COMPUTE)
    assert streams.done == []
    streams.go()
    assert [lane for lane, what in streams.done if what == "mark"] == [
        Lane.COPY_IN,
        Lane.COMPUTE,
        Lane.COPY_OUT,
    ]


def test_the_next_batch_is_copied_in_while_the_first_computes() -> None:
    streams = StandIn()
    doubles = model(streams)
    first = doubles.launch(rows(1), {})
    second = doubles.launch(rows(5), {})
    streams.go(Lane.COPY_IN)  # both, though nothing has been computed
    assert streams.done == [(Lane.COPY_IN, "copy"), (Lane.COPY_IN, "mark")] * 2
    streams.go()
    assert (numbers(second.land()), numbers(first.land())) == ([10], [2])


def test_what_the_host_does_with_the_inputs_later_harms_nothing() -> None:
    streams = StandIn()
    inputs = rows(3)
    flight = model(streams).launch(inputs, {})
    inputs["X"][:] = 0
    streams.go()
    assert numbers(flight.land()) == [6]


def test_a_batch_whose_model_raises_leaves_nothing_under_way_and_the_other_is_answered() -> None:
    streams = StandIn()

    def fails_on_odd(inputs: Tensors) -> Mapping[str, Any]:
        if inputs["X"][0] % 2:
            raise ValueError("odd")
        return {"Y": inputs["X"]}

    choosy = model(streams, fails_on_odd)
    good = choosy.launch(rows(2), {})
    with pytest.raises(ValueError, match="odd"):
        choosy.launch(rows(1), {})
    assert streams.settled == 1
    assert numbers(good.land()) == [2]
    after = choosy.launch(rows(4), {})
    streams.go()
    assert numbers(after.land()) == [4]


def test_what_the_device_meets_is_raised_where_the_batch_lands() -> None:
    streams = StandIn()
    flight = model(streams).launch(rows(1), {})
    streams.marks[-1].fault = "an illegal memory access was encountered"
    streams.go()
    with pytest.raises(RuntimeError, match="illegal memory access"):
        flight.land()


def test_bfloat16_is_a_type_of_its_own_on_the_device_and_bits_on_the_host() -> None:
    seen: list[torch.dtype] = []

    def doubles(inputs: Tensors) -> Mapping[str, Any]:
        seen.append(inputs["X"].dtype)
        return {"Y": inputs["X"] * 2}

    bits = torch.tensor([[1.5]], dtype=torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    answer = model(HostStreams(torch), doubles, "BF16 BF16").predict({"X": bits.copy()}, {})
    expected = torch.tensor([[3.0]], dtype=torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert seen == [torch.bfloat16]
    assert np.array_equal(np.asarray(answer["Y"]), expected)
    wide = model(HostStreams(torch), doubles, "BF16 FP32").predict({"X": bits.copy()}, {})
    assert np.array_equal(np.asarray(wide["Y"]), np.array([[3.0]], np.float32))


def test_whole_numbers_stay_what_they_are() -> None:
    minus = np.array([[-2]], np.int16)
    answer = model(HostStreams(torch), datatypes="INT16 INT16").predict({"X": minus}, {})
    assert np.array_equal(np.asarray(answer["Y"]), np.array([[-4]], np.int16))


@pytest.mark.parametrize(
    ("predict", "said"),
    [
        (lambda inputs: inputs["X"], "predict_device returned Tensor, expected a dict of tensors"),
        (lambda inputs: {"Y": inputs["X"].numpy()}, "output 'Y' is a ndarray, expected a torch.Tensor"),
    ],
)
def test_a_model_that_gives_no_tensors_is_told_so(predict: Predict, said: str) -> None:
    with pytest.raises(TensorError, match=said):
        model(HostStreams(torch), predict).predict(rows(1), {})


def test_texts_are_no_tensors() -> None:
    with pytest.raises(TensorError, match="input 'X' is BYTES, which no tensor holds"):
        model(HostStreams(torch)).predict({"X": np.array([[b"a"]], object)}, {})
