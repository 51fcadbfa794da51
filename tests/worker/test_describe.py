"""A process of its own says what a model takes and answers, and in one sentence why it cannot."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from serving.worker import describe
from tests.worker.backends.graphs import linear, mean

SHORT = "import numpy as np\ndef sample(rows): return {'x': np.ones((rows, 4), np.float32)}\n"


def told(monkeypatch: pytest.MonkeyPatch, folder: Path, *asked: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what it wrote."""
    to = folder / "told.json"
    monkeypatch.setattr(sys, "argv", ["describe", *asked, "--to", str(to)])
    code = describe.main()
    return code, json.loads(to.read_text())


def test_a_signature_comes_with_what_a_row_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, found = told(monkeypatch, tmp_path, "onnx", str(linear(tmp_path / "net.onnx")))
    assert (code, found["inputs"][0]["name"]) == (0, "x")
    assert 0 < found["latency_ms"] < 10_000
    options = json.dumps({"dim.seq": 5})
    code, found = told(monkeypatch, tmp_path, "onnx", str(mean(tmp_path / "m.onnx")), "--options", options)
    assert (code, found["inputs"][0]["dimensions"]) == (0, ["batch", "seq", 8])


@pytest.mark.parametrize(
    ("code", "said", "frames"),
    [
        ("def predict(x): return x\n", "has no function sample(rows)", False),
        (SHORT + "def predict(x): raise OSError('weights are lost')\n", "OSError: weights are lost", True),
        (SHORT + "import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing", True),
        (
            SHORT + "def predict(x): return x.astype(complex)\n",
            "no datatype stands for numpy's complex",
            False,
        ),
        (SHORT + "def predict(x) return x\n", "SyntaxError: expected ':'", False),
    ],
)
def test_what_goes_wrong_is_a_sentence_with_the_models_own_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: str,
    said: str,
    frames: bool,
) -> None:
    file = tmp_path / "net.py"
    file.write_text(code)
    ended, found = told(monkeypatch, tmp_path, "python", str(file))
    assert ended == 1
    assert said in found["error"]
    shown = capsys.readouterr().err
    assert (str(file) in shown) is frames
    assert "serving/worker" not in shown


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, found = told(monkeypatch, tmp_path, "remote", "127.0.0.1:1/net")
    assert ended == 1
    assert "127.0.0.1:1 does not say what 'net' is" in found["error"]
