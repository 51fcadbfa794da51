"""Which build of a variant answers: gateways that share kept answers, and a gateway with its own of before a
restart, must not take those of another.
"""

from contextlib import suppress
from dataclasses import replace

from router.settings import Settings
from router.settings.model_file.revisions import build_of, digest_of_guards, revision_of
from serving.runtime.files.artifacts import files_of_artifact
from serving.values.specs import ServedModel, VariantSpec


def identified(settings: Settings) -> Settings:
    """Return the settings with each model's revision, its variants' artifact sizes, and the build of each
    variant with kept answers.

    For a build it reads the files. That takes the disk's time and up to 1 s a gigabyte, so do not call it in
    an event loop.
    """
    kept = settings.cache is not None
    return replace(settings, models=tuple(identify(model, kept and model.cache) for model in settings.models))


def identify(model: ServedModel, kept: bool) -> ServedModel:
    """Return one model with its revision, artifact sizes and builds. `kept`: whether its answers are kept."""
    spec = model.spec
    guards = digest_of_guards(spec)
    variants = tuple(
        replace(
            variant,
            build=build_of(spec, variant) + guards if kept else variant.build,
            artifact_bytes=_artifact_bytes(variant),
        )
        if variant.name in model.variants
        else variant
        for variant in spec.variants
    )
    return replace(model, spec=replace(spec, variants=variants), revision=revision_of(model))


def _artifact_bytes(variant: VariantSpec) -> int:
    total = 0
    for _, path in files_of_artifact(variant.artifact) if variant.artifact is not None else ():
        with suppress(OSError):
            total += path.stat().st_size
    return total
