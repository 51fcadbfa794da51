"""The comparison of servers by a tiny model: it runs with the gateway alone, and says what is missing."""

import sys
from pathlib import Path

import pytest

from loadtests.edge import tiny_model
from loadtests.harness import wrk

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.mark.skipif(bool(wrk.missing()), reason=wrk.missing())
def test_the_gateway_alone_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tiny_model", "--connections", "4", "--rounds", "1", "--seconds", "1"])
    assert tiny_model.main() == 0
    *_, row = capsys.readouterr().out.splitlines()
    cells = [each.strip() for each in row.strip("|").split("|")]
    assert cells[:2] == ["4", "penstock"]
    assert float(cells[2].replace(",", "")) > 0


@pytest.mark.skipif(bool(wrk.missing()), reason=wrk.missing())
def test_a_folder_without_triton_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["tiny_model", "--triton", str(tmp_path)])
    assert tiny_model.main() == 2
    assert f"{tmp_path} holds no nvidia-pytriton" in capsys.readouterr().err
