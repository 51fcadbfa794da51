"""`labels:` of an output: a list or a file, one for each value of a row, and a sentence for anything else."""

from pathlib import Path

import pytest

from router.settings import SettingsError, load_model
from serving.values.specs import Labels

MODEL = """\
name: m
inputs: [{name: X, datatype: FP32, shape: [-1, 4]}]
outputs: [{name: Y, datatype: %s, shape: %s, labels: %s}]
batch_max: 4
slo_ms: 10
"""


def written(home: Path, labels: str, datatype: str = "FP32", shape: str = "[-1, 3]") -> Path:
    (home / "model.yaml").write_text(MODEL % (datatype, shape, labels))
    (home / "model.py").touch()
    return home


def test_a_list_of_labels_is_read(tmp_path: Path) -> None:
    assert load_model(written(tmp_path, "[cat, dog, bird]")).outputs[0].labels == Labels(
        ("cat", "dog", "bird")
    )


def test_a_file_has_one_label_a_line(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes("cat\r\n dog \nécrevisse\n\n".encode())
    found = load_model(written(tmp_path, "labels.txt")).outputs[0].labels
    assert found == Labels(("cat", "dog", "écrevisse"), "labels.txt")


def test_an_output_without_labels_has_none(tmp_path: Path) -> None:
    assert load_model(written(tmp_path, "null")).outputs[0].labels is None


@pytest.mark.parametrize(
    ("labels", "datatype", "shape", "sentence"),
    [
        ("[cat, dog]", "FP32", "[-1, 3]", "another number of labels; got 2, expected one for each of the 3"),
        ("[cat]", "BYTES", "[-1, 1]", "BYTES has no classes; expected labels only of an output of numbers"),
        ("[cat]", "FP32", "[-1, -1]", "does not say how many values a row has; expected labels only where"),
        ("missing.txt", "FP32", "[-1, 3]", "missing.txt' cannot be read: No such file or directory"),
        ("latin.txt", "FP32", "[-1, 3]", "expected one label a line, in UTF-8"),
        ("[1, 2, 3]", "FP32", "[-1, 3]", "not labels"),
        ("[]", "FP32", "[-1, 3]", "not labels"),
        (f"[a, b, {'c' * 300}]", "FP32", "[-1, 3]", "a label that is too long"),
    ],
)
def test_faulty_labels_are_named_with_their_place(
    tmp_path: Path, labels: str, datatype: str, shape: str, sentence: str
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"\xe9\n")
    with pytest.raises(SettingsError) as caught:
        load_model(written(tmp_path, labels, datatype, shape))
    assert sentence in str(caught.value)
    assert "outputs[0].labels" in str(caught.value)


def test_an_input_has_no_labels(tmp_path: Path) -> None:
    text = MODEL % ("FP32", "[-1, 3]", "null")
    (tmp_path / "model.yaml").write_text(text.replace("shape: [-1, 4]", "shape: [-1, 4], labels: [a]"))
    with pytest.raises(SettingsError, match="labels"):
        load_model(tmp_path)
