"""`validation:` of a model.yaml: the answers of variants on rows that none was trained on."""

import json
from pathlib import Path

import pytest

from router.settings import load_model
from router.settings.model_file.validation import VALIDATION_BYTES_MAX
from serving.values.specs import Validation
from tests.router.settings.samples import DIGITS, model_faults, write_model

MODEL = DIGITS.replace("build: build.py", "validation: {file: build/validation.json}\nbuild: build.py")
SOUND = '{"labels": [7, 2],\n "predictions": {"linear": [7, 1], "cnn": [7, 2]}}'


def folder_of(home: Path, text: str | bytes = SOUND) -> Path:
    folder = write_model(home / "models" / "digits", MODEL)
    file = folder / "build" / "validation.json"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def test_it_holds_labels_and_what_each_variant_named(home: Path) -> None:
    expected = Validation((7, 2), (("linear", (7, 1)), ("cnn", (7, 2))))
    assert load_model(folder_of(home)).validation == expected


def test_not_every_variant_has_to_be_there(home: Path) -> None:
    found = load_model(folder_of(home, '{"labels": [1], "predictions": {"cnn": [0]}}')).validation
    assert found == Validation((1,), (("cnn", (0,)),))


def test_without_the_key_there_is_none(home: Path) -> None:
    assert load_model(home / "models" / "digits").validation is None


def test_one_that_is_missing_is_not_built(home: Path) -> None:
    folder = folder_of(home)
    (folder / "build" / "validation.json").unlink()
    (fault,) = model_faults(folder, MODEL)
    assert fault.startswith("model.yaml:13:20: validation.file: 'build/validation.json' is missing; ")
    assert fault.endswith(f"{folder} is not built: run python build.py")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[7, 1]", "[7]", "2:28: predictions.linear: of another length than the labels; got a list of 1, "
         "expected 2 numbers, one for each label"),
        ('"cnn"', '"cmn"', "2:36: predictions.cmn: unknown variant; got 'cmn', expected linear or cnn "
         "(did you mean cnn?)"),
        ("[7, 2],", "[7, 2.5],", "1:16: labels[1]: not a class; got 2.5, "
         "expected a whole number of 0 or more"),
        ("[7, 1]", "[7, true]", "2:32: predictions.linear[1]: not a class; got true, "
         "expected a whole number of 0 or more"),
        ("[7, 1]", "[7, -1]", "2:32: predictions.linear[1]: not a class; got -1, "
         "expected a whole number of 0 or more"),
        ("[7, 2],", "[],", "1:12: labels: not a list of classes; got an empty list, "
         "expected numbers of classes, such as [7, 2]"),
        ('"labels": [7, 2],', "", "1:1: labels: this key is required"),
        ('{"linear": [7, 1], "cnn": [7, 2]}', "{}", "2:17: predictions: no predictions; got a mapping, "
         "expected variants and the classes that each named"),
        (SOUND, "[1, 2]", "1:1: not a mapping; got a list of 2, expected labels and predictions"),
        ("[7, 2],", "[7, 2", "2:2: not valid JSON: "),
        ("[7, 2],", "[7, NaN],", "1:16: not valid JSON: "),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_place_in_the_file(home: Path, old: str, new: str, expected: str) -> None:
    assert old in SOUND
    faults = model_faults(folder_of(home, SOUND.replace(old, new, 1)), MODEL)
    assert faults[-1].startswith(f"build/validation.json:{expected}")
    assert len(faults) == 1


def test_a_long_one_is_read_quickly_and_its_faults_are_named_without_their_lines(home: Path) -> None:
    rows = [row % 10 for row in range(60_000)]
    table = {"labels": rows, "predictions": {"linear": rows, "cnn": rows}}
    spec = load_model(folder_of(home, json.dumps(table)))
    assert spec.validation == Validation(tuple(rows), (("linear", tuple(rows)), ("cnn", tuple(rows))))
    table["predictions"] = {"linear": rows[:-1]}
    (fault,) = model_faults(folder_of(home, json.dumps(table)), MODEL)
    assert fault.startswith(
        "build/validation.json:1:1: predictions.linear: of another length than the labels"
    )


def test_one_that_is_no_file_or_far_too_large_is_refused(home: Path) -> None:
    folder = folder_of(home)
    file = folder / "build" / "validation.json"
    with file.open("wb") as stream:
        stream.truncate(VALIDATION_BYTES_MAX + 1)
    (fault,) = model_faults(folder, MODEL)
    assert fault == "build/validation.json:1:1: the file is too large; expected at most 64 MB"
    file.unlink()
    file.mkdir()
    (fault,) = model_faults(folder, MODEL)
    assert fault == "build/validation.json:1:1: cannot be read: Is a directory"


def test_bytes_that_are_no_text_are_no_json(home: Path) -> None:
    (fault,) = model_faults(folder_of(home, b'{"labels": "\xff"}'), MODEL)
    assert fault.startswith("build/validation.json:1:")
    assert "not valid JSON" in fault
