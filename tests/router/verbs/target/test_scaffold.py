"""`penstock new`: what it writes runs, and what it cannot write it says."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli import app
from router.verbs.target.templates import FILES


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def new(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["new", *words])
    return ended.exit_code, ended.output


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["python", "torch"])
def test_the_test_of_a_new_model_passes(home: Path, kind: str) -> None:
    code, told = new("flowers", "--kind", kind)
    assert code == 0, told
    assert told.splitlines()[0] == "flowers/ has flowers.py, test_flowers.py, load.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ended = subprocess.run(command, cwd=home / "flowers", capture_output=True, text=True, check=False)
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.slow
def test_a_new_estimator_is_fitted_and_written(home: Path) -> None:
    assert new("flowers", "--kind", "sklearn")[0] == 0
    subprocess.run([sys.executable, "train.py"], cwd=home / "flowers", check=True)
    assert (home / "flowers" / "flowers.joblib").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("my-model",), "NAME is no name of a model; got 'my-model', expected letters"),
        (("1st",), "NAME is no name of a model"),
        (("../up",), "NAME is no name of a model"),
        (("flowers", "--kind", "torsh"), "unknown kind"),
        (("there",), "there is there already"),
    ],
)
def test_what_cannot_be_written_is_said(home: Path, words: tuple[str, ...], message: str) -> None:
    (home / "there").mkdir()
    code, told = new(*words)
    assert code == 1
    assert message in told
    assert not (home / "flowers").exists()


def test_every_script_is_python() -> None:
    for files in FILES.values():
        for name, text in files.items():
            compile(text, name, "exec")
