"""`recording:`: off without it, what it becomes, and the one sentence for each way to get it wrong."""

import os
from pathlib import Path

import pytest

from router.settings import load_settings
from serving.values.specs import RecordingSpec
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]\n"
RECORDING = "recording: {folder: kept, file_mb: 1.5, files: 3}\n"


def recording(home: Path, text: str) -> RecordingSpec | None:
    return load_settings(write_gateway(home, MODELS + text)).recording


def test_a_section_becomes_this_recording_beside_the_file(home: Path) -> None:
    assert recording(home, RECORDING) == RecordingSpec(home / "kept", 3 << 19, 3)
    assert not (home / "kept").exists()


def test_everything_in_it_has_a_default(home: Path) -> None:
    assert recording(home, "recording: {}") == RecordingSpec(home / "recordings", 16 << 20, 8)


@pytest.mark.parametrize("text", ["", "recording:\n"])
def test_nothing_is_recorded_that_was_not_asked_for(home: Path, text: str) -> None:
    assert recording(home, text) is None


def test_a_folder_may_be_anywhere_and_be_there_already(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found = recording(home, f"recording: {{folder: {elsewhere}/}}")
    assert found is not None
    assert found.folder == elsewhere


FOLDER, SIZE, FILES = "2:21: recording.folder", "2:36: recording.file_mb", "2:48: recording.files"


@pytest.mark.parametrize(
    ("old", "new", "where", "sentence"),
    [
        ("1.5", "0", SIZE, "too small; got 0, expected 0.1 or more"),
        ("1.5", "5000", SIZE, "too large; got 5000, expected 4096 or less"),
        ("1.5", "big", SIZE, "not a number; got 'big', expected a number"),
        ("files: 3", "files: 0", FILES, "too small; got 0, expected 1 or more"),
        ("files: 3", "files: 2.5", FILES, "not a whole number; got 2.5, expected a whole number"),
        ("files: 3", "file: 3", "2:41: recording.file", "unknown key; got 'file', "
         "expected folder, file_mb or files (did you mean files?)"),
        ("kept", "5", FOLDER, "not text; got 5, expected text; quote what YAML would take for another type"),
        ("kept", "''", FOLDER, "empty; got '', expected text"),
        ("{folder: kept, file_mb: 1.5, files: 3}", "kept", "2:12: recording",
         "not a mapping; got 'kept', expected keys and values (key: value)"),
        ("kept", "penstock.yaml", FOLDER, "not a folder; got 'HOME/penstock.yaml', "
         "expected a folder that can be made and written to"),
        ("kept", "penstock.yaml/kept", FOLDER, "'HOME/penstock.yaml' is not a folder; "
         "got 'HOME/penstock.yaml/kept', expected a folder that can be made and written to"),
        ("kept", r'"a\0b"', FOLDER, r"no possible name; got 'HOME/a\x00b', "
         "expected a folder that can be made and written to"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(
    home: Path, old: str, new: str, where: str, sentence: str
) -> None:
    assert old in RECORDING
    (fault,) = gateway_faults(home, MODELS + RECORDING.replace(old, new, 1))
    assert fault == f"penstock.yaml:{where}: {sentence}".replace("HOME/", "")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_named(home: Path) -> None:
    (home / "kept").mkdir(mode=0o500)
    (fault,) = gateway_faults(home, MODELS + RECORDING)
    assert fault.startswith(f"penstock.yaml:{FOLDER}: 'kept' is not writable; got 'kept', expected")
