"""Load runs need matplotlib only where a picture is asked for."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.harness.pictures import drawn, png

RUNS = ("openloop", "scheduling.slo_capacity", "selection.variants", "scaling.autoscaling_live")


@pytest.mark.slow
def test_runs_load_no_matplotlib() -> None:
    loads = "; ".join(f"import loadtests.{name}" for name in RUNS)
    command = [sys.executable, "-c", f"{loads}; import sys; print('matplotlib' in sys.modules)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_picture_without_matplotlib_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert png("a.png") == Path("a.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(argparse.ArgumentTypeError, match=r"try `pip install -e '\.\[dev\]'`"):
        png("a.png")


def test_the_folder_of_a_picture_is_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.png"
    with drawn(2, 2, file) as figure:
        figure.suptitle("x")
    assert file.read_bytes().startswith(b"\x89PNG")
