"""Whether the models of slices with `memory_mb` fit them, each alone, by what was measured of them."""

from router.settings.served.floors import answering
from router.settings.values.findings import Findings
from router.verbs.feasibility import Measurements
from serving.control.on_demand.on_demand import memory_estimate
from serving.values.slice_specs import SliceSpec

_MB = 1 << 20


def check_memory(findings: Findings, index: int, measured: Measurements) -> None:
    """Hold what variants of `models[index]` take against their slices' `memory_mb`: an error where none that
    may answer fits any of its slices, a warning where one does not fit one of them."""
    model = measured.model
    may = answering(model, model.own)
    large: dict[str, list[str]] = {}
    for variant in model.variants:
        for each in measured.slices:
            if need_bytes := _too_large(measured, variant, each):
                text = f"{each.name} has {each.memory_bytes / _MB:.0f} MB for models (memory_mb)"
                large.setdefault(variant, []).append(
                    f"{model.name} {variant} takes {need_bytes / _MB:.0f} MB, and slice {text}"
                )
    hopeless = bool(may) and all(len(large.get(variant, ())) == len(measured.slices) for variant in may)
    for variant, sentences in large.items():
        for sentence in sentences:
            if hopeless and variant in may:
                findings.add(("models", index), f"{sentence}: it cannot be loaded; raise memory_mb")
            else:
                findings.warn(("models", index), f"{sentence}: it is never loaded there")


def _too_large(measured: Measurements, variant: str, on: SliceSpec) -> int:
    """Return what it takes, in bytes, where that is more than the slice has; else 0."""
    if not on.memory_bytes:
        return 0
    latency = measured.of(variant, on.name)
    artifact_bytes = measured.model.spec.variant(variant).artifact_bytes
    profile = latency.profile if latency is not None else None
    need_bytes = memory_estimate(profile, artifact_bytes, on.memory_bytes)
    return need_bytes if need_bytes > on.memory_bytes else 0
