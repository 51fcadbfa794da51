"""The line that the start prints can be pasted, and its request is one that the model takes."""

from pathlib import Path

import pytest

from router.http.example import LINE_CHARS, example_body, example_curl
from router.settings import load_model
from router.tensors.rest import decode
from serving.values.specs import Limits, ModelSpec, ServedModel, TensorSpec
from tests.router.fakes import IDENTITY, SIMPLE, served

URL = "http://127.0.0.1:8000"
MODELS = sorted(path.parent for path in (Path(__file__).parents[3] / "models").glob("*/model.yaml"))


def one(*shape: int, datatype: str = "FP32", name: str = "m") -> ModelSpec:
    return served(name, (TensorSpec("X", datatype, (-1, *shape)),), (TensorSpec("Y", "FP32", (-1, 1)),)).spec


def test_a_small_request_is_written_out() -> None:
    assert example_curl(URL, [one(3), one(150_528)]) == (
        f"curl -s {URL}/v2/models/m/infer -d "
        '\'{"inputs":[{"name":"X","shape":[1,3],"datatype":"FP32","data":[0,1,2]}]}\''
    )


@pytest.mark.parametrize(
    "spec", [one(3, 224, 224), one(64), one(2, name="n" * 64), IDENTITY.spec, SIMPLE.spec]
)
def test_the_line_can_be_pasted_whatever_the_model(spec: ModelSpec) -> None:
    line = example_curl(URL, [spec])
    assert len(line) <= LINE_CHARS
    assert f"{URL}/v2/models/{spec.name}" in line


def test_a_large_request_is_asked_of_the_gateway() -> None:
    expected = f"m={URL}/v2/models/m; curl -s $m/example | curl -s $m/infer -d @-"
    assert example_curl(URL, [one(3, 224, 224)]) == expected


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_the_request_is_one_that_the_model_takes(folder: Path) -> None:
    spec = load_model(folder)
    model = ServedModel(spec, spec.slo_us, (spec.default_variant,), ("cpu0",))
    decoded = decode(example_body(spec), None, model, Limits())
    assert [tensor.name for tensor in decoded.call.inputs] == [tensor.name for tensor in spec.inputs]
    assert decoded.call.rows == 1


@pytest.mark.parametrize("datatype", ["BOOL", "BYTES", "ANY", "UINT8", "FP16"])
def test_every_datatype_has_its_elements(datatype: str) -> None:
    spec = one(12, datatype=datatype)
    model = ServedModel(spec, spec.slo_us, (spec.default_variant,), ("cpu0",))
    assert decode(example_body(spec), None, model, Limits()).call.inputs[0].shape == (1, 12)
