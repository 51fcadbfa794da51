"""`--requirements FILE`: pip installs it once into an environment of the model's own."""

import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from router.verbs.target.asked import settings_file
from router.verbs.target.environments import python_for
from router.verbs.target.errors import TargetError
from router.verbs.target.options import TargetOptions

pytestmark = [pytest.mark.live, pytest.mark.slow]


def write_wheel(folder: Path, name: str) -> None:
    """Write a wheel with one empty module, as pip takes it without an index."""
    about = f"{name}-1.dist-info"
    with ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as made:
        made.writestr(f"{name}.py", "")
        made.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        made.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{about}/RECORD", "")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to serve from, where pip finds two packages and no index."""
    (tmp_path / "wheels").mkdir()
    for name in ("numpy", "orjson"):
        write_wheel(tmp_path / "wheels", name)
    monkeypatch.chdir(tmp_path)
    found = {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "wheels"), "CONFIG_FILE": "/dev/null"}
    for name, value in found.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return tmp_path


def test_what_cannot_be_installed_is_named_and_an_environment_is_made_once_for_each_content(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TargetError, match=r"nothing\.txt cannot be read: No such file"):
        python_for(home / "nothing.txt")
    file = home / "requirements.txt"
    file.write_text("only_there\n")
    with pytest.raises(TargetError, match=r"cannot be installed: ERROR: No matching .* only_there"):
        python_for(file)
    write_wheel(home / "wheels", "only_there")
    python = python_for(file)  # it is tried again
    subprocess.run([python, "-c", "import only_there, numpy, orjson"], check=True)
    assert "its packages are installed into .penstock/environments/" in capsys.readouterr().out
    assert python_for(file) == python
    assert capsys.readouterr().out == ""


def test_one_environment_is_asked_for(home: Path) -> None:
    (home / "model.py").write_text("")
    asked = TargetOptions(python=home / "python", requirements=home / "requirements.txt")
    with pytest.raises(TargetError, match="--python and --requirements are two environments"):
        settings_file("model.py", home / "penstock.yaml", asked)
