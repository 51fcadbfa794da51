# ruff: noqa: ARG002  (the signatures are those of every model)
"""Five ways to read a handwritten digit, from 170 weights to three wide convolutional networks.

Pixels are 8x8, row by row, scaled to 0..1. A variant is one network or the mean of several; its scores are
probabilities. `build.py` trains the same networks that are served here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

Scalar = bool | int | float | str
SIDE = 8
PIXELS = SIDE * SIDE
CLASSES = 10


def _pooled() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(PIXELS // 4, CLASSES)
    )


def _linear() -> nn.Module:
    return nn.Linear(PIXELS, CLASSES)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def _cnn(first: int, then: int) -> nn.Module:
    """Return three 3x3 convolutions, halving the side after the second and the third: `then` x 2 x 2
    features."""
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)),
        nn.Conv2d(1, first, 3, padding=1), nn.ReLU(),
        nn.Conv2d(first, then, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(then, then, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(then * 4, CLASSES),
    )  # fmt: skip


ARCHITECTURES: Mapping[str, tuple[Callable[[], nn.Module], int]] = {
    "pooled": (_pooled, 1),
    "linear": (_linear, 1),
    "mlp": (_mlp, 1),
    "cnn": (lambda: _cnn(32, 64), 1),
    "ensemble": (lambda: _cnn(48, 96), 3),
}
"""What a network of the variant is, and how many of them answer together."""


def networks(architecture: str) -> nn.ModuleList:
    """Return untrained networks of a variant: FP32 `[rows, 64]` to logits `[rows, 10]` each. Raises KeyError
    if unknown."""
    create, members = ARCHITECTURES[architecture]
    return nn.ModuleList(create() for _ in range(members))


class Model:
    """The mean of the members' probabilities, computed on `device`."""

    def __init__(self, members: nn.ModuleList, device: str = "cpu") -> None:
        self._members = list(members.to(device).eval())
        self._device = None if device == "cpu" else torch.device(device)  # spares the CPU two calls

    def predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]) -> dict[str, np.ndarray]:
        """Map PIXELS FP32 `[rows, 64]` to SCORES FP32 `[rows, 10]`, each row a distribution."""
        with torch.inference_mode():
            # Copies only what torch must not hold: an array that lies read-only in the wire's buffer.
            pixels = torch.from_numpy(np.require(inputs["PIXELS"], requirements="CW"))
            if self._device is not None:
                pixels = pixels.to(self._device)
            scores = self._members[0](pixels).softmax(1)
            for member in self._members[1:]:
                scores += member(pixels).softmax(1)
            scores.div_(len(self._members))
            # `cpu` copies, and so waits until all is computed.
            return {"SCORES": (scores if self._device is None else scores.cpu()).numpy()}

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Return inputs to measure with; `size` is not used: the cost does not depend on the content."""
        return {"PIXELS": np.random.default_rng(rows).random((rows, PIXELS), dtype=np.float32)}


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """Return a trained variant. `options` name its "architecture", of ARCHITECTURES, and the "device" where
    it computes, the CPU if not given.

    FileNotFoundError where it was not built.
    """
    if artifact is None or not artifact.is_file():
        raise FileNotFoundError(f"digits: {artifact} is not there; `python models/digits/build.py` trains it")
    with torch.device("meta"):  # spares torch to draw weights that are not used
        members = networks(str(options["architecture"]))
    # Assigned, not copied: on a CPU convolutions stay the mapped file's pages, one copy for all processes. A
    # matrix times a single row is summed in an order that depends on where the matrix lies: those, which are
    # small, lie where torch puts them.
    weights = {name: each if each.dim() > 2 else each.clone() for name, each in load_file(artifact).items()}
    members.load_state_dict(weights, assign=True)
    return Model(members, str(options.get("device", "cpu")))
