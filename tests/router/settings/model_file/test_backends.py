"""Variants of other backends than Python: what each has to state, and what only Python can do."""

from pathlib import Path

import pytest

from router.settings import load_model
from tests.router.settings.samples import model_faults, write_model

HEAD = """\
name: net
inputs: [{name: x, datatype: FP32, shape: [-1, 4]}]
outputs: [{name: y, datatype: FP32, shape: [-1, 4]}]
batch_max: 8
"""


def test_variants_of_several_runtimes_are_one_model(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    variants = "default_variant: a\nvariants:\n  - {name: a, backend: torch_export, artifact: net.pt2}\n"
    variants += "  - {name: b, backend: onnx, artifact: net.onnx}\n  - {name: c}\n"
    folder.mkdir()
    for name in ("net.pt2", "net.onnx"):
        (folder / name).touch()
    spec = load_model(write_model(folder, HEAD + variants))
    assert [each.backend for each in spec.variants] == ["torch_export", "onnx", "python"]


def test_the_code_of_a_model_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    (tmp_path / "mine.py").touch()
    assert load_model(write_model(folder, HEAD + "code: ../mine.py\n")).code == folder / "../mine.py"
    (fault,) = model_faults(folder, HEAD + "code: ../yours.py\n")
    assert "code: '../yours.py' is missing; expected a file or folder" in fault


@pytest.mark.parametrize(
    ("variant", "more", "said"),
    [
        ("backend: onnx", "", "backend onnx has nothing to load; expected artifact: a file.onnx"),
        ("backend: transformers", "", "transformers has nothing to load; expected artifact: a folder"),
        ("backend: remote, options: {url: 'h:1'}", "", "remote asks no server; expected options: {url"),
        ("backend: remote, options: {url: 'h:1', model: m}, compile: torch", "",
         "compile is for models in Python; got backend remote, expected compile: none"),
        ("backend: remote, options: {url: 'h:1', model: m}", "decoupled: true\n",
         "remote answers each request once, by itself; got decoupled: true, expected backend: python"),
        ("backend: onx", "", "backend: "),
    ],
)  # fmt: skip
def test_what_a_backend_lacks_is_named(tmp_path: Path, variant: str, more: str, said: str) -> None:
    (fault,) = model_faults(tmp_path / "net", HEAD + more + f"variants: [{{name: a, {variant}}}]\n")
    assert said in fault
    assert fault.startswith("model.yaml:")
