"""What the checks say of folders that cannot be written, and of profiles that are not there."""

import os
from dataclasses import replace
from pathlib import Path

from router.settings import Settings
from router.verbs.doctor.machine import Machine
from router.verbs.doctor.storage import check_folders, check_profiles
from serving.profile.device import device_kind
from serving.profile.files.store import LOCAL, ProfileStore
from serving.values.slice_specs import SliceSpec
from serving.values.specs import RecordingSpec
from tests.builders import profile
from tests.router.verbs.doctor.roots import deployment, is_fault, is_ok, is_warning, machine


def closed(home: Path, folder: Path) -> Machine:
    """Return a machine on which that folder cannot be written."""
    return replace(machine(home), may=lambda path, mode: not (path == folder and mode & os.W_OK))


def test_folders_are_fine_where_the_nearest_one_that_is_there_can_be_written(tmp_path: Path) -> None:
    settings = deployment(tmp_path)
    assert is_ok(check_folders(machine(tmp_path), settings))
    assert not (settings.profiles / LOCAL).exists()  # it was not made
    found = check_folders(closed(tmp_path, tmp_path), settings)
    assert is_warning(found)
    assert str(settings.profiles / LOCAL) in found.sentence


def test_a_recording_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    settings = replace(deployment(tmp_path), recording=RecordingSpec(folder))
    assert is_ok(check_folders(machine(tmp_path), settings))
    assert is_fault(check_folders(closed(tmp_path, folder), settings))
    in_a_file = replace(settings, recording=RecordingSpec(settings.path / "recordings"))
    assert is_fault(check_folders(machine(tmp_path), in_a_file))


def one_model(home: Path) -> Settings:
    settings = deployment(home)
    (digits,) = (each for each in settings.models if each.name == "digits")
    return replace(settings, models=(digits,))


def test_what_was_not_measured_is_named(tmp_path: Path) -> None:
    settings = one_model(tmp_path)
    found = check_profiles(settings, device_kind)
    assert is_warning(found)
    assert found.sentence == "not measured on their slices: digits.cnn, digits.linear"
    store = ProfileStore(settings.profiles)
    kind = device_kind(SliceSpec("", ()))
    for variant in ("cnn", "linear"):
        store.write_local(replace(profile(), model="digits", variant=variant, device_kind=kind))
    assert check_profiles(settings, device_kind).sentence == "all 2 variants were measured on their slices"
    assert is_warning(check_profiles(settings, lambda _: ""))  # a device that is not there
