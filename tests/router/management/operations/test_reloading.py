"""Models are loaded again when their files change, and stay as they were where that fails."""

import dataclasses
from pathlib import Path

import pytest
from grpc import StatusCode

from router.management.operations.reloading import ModelReloads
from router.management.operations.repository.refusals import Refusal, RepositoryError
from router.settings import load_settings
from tests.router.settings.samples import write_deployment

VERSIONED = """\
name: m
inputs: [{name: x, datatype: FP32, shape: [-1, 4]}]
outputs: [{name: y, datatype: FP32, shape: [-1, 4]}]
batch_max: 8
slo_ms: 50
version_policy: all
"""


class Loads:
    """Counts the loads; a name in `broken` is refused."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.broken: set[str] = set()

    async def load(self, name: str) -> None:
        self.loaded.append(name)
        if name in self.broken:
            raise RepositoryError(Refusal(400, StatusCode.INVALID_ARGUMENT), f"{name} is broken")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_deployment(tmp_path)
    return tmp_path


async def test_only_models_with_other_files_are_loaded(home: Path) -> None:
    settings, loads, said = load_settings(home / "penstock.yaml"), Loads(), list[str]()
    reloads = ModelReloads(loads, lambda: settings, said.append)
    await reloads.look()
    await reloads.look()
    assert loads.loaded == []
    (home / "models" / "digits" / "model.py").write_text("x = 1")
    await reloads.look()
    await reloads.look()
    assert loads.loaded == ["digits"]
    assert said == ["the files of digits have changed: it is loaded again"]


async def test_a_load_that_fails_is_said_and_the_next_edit_is_tried(home: Path) -> None:
    settings, loads, said = load_settings(home / "penstock.yaml"), Loads(), list[str]()
    reloads = ModelReloads(loads, lambda: settings, said.append)
    loads.broken = {"digits"}
    for text in ("x = 1", "x = 22", "x = 333"):
        await reloads.look()
        (home / "models" / "digits" / "model.py").write_text(text)
    await reloads.look()
    assert loads.loaded == ["digits"] * 3
    assert said[1] == "digits stays as it was: digits is broken"


async def test_a_model_that_comes_is_followed_from_then_on(home: Path) -> None:
    settings, loads = load_settings(home / "penstock.yaml"), Loads()
    shown = [dataclasses.replace(settings, models=settings.models[:1]), settings]
    reloads = ModelReloads(loads, lambda: shown[0], lambda _: None)
    await reloads.look()
    shown.pop(0)
    await reloads.look()
    assert loads.loaded == []


async def test_a_model_is_loaded_when_a_numbered_folder_comes_or_one_of_its_versions_changes(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "m"
    for version in (1, 2):
        (folder / str(version)).mkdir(parents=True)
    (folder / "model.yaml").write_text(VERSIONED)
    (tmp_path / "penstock.yaml").write_text("models: [{path: m}]\n")
    settings, loads = load_settings(tmp_path / "penstock.yaml"), Loads()
    assert [each.name for each in settings.models] == ["m", "m@1"]
    reloads = ModelReloads(loads, lambda: settings, lambda _: None)
    await reloads.look()
    (folder / "3").mkdir()
    await reloads.look()
    (folder / "1" / "model.py").write_text("x = 1")
    await reloads.look()
    assert loads.loaded == ["m", "m"]
