"""Trains the digits variants on scikit-learn's bundled handwritten digits and measures what was saved."""

import json
import time
from pathlib import Path

import model
import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

TRAINING_ROWS = 1200  # of 1797; the other 597 are held out
SEED = 0

# Epochs, rows a step, peak learning rate, weight decay, whether to turn and shift the images. Rates were
# tried in factors of three over three splits: the linear models need the high ones to do their best.
RECIPES = {
    "pooled": (100, 100, 0.1, 0.0, False),
    "linear": (60, 100, 0.06, 0.0, False),
    "mlp": (25, 50, 0.005, 0.01, False),
    "cnn": (25, 50, 0.005, 0.01, True),
    "ensemble": (25, 50, 0.005, 0.01, True),
}


def _augmented(pixels: torch.Tensor, numbers: torch.Generator) -> torch.Tensor:
    """Return the images turned by up to 15 degrees, scaled by up to a tenth and shifted by up to a pixel."""
    rows = len(pixels)
    angle = (torch.rand(rows, generator=numbers) * 2 - 1) * 0.26
    scale = 1 + (torch.rand(rows, generator=numbers) * 2 - 1) * 0.1
    shift = (torch.rand(rows, 2, generator=numbers) * 2 - 1) * (2 / model.SIDE)
    cosine, sine = torch.cos(angle) * scale, torch.sin(angle) * scale
    turned = torch.stack(
        [
            torch.stack([cosine, -sine, shift[:, 0]], 1),
            torch.stack([sine, cosine, shift[:, 1]], 1),
        ],
        1,
    )
    images = pixels.view(rows, 1, model.SIDE, model.SIDE)
    grid = nn.functional.affine_grid(turned, list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False).view(rows, model.PIXELS)


def _train(network: nn.Module, variant: str, pixels: torch.Tensor, labels: torch.Tensor, seed: int) -> None:
    epochs, step_rows, rate, decay, augments = RECIPES[variant]
    numbers = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=decay)
    steps = epochs * (len(pixels) // step_rows)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    for _ in range(epochs):
        shown = _augmented(pixels, numbers) if augments else pixels
        for chosen in torch.randperm(len(pixels), generator=numbers).split(step_rows):
            loss = nn.functional.cross_entropy(network(shown[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def _predictions(artifact: Path, pixels: np.ndarray) -> np.ndarray:
    """Return the classes INT64 `[rows]` that the saved file predicts as it is served: loaded by `model.py`,
    one row a call."""
    served = model.load(artifact, {"architecture": artifact.stem})
    rows = (served.predict({"PIXELS": row[None]}, {})["SCORES"] for row in pixels)
    return np.concatenate([row.argmax(1) for row in rows])


def train_all(build: Path) -> None:
    """Train, save and measure each variant into `build`, which must be there."""
    torch.set_num_threads(1)  # sums in one order, so that every build gives the same weights
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    pixels = torch.from_numpy((digits.data[order] / 16).astype(np.float32))  # 0..16 to 0..1
    labels = torch.from_numpy(digits.target[order].astype(np.int64))
    held = {"pixels": pixels[TRAINING_ROWS:].clone(), "labels": labels[TRAINING_ROWS:].clone()}
    save_file(held, build / "heldout.safetensors")
    held_labels = held["labels"].numpy()
    accuracy, predictions = {}, {}
    for variant in model.ARCHITECTURES:
        started = time.perf_counter()
        torch.manual_seed(SEED)  # the initial weights
        members = model.networks(variant)
        for seed, network in enumerate(members):
            _train(network, variant, pixels[:TRAINING_ROWS], labels[:TRAINING_ROWS], seed)
        artifact = build / f"{variant}.safetensors"
        save_file(members.state_dict(), artifact)
        named = _predictions(artifact, held["pixels"].numpy())
        accuracy[variant], predictions[variant] = float((named == held_labels).mean()), named.tolist()
        seconds = time.perf_counter() - started
        print(
            f"digits: {variant} {accuracy[variant]:.4f} of {len(held_labels)} held out, {seconds:.1f} s",
            flush=True,
        )
    (build / "accuracy.json").write_text(json.dumps(accuracy, indent=2) + "\n")
    validation = {"labels": held_labels.tolist(), "predictions": predictions}
    (build / "validation.json").write_text(json.dumps(validation) + "\n")
