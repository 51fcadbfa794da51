"""Which build of a variant answers: gateways that share kept answers, and a gateway with its own of before a
restart, must not take those of another.
"""

from contextlib import suppress
from dataclasses import replace
from hashlib import file_digest, sha256
from pathlib import Path

from router.settings import Settings
from router.settings.model_file.models import MODEL_FILE
from serving.profile.files.shared_files import open_regular
from serving.runtime.files.artifacts import files_of_artifact
from serving.values.specs import ModelSpec, ServedModel, VariantSpec, guards_of


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
    guards = _guards(spec)
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


def _guards(spec: ModelSpec) -> str:
    """Return a digest of the guards of the model's outputs, or "" if it has none. Workers hold to the guards,
    and kept answers have passed them."""
    guards = sorted((name, repr(guard)) for name, guard in guards_of(spec).items())
    return f"+{sha256(repr(guards).encode()).hexdigest()[:16]}" if guards else ""


def _artifact_bytes(variant: VariantSpec) -> int:
    total = 0
    for _, path in files_of_artifact(variant.artifact) if variant.artifact is not None else ():
        with suppress(OSError):
            total += path.stat().st_size
    return total


def revision_of(model: ServedModel) -> str:
    """Return a digest of the names, sizes and times of change of what `build_of` reads, of all served
    variants: it costs next to nothing, and another one says that the model should be loaded anew."""
    files = [
        file
        for variant in model.spec.variants
        if variant.name in model.variants
        for file in _files(model.spec, variant)
    ]
    whole = sha256()
    for name, path in dict.fromkeys(files):
        try:
            about = path.stat()
        except OSError:
            continue
        whole.update(f"{name}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
    return whole.hexdigest()[:16] + _guards(model.spec)


def build_of(spec: ModelSpec, variant: VariantSpec) -> str:
    """Return the SHA-256 over `model.yaml`, the Python files of the folder and beside the model's code, and
    the variant's artifact (a file, or all files below it). It covers contents and relative names, so equal
    copies elsewhere are the same build.

    A file that cannot be read counts as not there: no worker loads it either.
    """
    whole = sha256()
    for name, path in _files(spec, variant):
        try:
            with open_regular(path) as file:
                content = file_digest(file, "sha256").digest()
        except OSError:
            continue
        whole.update(len(name.encode()).to_bytes(8, "little") + name.encode() + content)
    return whole.hexdigest()


def _files(spec: ModelSpec, variant: VariantSpec) -> list[tuple[str, Path]]:
    """Return what decides a variant's answers: relative names and paths."""
    folder = spec.code.parent if spec.code is not None else spec.folder
    files = [(path.name, path) for path in (spec.folder / MODEL_FILE, *sorted(folder.glob("*.py")))]
    if variant.artifact is not None:
        files += files_of_artifact(variant.artifact)
    return files
