"""Promises of opening torch's library early: imports find what they always found, whatever there is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
from serving.worker.process.libraries import TorchOpener, open_torch_beside
open_torch_beside()
import torch
assert not any(isinstance(each, TorchOpener) for each in sys.meta_path)
print(torch.__file__, {shown})
"""


def say(shown: str, folder: str = "") -> list[str]:
    """What a process of its own prints that has imported torch; `folder`: where it looks for it first."""
    path = os.pathsep.join(filter(None, (folder, str(Path(__file__).parents[3]))))
    done = subprocess.run(
        [sys.executable, "-P", "-c", CODE.format(shown=shown)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_torch_is_imported_and_computes_as_ever() -> None:
    file, total = say("int(torch.ones(3).sum())")
    assert Path(file).parent.joinpath("lib", "libtorch.so").is_file()
    assert total == "3"


@pytest.mark.slow
def test_a_torch_without_that_library_is_imported_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("here = 7")
    assert say("torch.here", str(tmp_path)) == [str(tmp_path / "torch" / "__init__.py"), "7"]
