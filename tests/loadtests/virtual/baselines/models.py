"""Models by what a replica carries on each share, and pools to put them on."""

from collections.abc import Mapping

from serving.policy.placement.terms.geometry import A100_80
from serving.policy.placement.terms.plan import Draft
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share

KIND = "gpu"
SLO_US = 100e6
NAMES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}


def asks(model: str, rate: float, carries: Mapping[int, float], **more: float) -> Demand:
    """Batches of up to 10 rows, each row as long; shares are per cent of a GPU, or compute slices up to 7."""
    instances = max(carries, default=0) in NAMES
    options = tuple(
        Option(
            KIND,
            Share.parse(f"mig:{NAMES[size]}") if instances else Share("mps", float(size)),
            "fp32",
            ((1, 1e6 / throughput), (10, 1e7 / throughput)),
            **more,  # type: ignore[arg-type]  # pressure, sensitivity
        )
        for size, throughput in carries.items()
    )
    return Demand(model, rate, SLO_US, options)


def on_mig(*demands: Demand, count: int = 9) -> PlacementProblem:
    """On A100s."""
    return PlacementProblem(demands, (Pool("gpus", KIND, Instances(A100_80), _devices(count)),))


def on_parts(*demands: Demand, count: int = 9, slices_max: int = 0) -> PlacementProblem:
    """On GPUs that MPS divides."""
    return PlacementProblem(demands, (Pool("gpus", KIND, Parts("mps", 100, slices_max), _devices(count)),))


def _devices(count: int) -> tuple[PlacementDevice, ...]:
    return tuple(PlacementDevice(f"gpu{place}") for place in range(count))


def cut(draft: Draft) -> list[list[tuple[str, int]]]:
    """(models, amount) of each slice of each device."""
    return [
        [
            ("+".join(resident.model for resident in slot.residents), round(slot.share.amount))
            for slot in bundle.slots
        ]
        for bundle in draft.bundles
    ]
