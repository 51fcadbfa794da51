"""ONNX files by ONNX Runtime: what the file says is what is served."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving.worker.backends.onnx import OnnxBackend, signature_of
from serving.worker.backends.signature import SignatureError, Tensor, batch_max_of
from serving.worker.frames.orders import MeasureOrder
from serving.worker.process.garbage import Garbage
from serving.worker.process.memory import Memory
from serving.worker.process.yardstick import Yardstick
from serving.worker.replicas.replicas import load_replica
from tests.worker.backends.graphs import WEIGHTS, echo, linear, mean, write_graph
from tests.worker.backends.orders import loaded, order_of


def test_a_file_says_what_it_takes_and_computes_it(tmp_path: Path) -> None:
    file = linear(tmp_path / "linear.onnx")
    found = signature_of(str(file), {})
    assert found.inputs == (Tensor("x", "FP32", ("batch", 4)),)
    assert found.outputs == (Tensor("y", "FP32", ("batch", 3)),)
    x = np.random.default_rng(0).random((5, 4), np.float32)
    answer = loaded(order_of("onnx", file, found)).predict({"x": x}, {})
    assert np.allclose(np.asarray(answer["y"]), x @ WEIGHTS)


@pytest.mark.slow
def test_a_worker_measures_it_with_rows_that_it_makes(tmp_path: Path) -> None:
    file = mean(tmp_path / "mean.onnx")
    sizes = {"dim.seq": 7}
    order = order_of("onnx", file, signature_of(str(file), sizes), sizes)
    replica, _ = load_replica(OnnxBackend(1), order, Memory(), Garbage())
    found = replica.measure(MeasureOrder(1, 3, 0, 2, 10**9), Memory(), Yardstick())
    assert (found.rows, len(found.latencies_us)) == (3, 2)


def test_a_free_dimension_needs_a_usual_size(tmp_path: Path) -> None:
    with pytest.raises(SignatureError, match=r"input 'x' has the free dimension 'seq'; .* --dim seq=128"):
        signature_of(str(mean(tmp_path / "mean.onnx")), {})


@pytest.mark.parametrize(("first", "batch_max"), [("batch", 64), (1, 1), (3, 0)])
def test_the_first_dimension_says_whether_there_are_batches(
    tmp_path: Path, first: int | str, batch_max: int
) -> None:
    file = linear(tmp_path / "linear.onnx", first)
    found = signature_of(str(file), {})
    assert batch_max_of(found) == batch_max
    x = np.ones((1, 4) if batch_max else (1, 3, 4), np.float32)
    assert np.asarray(loaded(order_of("onnx", file, found)).predict({"x": x}, {})["y"]).shape[-1] == 3


def test_texts_are_bytes_on_both_sides(tmp_path: Path) -> None:
    file = echo(tmp_path / "echo.onnx")
    found = signature_of(str(file), {})
    assert found.inputs[0].datatype == "BYTES"
    texts = np.array([["größer".encode()], [b""]], object)
    answer = loaded(order_of("onnx", file, found)).predict({"x": texts}, {})
    assert np.asarray(answer["y"]).tolist() == texts.tolist()


def test_model_yaml_and_file_have_to_agree(tmp_path: Path) -> None:
    file = linear(tmp_path / "linear.onnx")
    order = order_of("onnx", file, signature_of(str(file), {}))
    for changed, said in (
        (replace(order.inputs[0], name="z"), "names the input 'z'; .* has x"),
        (replace(order.inputs[0], datatype="INT64"), r"is INT64 in model\.yaml, and FP32"),
    ):
        with pytest.raises(ValueError, match=said):
            OnnxBackend(1).load(replace(order, inputs=(changed,)))
    with pytest.raises(FileNotFoundError, match=r"expected an \.onnx file"):
        OnnxBackend(1).load(replace(order, artifact=None))


def test_a_type_without_a_datatype_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)
    kinds = (("batch", 2), TensorProto.FLOAT), (("batch", 2), TensorProto.BFLOAT16)
    with pytest.raises(SignatureError, match=r"'y' is a tensor\(bfloat16\)"):
        signature_of(str(write_graph(tmp_path / "cast.onnx", node, *kinds)), {})


def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "junk.onnx").write_text("junk")
    with pytest.raises(SignatureError, match=r"ONNX Runtime cannot load .*junk\.onnx"):
        signature_of(str(tmp_path / "junk.onnx"), {})
    file = linear(tmp_path / "linear.onnx")
    order = order_of("onnx", file, signature_of(str(file), {}))
    with pytest.raises(ValueError, match=r"has no CUDAExecutionProvider here; it has .*CPUExecutionProvider"):
        OnnxBackend(1, "cuda:0").load(order)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModuleNotFoundError, match=r"try `pip install onnxruntime`"):
        OnnxBackend(1).prepare(order)
