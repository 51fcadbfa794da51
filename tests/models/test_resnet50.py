"""ResNet-50: the network that it says it is, with weights of a seed."""

from typing import Any

import numpy as np
import pytest
import torch

from router.settings import load_model
from serving.worker.backends.python import PythonBackend
from serving.worker.device.running import TensorModel
from serving.worker.frames.orders import LoadOrder
from tests.models.samples import MODELS, SampleModel, code, loaded, variants

pytestmark = pytest.mark.slow  # each draws 100 MB of weights

Scores = np.ndarray[Any, Any]


def _scores(model: SampleModel, pixels: np.ndarray[Any, Any]) -> Scores:
    return model.predict({"PIXELS": pixels}, {})["SCORES"]


def _pictures(rows: int) -> np.ndarray[Any, Any]:
    return loaded("resnet50", "fp32").sample(rows, 0)["PIXELS"]


def test_it_has_the_convolutions_and_parameters_of_resnet_50() -> None:
    """25,557,032 in 53 convolutions: the count of every published ResNet-50 for 1000 classes."""
    with torch.device("meta"):
        network = code("resnet50").Network()
    convolutions = [part for part in network.modules() if isinstance(part, torch.nn.Conv2d)]
    assert len(convolutions) == 53
    assert sum(each.numel() for each in network.parameters()) == 25_557_032
    strides = [each.kernel_size[0] for each in convolutions if each.stride == (2, 2)]
    assert strides == [7, 3, 1, 3, 1, 3, 1]  # v1.5: the 3x3 of a stage's first block, and its shortcut


def test_folding_batch_norms_changes_no_answer() -> None:
    pixels = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32))
    with torch.inference_mode():
        network = code("resnet50").network()
        expected = network(pixels)
        folded = code("resnet50").folded(network)
        assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in folded.modules())
        assert (folded(pixels) - expected).abs().max() <= 1e-4 * expected.abs().max()


# bf16 has 8 bits of mantissa, and another batch adds in another order.
@pytest.mark.parametrize(("variant", "difference"), [("fp32", 1e-5), ("bf16", 5e-3)])
def test_a_row_does_not_depend_on_its_batch(variant: str, difference: float) -> None:
    model, pixels = loaded("resnet50", variant), _pictures(3)
    pixels[1] //= 4
    alone = np.concatenate([_scores(model, row[None]) for row in pixels])
    assert np.abs(_scores(model, pixels) - alone).max() <= difference


@pytest.mark.parametrize("variant", variants("resnet50"))
def test_scores_are_probabilities_and_differ_by_picture(variant: str) -> None:
    scores = _scores(
        loaded("resnet50", variant), np.stack([_pictures(1)[0], np.zeros((224, 224, 3), np.uint8)])
    )
    assert scores.min() >= 0
    assert scores.sum(1) == pytest.approx(np.ones(2), abs=1e-5)
    assert np.abs(scores[0] - scores[1]).max() > 1e-3


def test_bf16_answers_about_as_fp32() -> None:
    pixels = _pictures(1)
    exact, rounded = (_scores(loaded("resnet50", variant), pixels) for variant in ("fp32", "bf16"))
    assert exact.argmax() == rounded.argmax()
    assert np.abs(exact - rounded).max() <= 0.02 * exact.max()


def test_weights_are_those_of_the_seed() -> None:
    """Pinned, so that profiles and load tests of different days speak of the same model."""
    scores = _scores(loaded("resnet50", "fp32"), np.full((1, 224, 224, 3), 200, np.uint8))
    assert scores[0, :3] == pytest.approx([6.9195e-4, 1.1943e-4, 8.1729e-4], rel=1e-2)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(KeyError, match="fp8"):
        code("resnet50").load(None, {"precision": "fp8"})


def test_a_worker_gives_it_tensors_and_gets_the_same_scores() -> None:
    backend, spec = PythonBackend(torch.get_num_threads()), load_model(MODELS / "resnet50")
    model = backend.load(LoadOrder.of(1, spec, "fp32"))
    assert isinstance(model, TensorModel)
    pixels = _pictures(2)
    scores = np.asarray(model.predict({"PIXELS": pixels}, {})["SCORES"])
    assert np.allclose(scores, _scores(loaded("resnet50", "fp32"), pixels), atol=1e-5)
