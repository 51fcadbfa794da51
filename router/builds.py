"""Which build of a variant answers: gateways that share kept answers, and a gateway with its own of before a
restart, must not take those of another.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from hashlib import file_digest, sha256
from pathlib import Path

from router.settings import Settings
from router.settings.models import MODEL_FILE
from serving.specs import ServedModel, VariantSpec


def identified(settings: Settings) -> Settings:
    """The settings with the build of every variant of which answers are kept.

    It reads the files, and so takes what the disk does, and up to 1 s a gigabyte: once, before the loop runs.
    """
    if settings.cache is None:
        return settings
    models = tuple(_identified(model) if model.cache else model for model in settings.models)
    return replace(settings, models=models)


def _identified(model: ServedModel) -> ServedModel:
    spec = model.spec
    variants = tuple(
        replace(variant, build=build_of(spec.folder, variant)) if variant.name in model.variants else variant
        for variant in spec.variants
    )
    return replace(model, spec=replace(spec, variants=variants))


def build_of(folder: Path, variant: VariantSpec) -> str:
    """SHA-256 over `model.yaml`, the folder's Python files, and the variant's artifact (a file, or all files
    below it): their contents and relative names, so that equal copies elsewhere are the same build.

    What cannot be read counts as not there: no worker loads it either.
    """
    files = [(path.name, path) for path in (folder / MODEL_FILE, *sorted(folder.glob("*.py")))]
    if variant.artifact is not None:
        files += _below(variant.artifact)
    whole = sha256()
    for name, path in files:
        try:
            with path.open("rb") as file:
                content = file_digest(file, "sha256").digest()
        except OSError:
            continue
        whole.update(len(name.encode()).to_bytes(8, "little") + name.encode() + content)
    return whole.hexdigest()


def _below(artifact: Path) -> Iterator[tuple[str, Path]]:
    if not artifact.is_dir():
        yield artifact.name, artifact
        return
    for root, folders, names in os.walk(artifact):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            yield str(path.relative_to(artifact)), path
