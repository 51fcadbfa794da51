"""Files of torch.export.save: what the program says is what is served."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from serving.worker.backends.signature import Signature, SignatureError, Tensor, batch_max_of
from serving.worker.backends.torch_export import TorchExportBackend, signature_of
from tests.worker.backends.orders import loaded, order_of

SIGNATURE = Signature(
    (Tensor("x", "FP32", ("batch", 6)),),
    (Tensor("half", "FP32", ("batch", 6)), Tensor("above", "INT64", ("batch", 1))),
)
"""What a model.yaml states of a file that does not say it."""


class Halves(torch.nn.Module):
    """Two outputs of one input."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x / 2, (x > 0).sum(1, keepdim=True)


@pytest.fixture(scope="module", params=[True, False], ids=["batched", "of one row"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pt2") / "halves.pt2"
    shapes = {"x": {0: torch.export.Dim("batch")}} if request.param else None
    rows = 4 if request.param else 1
    torch.export.save(torch.export.export(Halves(), (torch.rand(rows, 6),), dynamic_shapes=shapes), path)
    return path


def test_a_file_says_what_it_takes_and_computes_it(file: Path) -> None:
    found = signature_of(str(file), {})
    batch_max = batch_max_of(found)
    assert [each.name for each in (*found.inputs, *found.outputs)] == ["x", "output0", "output1"]
    assert [each.datatype for each in found.outputs] == ["FP32", "INT64"]
    assert batch_max in (1, 64)
    model = loaded(order_of("torch_export", file, found))
    x = np.linspace(-1, 1, 6 * batch_max, dtype=np.float32).reshape(batch_max, 6)
    answer = model.predict({"x": x}, {})
    assert np.allclose(np.asarray(answer["output0"]), x / 2)
    assert np.array_equal(np.asarray(answer["output1"]), (x > 0).sum(1, keepdims=True))
    assert getattr(model, "sample")(batch_max, 0)["x"].shape == (batch_max, 6)  # noqa: B009


def test_model_yaml_and_file_have_to_agree(file: Path) -> None:
    order = order_of("torch_export", file, signature_of(str(file), {}))
    with pytest.raises(ValueError, match=r"model.yaml has 1 outputs; .* has 2"):
        TorchExportBackend(1).load(replace(order, outputs=order.outputs[:1]))
    with pytest.raises(FileNotFoundError, match=r"expected a \.pt2 file"):
        TorchExportBackend(1).load(replace(order, artifact=None))


def test_another_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "junk.pt2").write_text("junk")
    with pytest.raises(SignatureError, match=r"is no file of torch\.export\.save"):
        signature_of(str(tmp_path / "junk.pt2"), {})


def test_the_inputs_of_a_signature_are_named_as_the_program_names_them(file: Path) -> None:
    (given,) = signature_of(str(file), {}).inputs
    assert given in (Tensor("x", "FP32", (1, 6)), Tensor("x", "FP32", (given.dimensions[0], 6)))


def computes_halves(file: Path) -> None:
    model = loaded(order_of("torch_export", file, SIGNATURE))
    x = np.linspace(-1, 1, 18, dtype=np.float32).reshape(3, 6)
    answer = model.predict({"x": x}, {})
    assert np.allclose(np.asarray(answer["half"]), x / 2)
    assert np.array_equal(np.asarray(answer["above"]), (x > 0).sum(1, keepdims=True))
    assert getattr(model, "sample")(5, 0)["x"].shape == (5, 6)  # noqa: B009


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_computes_what_model_yaml_states(tmp_path: Path) -> None:
    file = tmp_path / "halves.pt"
    torch.jit.save(torch.jit.script(Halves()), file)
    computes_halves(file)
    with pytest.raises(SignatureError, match="is TorchScript, which does not say what it takes; expected a"):
        signature_of(str(file), {})


@pytest.mark.slow
@pytest.mark.in_turn(5)
def test_a_package_of_aotinductor_computes_what_model_yaml_states(tmp_path: Path) -> None:
    """The compiler takes some 20 s, in a process of its own: it warns of itself."""
    file = tmp_path / "halves.pt2"
    code = f"""
import torch
from tests.worker.backends.test_torch_export import Halves
rows = torch.export.Dim("rows", min=1, max=64)
program = torch.export.export(Halves(), (torch.rand(4, 6),), dynamic_shapes=({{0: rows}},))
torch._inductor.aoti_compile_and_package(program, package_path={str(file)!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=110, capture_output=True)
    computes_halves(file)
    with pytest.raises(SignatureError, match="is a package of AOTInductor, which does not say"):
        signature_of(str(file), {})
    with pytest.raises(ValueError, match="is compiled for cpu, and the slice is on cuda:0"):
        TorchExportBackend(1, "cuda:0").load(order_of("torch_export", file, SIGNATURE))
