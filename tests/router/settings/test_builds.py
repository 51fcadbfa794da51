"""A build is told by what decides its answers, wherever it lies, and by nothing else."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from router.settings import load_settings
from router.settings.builds import _artifact_bytes, identified
from router.settings.model_file.revisions import build_of
from serving.values.specs import ModelSpec, VariantSpec
from tests.router.settings.samples import write_deployment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    (folder / "build" / "large" / "inner").mkdir(parents=True)
    for name in ("model.yaml", "model.py", "layers.py", "README.md", "build/a.bin", "build/b.bin",
                 "build/large/1.bin", "build/large/inner/2.bin"):  # fmt: skip
        (folder / name).write_text(name)
    return folder


def _spec(folder: Path, code: Path | None = None) -> ModelSpec:
    return ModelSpec("m", folder, (), (), (), "a", slo_us=1000, batch_max=1, code=code)


def build(folder: Path, artifact: str = "build/a.bin") -> str:
    return build_of(_spec(folder), VariantSpec("a", folder / artifact))


def test_a_copy_elsewhere_is_the_same_build(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "n")
    for artifact in ("build/a.bin", "build/large"):
        assert build(copy, artifact) == build(folder, artifact) != ""


def write(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


@pytest.mark.parametrize("name", ["model.yaml", "model.py", "layers.py", "build/large/inner/2.bin"])
@pytest.mark.parametrize("change", [write("MODEL"), write(""), Path.unlink])
def test_another_content_is_another_build(folder: Path, name: str, change: Callable[[Path], object]) -> None:
    before = build(folder, "build/large")
    change(folder / name)
    assert build(folder, "build/large") != before


def test_a_file_below_the_artifact_that_moves_is_another_build(folder: Path) -> None:
    before = build(folder, "build/large")
    (folder / "build" / "large" / "inner" / "2.bin").rename(folder / "build" / "large" / "2.bin")
    assert build(folder, "build/large") != before


@pytest.mark.parametrize("name", ["README.md", "build/b.bin"])
def test_what_the_variant_does_not_load_does_not_matter(folder: Path, name: str) -> None:
    before = build(folder)
    (folder / name).write_text("other")
    assert build(folder) == before
    assert build(folder, name) != before


def test_only_models_whose_answers_are_kept_have_builds(tmp_path: Path) -> None:
    text = "models: [{path: models/digits}, {path: models/minilm, variants: [fp32]}]\ncache:\n"
    settings = load_settings(write_deployment(tmp_path, text))
    digits, minilm = identified(settings).models
    assert [variant.build != "" for variant in digits.spec.variants] == [True, True]
    assert [variant.build for variant in minilm.spec.variants] == [""] * len(minilm.spec.variants)
    unkept = identified(replace(settings, cache=None)).models
    assert {variant.build for model in unkept for variant in model.spec.variants} == {""}


@pytest.mark.parametrize(
    ("artifact", "weights"),
    [("net.xml", "net.bin"), ("net.onnx", "net.onnx.data"), ("net.onnx", "net.onnx_data")],
)
def test_weights_beside_the_artifact_are_of_its_build_and_its_size(
    folder: Path, artifact: str, weights: str
) -> None:
    (folder / artifact).write_text("graph")
    alone = build(folder, artifact)
    (folder / weights).write_text("weights")
    (folder / "other.bin").write_text("of another")
    whole = build(folder, artifact)
    assert whole != alone
    assert _artifact_bytes(VariantSpec("a", folder / artifact)) == len("graph") + len("weights")
    (folder / weights).write_text("WEIGHTS")
    assert build(folder, artifact) not in (alone, whole)
