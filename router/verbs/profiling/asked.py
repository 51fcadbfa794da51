"""What `penstock profile` is asked for, as values. UsageError says what is wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from router.commandline.spelling import nearest
from router.settings import SettingsError, load_model
from router.settings.model_file.folders import is_version, versions_in
from router.settings.values.problems import one_of, shown
from serving.values.slice_specs import Share
from serving.values.specs import ModelSpec
from serving.values.versions import MARK, version_name

MODELS = Path("models")


class MeasureRequestError(Exception):
    """Nothing can be measured as asked; the text says why and what would be right."""


@dataclass(frozen=True, slots=True)
class Target:
    """One profile to be measured."""

    model: ModelSpec
    variant: str
    share: Share

    def __str__(self) -> str:
        return f"{self.model.name} {self.variant} on {self.share}"


def find_model(text: str) -> ModelSpec:
    """Return the model in the folder `text`, or of that name below models/; `digits@1` is version 1."""
    if not text:
        raise MeasureRequestError(
            "which model? Give its folder or its name, such as `penstock profile digits`"
        )
    text, _, version = text.partition(MARK)
    folder = Path(text)
    if not folder.is_dir() and "/" not in text:
        folder = MODELS / text
    if not folder.is_dir():
        known = sorted(path.parent.name for path in MODELS.glob("*/model.yaml"))
        raise MeasureRequestError(
            f"there is no model {shown(text)}; expected a folder{_or_one_of(text, known)}"
        )
    if version and (not is_version(version) or int(version) not in versions_in(folder)):
        raise MeasureRequestError(
            f"{folder} has no version {shown(version)}; expected a numbered folder in it"
        )
    try:
        spec = load_model(folder, int(version or 0))
        return replace(spec, name=version_name(spec.name, version)) if version else spec
    except SettingsError as error:
        raise MeasureRequestError(str(error)) from None


def _or_one_of(text: str, known: Sequence[str]) -> str:
    if not known:
        return f" with a model.yaml (there is none below {MODELS})"
    near = nearest(text, known)
    return f" or one of {', '.join(known)}" + (f"; did you mean {shown(near)}?" if near else "")


def find_variants(model: ModelSpec, text: str) -> list[str]:
    """Return those of `text`, comma-separated; all of the model where it is empty."""
    known = [variant.name for variant in model.variants]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise MeasureRequestError(
                f"--variant: {model.name} has no variant {shown(name)}; expected {one_of(known)}"
            )
    return names or known


def find_numbers(option: str, text: str, largest: int) -> tuple[int, ...]:
    """Return the whole numbers of a comma-separated list, ascending, each once."""
    found = set()
    for word in filter(None, (word.strip() for word in text.split(","))):
        if not word.isdecimal() or not 1 <= int(word) <= largest:
            raise MeasureRequestError(
                f"{option}: expected whole numbers from 1 to {largest}, got {shown(word)}"
            )
        found.add(int(word))
    return tuple(sorted(found))
