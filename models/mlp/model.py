# ruff: noqa: ARG001, ARG002  (the signatures are those of every model)
"""A perceptron whose cost is reading its 88 MB of weights: the model for load tests.

The weights are random but always the same, so two replicas, and two runs, agree to the bit.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

Scalar = bool | int | float | str
WIDTHS = (1024, 3072, 3072, 3072, 10)
SEED = 20_260


class Model:
    """Linear layers with ReLU between them, none after the last, computed on `device`."""

    def __init__(self, device: str = "cpu") -> None:
        numbers = np.random.default_rng(SEED)
        layers = [_layer(numbers, inputs, outputs) for inputs, outputs in pairwise(WIDTHS)]
        self._layers = [(weight.to(device), bias.to(device)) for weight, bias in layers]
        self._device = None if device == "cpu" else torch.device(device)  # spares the CPU two calls

    def predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]) -> dict[str, np.ndarray]:
        """Map INPUT FP32 `[rows, 1024]` to OUTPUT FP32 `[rows, 10]`."""
        with torch.inference_mode():
            # Copies only what torch must not hold: an array that lies read-only in the wire's buffer.
            hidden = torch.from_numpy(np.require(inputs["INPUT"], requirements="CW"))
            if self._device is not None:
                hidden = hidden.to(self._device)
            for weight, bias in self._layers[:-1]:
                hidden = torch.addmm(bias, hidden, weight).relu_()
            weight, bias = self._layers[-1]
            output = torch.addmm(bias, hidden, weight)
            # `cpu` copies, and so waits until all is computed.
            return {"OUTPUT": (output if self._device is None else output.cpu()).numpy()}

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Return inputs to measure with; `size` is not used: the cost does not depend on the content."""
        numbers = np.random.default_rng(rows)
        return {"INPUT": numbers.random((rows, WIDTHS[0]), dtype=np.float32)}


def _layer(numbers: np.random.Generator, inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weight `[outputs, inputs]` transposed and bias. The weight is uniform within He's bound, so that
    ReLU layers keep the scale of their inputs (https://arxiv.org/abs/1502.01852)."""
    bound = np.float32(np.sqrt(6.0 / inputs))
    weight = numbers.random((outputs, inputs), dtype=np.float32)
    weight *= 2 * bound
    weight -= bound
    return torch.from_numpy(weight).t(), torch.zeros(outputs)


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """Generate the weights (under 0.3 s). `options` may name the "device" that computes."""
    return Model(str(options.get("device", "cpu")))
