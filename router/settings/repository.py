"""`repository:` as RepositorySettings: where models lie that `models:` need not name, and whether clients may
load and unload them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from router.settings.model_file.folders import MODEL_FILE, stated_in
from router.settings.values.findings import Findings
from router.settings.values.problems import SettingsError, SettingsProblem, fault, nearest_path
from router.settings.values.schema import RepositorySection
from serving.values.objectives import Needs
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ModelSpec, ServedModel

_LOC = ("repository",)


@dataclass(frozen=True, slots=True)
class RepositorySettings:
    """`folders` hold model folders, which may be loaded by name; `control`: clients may load and unload."""

    folders: tuple[Path, ...] = ()
    control: bool = True


def read_repository(findings: Findings) -> RepositorySettings:
    """Return the section; its folders have to be there, and may be empty."""
    section = None
    if isinstance(findings.document.at(_LOC), dict):
        section = findings.parse(RepositorySection, _LOC)
    if section is None:
        return RepositorySettings()
    home = findings.document.file.parent
    folders = tuple(Path(os.path.abspath(home / folder)) for folder in section.folders)
    for index, folder in enumerate(folders):
        if not os.path.isdir(folder):  # unlike Path.is_dir, never an OSError
            there = os.path.lexists(folder)
            what, near = ("not a folder", "") if there else ("no such folder", nearest_path(folder))
            expected = "a folder that holds model folders"
            findings.add((*_LOC, "folders", index), fault(what, folder, expected, near))
    return RepositorySettings(folders, section.control)


def find_folders(folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield every model folder in `folders`, by its model's name; of one name the first counts.

    What cannot be read, or states no name, goes by the name of its folder. It may read every model.yaml.
    """
    seen = set()
    for home in folders:
        try:
            names = sorted(os.listdir(home))
        except OSError:  # it was there when the settings were read
            continue
        for folder in (home / name for name in names):
            if os.path.isfile(folder / MODEL_FILE):
                name = stated_in(folder).name or folder.name
                if name not in seen:
                    seen.add(name)
                    yield name, folder


def serve_alone(
    spec: ModelSpec, slices: Sequence[SliceSpec], tiers: Sequence[Needs] = (), cache: bool = False
) -> ServedModel:
    """Return a model that `models:` does not name: its own SLO, all variants, on all slices. `tiers`: those
    of the settings; `cache`: they ask for kept answers. SettingsError where its model.yaml states no SLO."""
    if not spec.slo_us:
        message = f"how soon is {spec.name} to answer? expected slo_ms: 100, say, or an entry in `models:`"
        raise SettingsError([SettingsProblem(str(spec.home / MODEL_FILE), 1, 1, "slo_ms", message)])
    return ServedModel(
        spec=spec,
        slo_us=spec.slo_us,
        variants=tuple(variant.name for variant in spec.variants),
        slices=tuple(each.name for each in slices),
        cache=cache and any(variant.deterministic for variant in spec.variants),
        needs=Needs(slo_rows=spec.slo_rows or None),
        tiers=tuple(tiers),
    )
