"""Values of the domain for tests, short to write."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from serving.profile.curve import Point, Profile
from serving.values.objectives import Needs
from serving.values.specs import BatchingSpec, ModelSpec, ServedModel, SizeHint, TensorSpec, VariantSpec

KIND = "cpu-test-1t"


def model_spec(
    name: str = "m",
    variants: tuple[str, ...] = ("a",),
    batch_max: int = 8,
    buckets: tuple[int, ...] = (),
    slo_ms: int = 50,
) -> ModelSpec:
    """A model of one FP32 [-1,4] input and output; with buckets, a BYTES [-1,1] input."""
    sized = TensorSpec("TEXT", "BYTES", (-1, 1))
    plain = TensorSpec("X", "FP32", (-1, 4))
    return ModelSpec(
        name=name,
        folder=Path("nowhere"),
        inputs=(sized if buckets else plain,),
        outputs=(TensorSpec("Y", "FP32", (-1, 4)),),
        variants=tuple(VariantSpec(variant, None, deterministic=True) for variant in variants),
        default_variant=variants[0],
        slo_us=slo_ms * 1000,
        batch_max=batch_max,
        size_hint=SizeHint("TEXT", buckets) if buckets else None,
    )


def served(
    spec: ModelSpec | None = None, slices: tuple[str, ...] = ("s",), batching: BatchingSpec | None = None
) -> ServedModel:
    """The model on these slices with all its variants and its own SLO."""
    spec = spec or model_spec()
    names = tuple(variant.name for variant in spec.variants)
    return ServedModel(spec, spec.slo_us, names, slices, batching or BatchingSpec())


def graded(
    accuracy: Mapping[str, float | None],
    needs: Needs | None = None,
    tiers: tuple[Needs, ...] = (),
    batching: BatchingSpec | None = None,
) -> ServedModel:
    """The model with variants of such accuracies, the first its default one; what is promised of it."""
    spec = model_spec(variants=tuple(accuracy), slo_ms=60_000)
    spec = replace(
        spec,
        variants=tuple(
            VariantSpec(name, None, (), got, deterministic=True) for name, got in accuracy.items()
        ),
    )
    return replace(served(spec, batching=batching), needs=needs or Needs(), tiers=tiers)


def profile(
    model: str = "m", variant: str = "a", row_us: float = 100, rows: int = 8, count: int = 3
) -> Profile:
    """Latency of `row_us` a row, measured at 1 and `rows` rows."""
    points = (
        Point(0, 1, row_us, row_us, count),
        Point(0, rows, row_us * rows, row_us * rows, count),
    )
    return Profile(model, variant, KIND, points)
