"""Python models in their short forms, and models of several files."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.values.specs import TensorSpec
from serving.worker.backends.python import PythonBackend, signature_of
from serving.worker.backends.signature import SignatureError, Tensor
from serving.worker.frames.orders import LoadOrder

HEAD = "import numpy as np\n"
SAMPLE = "def sample(rows): return {'x': np.ones((rows, 4), np.float32)}\n"
FORMS = {
    "inputs by name": "def predict(x): return {'y': x * 2}\n" + SAMPLE,
    "one mapping": "def predict(inputs): return {'y': inputs['x'] * 2}\n" + SAMPLE,
    "with parameters": "def predict(inputs, parameters): return {'y': inputs['x'] * 2}\n" + SAMPLE,
    "one array": "def predict(x): return x * 2\ndef sample(rows): return np.ones((rows, 4), np.float32)\n",
    "a tensor": "import torch\ndef predict(x): return torch.from_numpy(x).requires_grad_() * 2\n" + SAMPLE,
    "a class": "class Model:\n    def predict(self, x): return x * 2\n    def sample(self, rows, size):\n"
    "        return {'x': np.ones((rows, 4), np.float32)}\n",
}


def order(file: Path, revision: str = "", output: str = "y") -> LoadOrder:
    given, answered = TensorSpec("x", "FP32", (-1, 4)), TensorSpec(output, "FP32", (-1, 4))
    return LoadOrder(1, "m", file.parent, "v", None, (), (given,), (answered,), (0, 0), revision, code=file)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_a_model(tmp_path: Path, form: str) -> None:
    file = tmp_path / "doubled.py"
    file.write_text(HEAD + FORMS[form])
    found = signature_of(str(file), {})
    (output,) = found.outputs
    assert found.inputs == (Tensor("x", "FP32", ("batch", 4)),)
    assert output.dimensions == ("batch", 4)
    model = PythonBackend(1).load(order(file, output=output.name))
    answer = model.predict({"x": np.full((3, 4), 5, np.float32)}, {})
    assert np.array_equal(np.asarray(answer[output.name]), np.full((3, 4), 10))


ANNOTATED = """\
from typing import Annotated
import numpy as np
SLO_MS = 80
BATCH_MAX = 16
def predict(x: Annotated[np.ndarray, "FP32", 4], ids: Annotated[np.ndarray, "INT64", "tokens"]):
    return x * 2 + ids.sum(1, keepdims=True).astype("f4")
"""


def test_annotations_and_constants_say_what_a_sample_would(tmp_path: Path) -> None:
    file = tmp_path / "annotated.py"
    file.write_text(ANNOTATED)
    found = signature_of(str(file), {"dim.tokens": 3})
    assert found.inputs == (
        Tensor("x", "FP32", ("batch", 4)), Tensor("ids", "INT64", ("batch", "tokens"))
    )  # fmt: skip
    assert found.outputs == (Tensor("output", "FP32", ("batch", 4)),)
    assert (found.slo_ms, found.rows_max) == (80, 16)
    named = replace(order(file), options=(("dim.tokens", 3),))
    sample = getattr(PythonBackend(1).load(named), "sample")(5, 0)  # noqa: B009  not all models have one
    assert {name: array.shape for name, array in sample.items()} == {"x": (5, 4), "ids": (5, 3)}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"FP32", 4', '"FP33", 4', r"predict's 'x' is annotated with 'FP33', 4; expected a datatype"),
        ('"FP32", 4', '"FP32", 0', r"'x' is annotated with 'FP32', 0"),
        ("", "", "input 'ids' has the free dimension 'tokens'"),
        ("SLO_MS = 80", "SLO_MS = '80ms'", "SLO_MS is '80ms'; expected milliseconds"),
        ("BATCH_MAX = 16", "BATCH_MAX = 0", "BATCH_MAX is 0; expected rows"),
        ('ids: Annotated[np.ndarray, "INT64", "tokens"]', "ids", r"has no function sample\(rows\)"),
    ],
)
def test_annotations_that_say_too_little_are_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "annotated.py"
    file.write_text(ANNOTATED.replace(old, new, 1))
    with pytest.raises(SignatureError, match=said):
        signature_of(str(file), {})


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def predict(x): return x\n", r"has no function sample\(rows\)"),
        (
            "def predict(x): return x.sum()\n" + SAMPLE,
            r"'output' has the shape \[\] for 1 and \[\] for 2 rows",
        ),
        (
            "def predict(x): return x[:1]\n" + SAMPLE,
            r"\[1, 4\] for 1 and \[1, 4\] for 2 rows; expected the rows",
        ),
    ],
)
def test_what_shows_no_signature_is_refused_in_a_sentence(tmp_path: Path, code: str, said: str) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(HEAD + code)
    with pytest.raises(SignatureError, match=said):
        signature_of(str(file), {})


def test_a_file_without_any_form_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("x = 1\n")
    with pytest.raises(AttributeError, match=r"no function load.*, no class Model and no function predict"):
        PythonBackend(1).load(order(file))


def test_a_model_imports_its_neighbours_and_two_models_do_not_share_them(tmp_path: Path) -> None:
    backend, before = PythonBackend(1), {*sys.modules}
    factors = {}
    for name, factor in (("one", 3), ("two", 7)):
        folder = tmp_path / name
        (folder / "layers").mkdir(parents=True)
        (folder / "layers" / "__init__.py").write_text(f"FACTOR = {factor}\n")
        (folder / "helper.py").write_text("from .layers import FACTOR\ndef scaled(x): return x * FACTOR\n")
        (folder / "model.py").write_text(
            "from .helper import scaled\ndef predict(x): return {'y': scaled(x)}\n"
        )
        model = backend.load(order(folder / "model.py"))
        factors[name] = float(np.asarray(model.predict({"x": np.ones((1, 4), np.float32)}, {})["y"])[0, 0])
    assert factors == {"one": 3, "two": 7}
    assert [name for name in {*sys.modules} - before if name.endswith((".helper", ".layers"))]
    backend.keep([])
    assert {*sys.modules} <= before


def test_a_neighbour_that_is_imported_by_its_bare_name_gets_a_hint(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_a_model.py").write_text("")
    file = tmp_path / "model.py"
    file.write_text("import neighbour_of_a_model\n")
    with pytest.raises(ModuleNotFoundError, match=r"try `from \. import neighbour_of_a_model`"):
        PythonBackend(1).load(order(file))


def test_a_new_revision_reads_the_neighbours_again(tmp_path: Path) -> None:
    backend = PythonBackend(1)
    file = tmp_path / "model.py"
    file.write_text("from .helper import FACTOR\ndef predict(x): return {'y': x * FACTOR}\n")
    answers = []
    for revision, factor in (("a", 2), ("b", 30)):
        (tmp_path / "helper.py").write_text(f"FACTOR = {factor}\n")
        model = backend.load(order(file, revision))
        answers.append(float(np.asarray(model.predict({"x": np.ones((1, 4), np.float32)}, {})["y"])[0, 0]))
    assert answers == [2, 30]
