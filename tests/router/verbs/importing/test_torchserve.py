"""`penstock import --torchserve`: an archive's own handler answers, in batches, and says what it lacks."""

import json
import warnings
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from router.settings import load_settings
from router.verbs.importing.command import import_models
from router.verbs.importing.options import ImportOptions
from serving.worker.backends.python import PythonBackend
from serving.worker.frames.orders import LoadOrder

CLASS = """\
from weights import SCALE

class Scaler:
    def initialize(self, context):
        self.scale = SCALE * context.model_yaml_config["factor"]
        assert context.system_properties["gpu_id"] is None

    def handle(self, data, context):
        context.metrics.add_time("nothing", 1)
        return [{"y": each["body"]["x"] * self.scale} for each in data]
"""
FUNCTION = """\
def answer(data, context):
    return [each["body"][::-1] if isinstance(each["body"], bytes) else "text" for each in data]
"""


def archive(folder: Path, code: str, **model: object) -> Path:
    file = folder / "net.mar"
    about = {"modelName": "net", "handler": "handler.py", **model}
    with ZipFile(file, "w") as made:
        made.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": about}))
        made.writestr("handler.py", code)
        made.writestr("weights.py", "SCALE = 3\n")
        made.writestr("model-config.yaml", "batchSize: 4\nmaxBatchDelay: 50\nfactor: 2\n")
    return file


def imported(folder: Path, file: Path, example: bytes, slo: str = "50ms") -> int:
    (folder / "body").write_bytes(example)
    options = ImportOptions(torchserve=file, example=folder / "body", to=folder / "to", slo=slo)
    return import_models(options)


def answers(folder: Path, *bodies: bytes) -> list[bytes]:
    """What the model answers, as the settings that were written serve it."""
    (served,) = load_settings(folder / "to" / "penstock.yaml").models
    model = PythonBackend(1).load(LoadOrder.of(1, served.spec, "default"))
    rows = np.empty((len(bodies), 1), object)
    rows[:, 0] = bodies
    found = np.asarray(model.predict({"BODY": rows}, {})["ANSWER"])
    return [bytes(each) for each in found[:, 0]]


@pytest.mark.slow
@pytest.mark.live
def test_a_class_answers_batches_and_its_latency_gives_the_slo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(tmp_path, archive(tmp_path, CLASS), b'{"x": 1}', slo="") == 0
    said = capsys.readouterr().out
    assert "imported  net: its handler, batches of up to 4 rows, SLO 10 ms (as derived or stated)" in said
    assert "note: maxBatchDelay is left out: the gateway finds batches by the SLO" in said
    assert answers(tmp_path, b'{"x": 1}', b'{"x": 5}') == [b'{"y": 6}', b'{"y": 30}']


def test_a_function_that_the_manifest_names_takes_bytes_and_json(tmp_path: Path) -> None:
    assert imported(tmp_path, archive(tmp_path, FUNCTION, handler="handler.py:answer"), b"abc") == 0
    assert answers(tmp_path, b"abc", b"[1]", b"{no json") == [b"cba", b"text", b"nosj on{"]


def test_what_a_handler_needs_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = archive(tmp_path, CLASS, handler="image_classifier", requirementsFile="requirements.txt")
    assert imported(tmp_path, file, b"x") == 0
    said = capsys.readouterr().out
    assert "its handler is TorchServe's own: `pip install torchserve`" in said
    assert "archive/requirements.txt`, or `python:` of a slice" in said


def test_an_answer_that_is_no_list_of_the_rows_is_an_error(tmp_path: Path) -> None:
    code = "def handle(data, context): return [1]\n"
    assert imported(tmp_path, archive(tmp_path, code), b"x") == 0
    with pytest.raises(ValueError, match="answers 2 bodies with a list of 1; expected a list"):
        answers(tmp_path, b"a", b"b")


def test_what_is_no_archive_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "junk.mar").write_text("junk")
    with ZipFile(tmp_path / "empty.mar", "w") as made:
        made.writestr("handler.py", "")
    said = {}
    for name in ("junk.mar", "empty.mar"):
        assert imported(tmp_path, tmp_path / name, b"x") == 2
        said[name] = capsys.readouterr().err
    assert "junk.mar is no model archive of TorchServe: File is not a zip file" in said["junk.mar"]
    assert "empty.mar has no MAR-INF/MANIFEST.json with a model and its handler" in said["empty.mar"]
    assert import_models(ImportOptions(torchserve=tmp_path / "junk.mar", to=tmp_path / "to")) == 2
    assert "--example states no body; expected a body that the handler takes" in capsys.readouterr().err
    assert import_models(ImportOptions(to=tmp_path / "to")) == 2
    assert "expected --triton REPOSITORY or --torchserve FILE.mar" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["many", "0", "true"])
def test_a_batch_size_that_is_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: str
) -> None:
    file = archive(tmp_path, CLASS)
    with ZipFile(file, "a") as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the later of two entries counts
        made.writestr("model-config.yaml", f"batchSize: {size}\n")
    assert imported(tmp_path, file, b"x") == 2
    assert "net.mar states batchSize: " in capsys.readouterr().err
