"""The files that the load test of runtimes writes all compute the sample's network."""

from pathlib import Path

import pytest

from loadtests.harness.gateway import copied_model
from loadtests.selection.runtimes import BATCH_MAX, MODEL, VARIANTS, difference, write_variants


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with narrow layers: the cost of its weights is not the question here."""
    found = copied_model(MODEL, tmp_path_factory.mktemp("runtimes"), BATCH_MAX)
    code = found / "model.py"
    code.write_text(code.read_text().replace("3072", "32"))
    write_variants(found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_answers_as_torch_does(folder: Path, name: str) -> None:
    assert difference(folder, name) < (0.1 if name.endswith("int8") else 1e-4)
