"""What tells one state of a model's files from another."""

from hashlib import file_digest, sha256
from pathlib import Path

from router.settings.model_file.folders import ModelFolder
from serving.profile.files.shared_files import open_regular
from serving.runtime.files.artifacts import files_of_artifact
from serving.values.specs import ModelSpec, ServedModel, VariantSpec, guards_of


def digest_of_guards(spec: ModelSpec) -> str:
    """Return a digest of the guards of the model's outputs, or "" if it has none. Workers hold to the guards,
    and kept answers have passed them."""
    guards = sorted((name, repr(guard)) for name, guard in guards_of(spec).items())
    return f"+{sha256(repr(guards).encode()).hexdigest()[:16]}" if guards else ""


def revision_of(model: ServedModel) -> str:
    """Return a digest of the names, sizes and times of change of what `build_of` reads, of all served
    variants: it costs next to nothing, and another one says that the model should be loaded anew. Versions
    are never of one revision: copies of files often have equal sizes and times."""
    files = [
        file
        for variant in model.spec.variants
        if variant.name in model.variants
        for file in _files(model.spec, variant)
    ]
    whole = sha256(str(model.spec.version or "").encode())
    for name, path in dict.fromkeys(files):
        try:
            about = path.stat()
        except OSError:
            continue
        whole.update(f"{name}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
    return whole.hexdigest()[:16] + digest_of_guards(model.spec)


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
    stated = ModelFolder(spec.home, spec.version).model_file
    files = [(path.name, path) for path in (stated, *sorted(folder.glob("*.py")))]
    if variant.artifact is not None:
        files += files_of_artifact(variant.artifact)
    return files
