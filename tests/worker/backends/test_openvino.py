"""Files by OpenVINO: what the file says is what is served, from ONNX and from its own form."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import openvino
import pytest
from onnx import TensorProto, helper

from serving.worker.backends.openvino import OpenVinoBackend, signature_of
from serving.worker.backends.signature import SignatureError, Tensor, batch_max_of
from tests.worker.backends.graphs import WEIGHTS, linear, mean, write_graph
from tests.worker.backends.orders import loaded, order_of


def converted(file: Path) -> Path:
    """Write the ONNX file in OpenVINO's own form."""
    found = file.with_suffix(".xml")
    openvino.save_model(openvino.convert_model(file), found, compress_to_fp16=False)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("own_form", [True, False], ids=["xml", "onnx"])
def test_a_file_says_what_it_takes_and_computes_it(tmp_path: Path, own_form: bool) -> None:
    file = linear(tmp_path / "linear.onnx")
    file = converted(file) if own_form else file
    found = signature_of(str(file), {})
    assert found.inputs == (Tensor("x", "FP32", ("batch", 4)),)
    assert found.outputs == (Tensor("y", "FP32", ("batch", 3)),)
    assert batch_max_of(found) == 64
    model = loaded(order_of("openvino", file, found))
    x = np.random.default_rng(0).random((5, 4), np.float32)
    first = model.predict({"x": x}, {})
    assert np.allclose(np.asarray(first["y"]), x @ WEIGHTS, atol=1e-5)
    again = model.predict({"x": x[:2] * 2}, {})
    assert np.allclose(np.asarray(again["y"]), x[:2] * 2 @ WEIGHTS, atol=1e-5)
    assert np.allclose(np.asarray(first["y"]), x @ WEIGHTS, atol=1e-5), "an answer is kept as it was"


def test_a_free_dimension_needs_a_usual_size(tmp_path: Path) -> None:
    file = mean(tmp_path / "mean.onnx")
    with pytest.raises(SignatureError, match=r"input 'x' has the free dimension 'x\.1'; .* --dim x\.1=128"):
        signature_of(str(file), {})
    found = signature_of(str(file), {"dim.x.1": 7})
    model = loaded(order_of("openvino", file, found, {"dim.x.1": 7}))
    assert getattr(model, "sample")(3, 0)["x"].shape == (3, 7, 8)  # noqa: B009


def test_other_datatypes_come_as_they_are(tmp_path: Path) -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32)
    file = write_graph(
        tmp_path / "cast.onnx", node, (("batch", 2), TensorProto.INT64), (("batch", 2), TensorProto.INT32)
    )
    found = signature_of(str(file), {})
    assert [each.datatype for each in (*found.inputs, *found.outputs)] == ["INT64", "INT32"]
    answer = loaded(order_of("openvino", file, found)).predict({"x": np.array([[1, -2]])}, {})
    assert np.asarray(answer["y"]).tolist() == [[1, -2]]


def test_it_computes_in_fp32_unless_another_precision_is_stated(tmp_path: Path) -> None:
    file = linear(tmp_path / "linear.onnx")
    found = signature_of(str(file), {})
    for precision in ("fp32", "bf16"):
        answer = loaded(order_of("openvino", file, found, {"precision": precision})).predict(
            {"x": np.ones((1, 4), np.float32)}, {}
        )
        assert np.allclose(np.asarray(answer["y"]), WEIGHTS.sum(0), rtol=1e-2)
    with pytest.raises(ValueError, match="option precision is 'int4'; expected fp32, bf16, fp16"):
        loaded(order_of("openvino", file, found, {"precision": "int4"}))


def test_model_yaml_and_file_have_to_agree(tmp_path: Path) -> None:
    file = linear(tmp_path / "linear.onnx")
    order = order_of("openvino", file, signature_of(str(file), {}))
    with pytest.raises(ValueError, match=r"model\.yaml names the output 'z'; .* has y"):
        loaded(replace(order, outputs=(replace(order.outputs[0], name="z"),)))
    with pytest.raises(ValueError, match=r"input 'x' is INT8 in model\.yaml, and FP32 in"):
        loaded(replace(order, inputs=(replace(order.inputs[0], datatype="INT8"),)))
    with pytest.raises(FileNotFoundError, match=r"expected an \.xml or \.onnx file"):
        loaded(replace(order, artifact=None))


def test_what_cannot_be_served_says_so(tmp_path: Path) -> None:
    (tmp_path / "junk.xml").write_text("junk")
    with pytest.raises(SignatureError, match=r"OpenVINO cannot load .*junk\.xml"):
        signature_of(str(tmp_path / "junk.xml"), {})
    file = linear(tmp_path / "linear.onnx")
    order = order_of("openvino", file, signature_of(str(file), {}))
    with pytest.raises(ValueError, match="backend openvino computes on CPUs; got a slice on cuda:0"):
        OpenVinoBackend(1, "cuda:0").load(order)
