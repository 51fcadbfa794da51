"""A store of generated profiles, seeded, as sweeps of real models look: digits and minilm on cores, digits on
a GPU's MPS shares with one share predicted."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.profile.curve import Origin, Point, Profile
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share
from serving.values.specs import ModelSpec, SizeHint, TensorSpec, VariantSpec

CPU, GPU = "cpu-amd-epyc-f25m17", "gpu-nvidia-h200"
DOUBLING = (1, 2, 4, 8, 16, 32, 64)
MACHINES = {
    CPU: (("processor", "AMD EPYC 9V74"), ("torch", "2.13.0"), ("kernel", "6.8.0")),
    GPU: (("device", "NVIDIA H200"), ("driver", "580.95"), ("cuda", "13.0"), ("torch", "2.13.0")),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a batch takes on one unit of a share, and up to how many units make it faster."""

    fixed_us: float
    row_us: float
    saturates: float = 1.0
    weights: int = 1 << 20

    def latency_us(self, rows: int, size: int, amount: float) -> float:
        """Of `rows` at `size` on `amount` units."""
        long = max(size / 128, 1.0)
        return self.fixed_us + rows * self.row_us * long / min(amount, self.saturates)


def model(
    name: str = "digits", variants: Sequence[str] = ("linear", "cnn"), sizes: tuple[int, ...] = ()
) -> ModelSpec:
    """A model of 64 numbers a row; `sizes`: its size buckets."""
    return ModelSpec(
        name,
        Path("models") / name,
        (TensorSpec("PIXELS", "FP32", (-1, 64)),),
        (TensorSpec("SCORES", "FP32", (-1, 10)),),
        tuple(VariantSpec(each, None) for each in variants),
        variants[-1],
        slo_us=25_000,
        batch_max=64,
        size_hint=SizeHint("PIXELS", sizes) if sizes else None,
    )


def profile(
    identity: tuple[str, str, str],
    share: Share,
    cost: Cost,
    batches: Sequence[int] = DOUBLING,
    sizes: Sequence[int] = (0,),
    error: float = 0.0,
) -> Profile:
    """One share of (model, variant, device kind). `error`: not 0 where it is to be a prediction."""
    draw = random.Random(f"{identity} {share}")
    points = tuple(
        _point(draw, size, rows, cost.latency_us(rows, size, share.amount), identity[2] == GPU)
        for size in sizes
        for rows in batches
    )
    kind, seconds = identity[2], sum(point.p50_us * point.count for point in points) / 1e6
    command = "" if error else f"penstock profile {identity[0]} --shares {share}"
    origin = Origin(
        "2026-11-21T13:40:00+00:00", command, MACHINES[kind], "3f5a9c01", seconds, 0.021, error=error
    )
    return Profile(*identity, points, 41_000, cost.weights, share=share, warm_us=8_000, origin=origin)


def _point(draw: random.Random, size: int, rows: int, latency_us: float, powered: bool) -> Point:
    p50 = latency_us * draw.uniform(0.97, 1.03)
    p95 = p50 * draw.uniform(1.05, 1.15)
    power_w = 180.0 + 2 * rows if powered else 0.0
    return Point(size, rows, p50, p95, 100, p95 * draw.uniform(1.02, 1.2), 950.0, rows * 300_000, power_w)


def store(folder: Path) -> ProfileStore:
    """All of it, written to `folder` and as it is read back."""
    found = ProfileStore(folder)
    for cores in (1.0, 2.0):
        for variant, cost in (("linear", Cost(45, 0.9, 1.1)), ("cnn", Cost(300, 230, 1.8, 460_000))):
            found.write(profile(("digits", variant, CPU), Share("cores", cores), cost))
        texts = ("minilm", "fp32-128", CPU)
        found.write(
            profile(
                texts,
                Share("cores", cores),
                Cost(2_000, 14_000, 1.9, 90_900_000),
                (1, 2, 4, 8, 16),
                (128, 512),
            )
        )
    for percent in range(10, 101, 10):
        error = 0.12 if percent == 70 else 0.0
        share = Share("mps", float(percent))
        found.write(
            profile(("digits", "cnn", GPU), share, Cost(350, 160, 45.0), (*DOUBLING, 128, 256), error=error)
        )
    return found
