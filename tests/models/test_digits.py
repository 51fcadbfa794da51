"""Digits: the accuracy that is stated is the accuracy that is served."""

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.models.samples import Arrays, built, code, loaded, measured, variants

pytestmark = pytest.mark.slow  # trained networks over all held-out rows


@pytest.fixture(scope="module")
def held_out() -> Arrays:
    return load_file(built("digits", "build/heldout.safetensors"))


def _scores(variant: str, pixels: np.ndarray[Any, Any], rows: int) -> np.ndarray[Any, Any]:
    batches = (pixels[start : start + rows] for start in range(0, len(pixels), rows))
    model = loaded("digits", variant)
    return np.concatenate([model.predict({"PIXELS": batch}, {})["SCORES"] for batch in batches])


def test_held_out_rows_are_the_597_that_are_named(held_out: Arrays) -> None:
    assert held_out["pixels"].shape == (597, 64)
    assert held_out["pixels"].min() == 0
    assert held_out["pixels"].max() == 1
    assert set(held_out["labels"].tolist()) == set(range(10))


@pytest.mark.parametrize("variant", variants("digits"))
@pytest.mark.parametrize("rows", [1, 64])
def test_served_accuracy_equals_the_stated_one_exactly(held_out: Arrays, variant: str, rows: int) -> None:
    answers = _scores(variant, held_out["pixels"], rows).argmax(1)
    assert float((answers == held_out["labels"]).mean()) == measured("digits")[variant]


@pytest.mark.parametrize("variant", variants("digits"))
def test_rows_do_not_depend_on_their_batch(held_out: Arrays, variant: str) -> None:
    alone, together = (_scores(variant, held_out["pixels"][:64], rows) for rows in (1, 64))
    assert np.array_equal(alone.argmax(1), together.argmax(1))
    assert np.abs(alone - together).max() <= 1e-5


@pytest.mark.parametrize("variant", variants("digits"))
def test_scores_are_probabilities(held_out: Arrays, variant: str) -> None:
    scores = _scores(variant, held_out["pixels"], 64)
    assert scores.min() >= 0
    assert scores.sum(1) == pytest.approx(np.ones(597), abs=1e-5)


def test_a_dearer_variant_is_a_better_one() -> None:
    accuracies = measured("digits")
    assert list(accuracies.values()) == sorted(accuracies.values())
    assert accuracies["linear"] > 0.95  # the cheap ones are trained as well as they can be
    assert accuracies["ensemble"] > 0.985


def test_an_artifact_that_was_not_built_is_named_with_what_builds_it(held_out: Arrays) -> None:
    missing = built("digits", "build/heldout.safetensors").with_name("gone.safetensors")
    with pytest.raises(FileNotFoundError, match=r"gone\.safetensors is not there; .*digits/build\.py"):
        code("digits").load(missing, {"architecture": "cnn"})
