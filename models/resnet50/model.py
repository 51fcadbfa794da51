# ruff: noqa: ARG001, ARG002  (the signatures are those of every model)
"""ResNet-50 v1.5 in plain torch, with random weights: what a convolutional network of a usual size costs.

The network is that of https://arxiv.org/abs/1512.03385, with the stride of a stage's first block in its 3x3
convolution, as all have it today ("v1.5"). The weights are always the same, so two replicas agree to the bit,
and nothing has to be carried; what they say of a picture means nothing.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import fuse_conv_bn_eval

Scalar = bool | int | float | str
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
SIDE, CLASSES = 224, 1000
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks of a stage, and the channels of their 3x3 convolutions."""
EXPANSION = 4
PIXEL_MEAN, PIXEL_DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Red, green, blue of ImageNet, as usual: what pixels become is of mean 0 and deviation 1 or so."""
LAST_SCALE = 0.25
"""Of the last batch norm of a block, as against 1: sixteen blocks that each added all of their branch would
double the variance sixteen times (https://arxiv.org/abs/1706.02677, section 5.1, begins with 0)."""
SEED = 20_260


class Convolution(nn.Module):
    """A convolution and its batch norm, which `fold` makes one convolution with a bias."""

    def __init__(self, inputs: int, outputs: int, side: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.norm(self.convolution(inputs))

    def fold(self) -> None:
        """Fold the norm into the convolution, for inference only."""
        self.convolution = fuse_conv_bn_eval(self.convolution, self.norm)
        self.norm = nn.Identity()


class Block(nn.Module):
    """Three convolutions, added to their input or, where the shape changes, to a convolution of it."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = channels * EXPANSION
        self.first = Convolution(inputs, channels, 1)
        self.second = Convolution(channels, channels, 3, stride)
        self.last = Convolution(channels, outputs, 1)
        self.shortcut = nn.Identity() if inputs == outputs else Convolution(inputs, outputs, 1, stride)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        branch = self.second(self.first(inputs).relu_()).relu_()
        return self.last(branch).add_(self.shortcut(inputs)).relu_()


class Network(nn.Module):
    """Pixels, normalised, `[rows, 3, 224, 224]` to logits `[rows, 1000]`."""

    def __init__(self) -> None:
        super().__init__()
        first = STAGES[0][1]
        self.stem = Convolution(3, first, 7, 2)
        widths = [first, *(channels * EXPANSION for _, channels in STAGES)]
        blocks = []
        for number, ((count, channels), (inputs, outputs)) in enumerate(
            zip(STAGES, pairwise(widths), strict=True)
        ):
            blocks.append(Block(inputs, channels, 1 if number == 0 else 2))
            blocks += [Block(outputs, channels, 1) for _ in range(count - 1)]
        self.blocks = nn.Sequential(*blocks)
        self.classes = nn.Linear(widths[-1], CLASSES)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        hidden = functional.max_pool2d(self.stem(pixels).relu_(), 3, 2, 1)
        return self.classes(self.blocks(hidden).mean((2, 3)))


def network() -> Network:
    """Return the network with the weights of the seed, its batch norms not folded."""
    with torch.device("meta"):  # spares torch to draw weights that are not used
        made = Network()
    made.to_empty(device="cpu").eval()
    numbers = np.random.default_rng(SEED)
    for part in made.modules():
        if isinstance(part, Convolution):
            # He's bound keeps the scale through ReLU layers (https://arxiv.org/abs/1502.01852).
            weight = part.convolution.weight
            _draw(numbers, weight, float(np.sqrt(6 / weight[0].numel())))
            _draw(numbers, part.norm.weight, 0.2, 1.0)
            _draw(numbers, part.norm.bias, 0.2)
            _draw(numbers, part.norm.running_mean, 0.2)
            _draw(numbers, part.norm.running_var, 0.2, 1.0)
    for block in made.blocks:
        block.last.norm.weight.data.mul_(LAST_SCALE)
    _draw(numbers, made.classes.weight, 0.01)
    _draw(numbers, made.classes.bias, 0.01)
    return made


def _draw(numbers: np.random.Generator, tensor: torch.Tensor, bound: float, centre: float = 0.0) -> None:
    drawn = numbers.random(tuple(tensor.shape), dtype=np.float32)
    drawn *= np.float32(2 * bound)
    drawn += np.float32(centre - bound)
    tensor.data = torch.from_numpy(drawn)


def folded(made: Network) -> Network:
    """Return the same network without batch norms."""
    for part in list(made.modules()):
        if isinstance(part, Convolution):
            part.fold()
    return made


class Model:
    """The network in one precision on one device."""

    def __init__(self, made: Network, dtype: torch.dtype, device: str) -> None:
        # Pixels come with their colours last: so does all that is computed, and nothing is turned around.
        self._network = made.to(device, dtype, memory_format=torch.channels_last)
        self._mean, self._scale = (
            torch.tensor(values, device=device).view(1, 3, 1, 1)
            for values in (PIXEL_MEAN, [1 / deviation for deviation in PIXEL_DEVIATION])
        )
        self._device, self._dtype = torch.device(device), dtype

    def predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]) -> dict[str, np.ndarray]:
        """Predict from arrays instead of tensors, as `predict_device` does; the worker does not use it."""
        # Copies only what torch must not hold: an array that lies read-only in a buffer.
        pixels = torch.from_numpy(np.require(inputs["PIXELS"], requirements="CW")).to(self._device)
        return {"SCORES": self.predict_device({"PIXELS": pixels}, parameters)["SCORES"].cpu().numpy()}

    def predict_device(
        self, inputs: dict[str, torch.Tensor], parameters: dict[str, Scalar]
    ) -> dict[str, torch.Tensor]:
        """Map PIXELS UINT8 `[rows, 224, 224, 3]` to SCORES FP32 `[rows, 1000]`, each row a distribution."""
        with torch.inference_mode():
            pixels = inputs["PIXELS"].permute(0, 3, 1, 2)
            normalised = pixels.float().sub_(self._mean).mul_(self._scale).to(self._dtype)
            return {"SCORES": self._network(normalised).float().softmax(1)}

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Return inputs to measure with; `size` is not used: the cost does not depend on the content."""
        return {"PIXELS": np.random.default_rng(rows).integers(0, 256, (rows, SIDE, SIDE, 3), np.uint8)}


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """Generate the weights (under a second). `options` name the "precision", of PRECISIONS, and the "device"
    that computes (the CPU by default). Raises KeyError for an unknown precision."""
    dtype = PRECISIONS[str(options["precision"])]
    with torch.inference_mode():
        return Model(folded(network()), dtype, str(options.get("device", "cpu")))
