"""Two models on one device three ways; here the device is the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.harness.gateway import ROOT
from serving.profile.curve import Point, Profile
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share, SliceSpec
from tests.loadtests.patience import PATIENT_MS

KIND = device_kind(SliceSpec("", ()))


def compare(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "loadtests.gpu.gpu_sharing", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def keep_profiles(folder: Path, model: str, variant: str) -> None:
    """A row takes 10 ms on either share: two cores carry what one does, so the knee is at one."""
    for cores in (1.0, 2.0):
        points = tuple(Point(0, rows, 10_000.0 * rows, 10_000.0 * rows, 100) for rows in (1, 2))
        ProfileStore(folder).write(Profile(model, variant, KIND, points, share=Share("cores", cores)))


@pytest.mark.in_turn(2)
@pytest.mark.live
@pytest.mark.slow
def test_each_way_is_offered_the_same_on_shares_at_the_knees(tmp_path: Path) -> None:
    keep_profiles(tmp_path, "digits", "linear")
    keep_profiles(tmp_path, "simple", "default")
    file = tmp_path / "found.json"
    models = ("digits:linear", "simple", "--slo-ms", f"{PATIENT_MS},{PATIENT_MS}")
    how = ("--seconds", "1", "--loads", "0.5", "--profiles", str(tmp_path), "--json", str(file))
    done = compare(*models, "--device", "cpu", *how)
    assert (done.returncode, done.stderr) == (0, "")
    found = {(one["way"], one["model"]): one for one in json.loads(file.read_text())}
    assert set(found) == {
        (way, name) for way in ("shares", "default", "alone") for name in ("digits", "simple")
    }
    assert all(0 <= one["goodput"] <= one["offered"] for one in found.values())
    assert found["shares", "digits"]["goodput"] > 0
    for name in ("digits", "simple"):
        # Batches of 2 take 20 ms, so 100 rows a second, of which the half is asked: Poisson's 50, or so.
        offered = {found[way, name]["offered"] for way in ("shares", "default", "alone")}
        assert len(offered) == 1
        assert 20 <= offered.pop() <= 90


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("digits", "minilm", "--device", "cuda:99"), "there is no cuda:99 here"),
        (("digits", "digits", "--device", "cpu"), "digits twice: a gateway serves a model once"),
        (("digits", "mlp", "--device", "cpu"), "digits cnn has no knee on cpu-"),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = compare(*arguments, "--profiles", str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
