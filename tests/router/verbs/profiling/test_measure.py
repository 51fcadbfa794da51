"""`penstock profile` on real workers: what it measures, keeps, refuses, and goes on with."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from router.cli import app
from router.verbs.profiling.asked import MeasureRequestError, find_model, find_numbers
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share, SliceSpec

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.in_turn(2)]

ROOT = Path(__file__).parents[4]
KIND = device_kind(SliceSpec("", ()))
ONE = Share("cores", 1.0)

MODEL_YAML = """\
name: spin
inputs: [{name: X, datatype: FP32, shape: [-1, 1]}]
outputs: [{name: Y, datatype: FP32, shape: [-1, 1]}]
batch_max: 16
slo_ms: 100
default_variant: slow
variants:
  - {name: quick, options: {us: 40}}
  - {name: slow, options: {us: 100}}
"""
MODEL = """\
import time
import numpy as np
class Model:
    def __init__(self, us): self.us = us
    def predict(self, inputs, parameters):
        until = time.perf_counter() + (300 + self.us * len(inputs["X"])) / 1e6
        while time.perf_counter() < until: pass
        return {"Y": inputs["X"]}
    def sample(self, rows, size): return {"X": np.ones((rows, 1), np.float32)}
def load(artifact, options): return Model(options["us"])
"""


@pytest.fixture
def spin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose batches take 300 us and 40 or 100 a row, in models/ of the working directory."""
    folder = tmp_path / "models" / "spin"
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(MODEL_YAML)
    (folder / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    # A batch is known after so many runs: bounded by time instead, one stop of the machine is all it sees.
    monkeypatch.setattr("serving.profile.sweeping.exploration.RUNS_MAX", 50)
    return folder


def profile(*words: str) -> Result:
    return CliRunner().invoke(app, ["profile", *words])


def measured(*words: str) -> Result:
    """A short sweep, on whatever machine."""
    found = profile("spin", "--shares", "1", "--point-seconds", "5", "--allow-noise", *words)
    assert found.exit_code == 0, found.output
    return found


@pytest.mark.slow
def test_a_sweep_finds_what_batches_take_and_keeps_where_it_comes_from(spin: Path) -> None:
    result = measured()
    store = ProfileStore(spin.parents[1] / "profiles")
    quick, slow = (store.read(KIND, "spin", name, ONE) for name in ("quick", "slow"))
    assert quick is not None
    assert slow is not None
    for found, row_us in ((quick, 40), (slow, 100)):
        curve = found.curves()[0]
        assert curve.at(16) >= 300 + 16 * row_us
        assert curve.at(16) > curve.at(1)
        point = found.points[-1]
        assert point.rows == 16
        assert 0 < point.p50_us <= point.p95_us <= point.p99_us
        assert point.yardstick_us > 0
    assert slow.load_us > slow.warm_us > 0
    assert slow.origin.measured.endswith("+00:00")
    assert dict(slow.origin.machine)["python"] == sys.version.partition(" ")[0]
    assert slow.origin.seconds > 0
    assert len(slow.origin.build) == 64
    assert not slow.predicted
    assert "spin slow on cores:1" in result.output
    assert not list((spin.parents[1] / "profiles").glob("**/*.part"))


@pytest.mark.slow
def test_what_is_measured_is_measured_again_only_when_asked_or_when_the_model_has_changed(spin: Path) -> None:
    words = ("--variant", "quick", "--batches", "1,4")
    measured(*words)
    assert "measured already" in measured(*words).output
    assert "measured already" not in measured(*words, "--again").output
    (spin / "model.py").write_text(MODEL + "# another build\n")
    assert "measured already" not in measured(*words).output


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured_and_the_same_command_goes_on(spin: Path) -> None:
    (spin / "model.yaml").write_text(MODEL_YAML.replace("us: 40", "us: 100000"))  # it takes its 30 s
    words = ["profile", "spin", "--variant", "quick", "--shares", "1", "--batches", "1", "--allow-noise"]
    part = spin.parents[1] / "profiles" / "local" / KIND / "spin.quick.cores-1.part"
    # A shell's background jobs, and what they start, ignore the signal.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code += "; from router.cli import main; main()"
    command = [sys.executable, "-c", code, *words, "--point-seconds", "30"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 60
        while not part.exists() and time.monotonic() < until:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "what was measured is kept" in said
    assert part.exists()
    goes_on = profile(*words[1:], "--point-seconds", "0.01")
    assert "goes on where it was interrupted" in goes_on.output
    assert goes_on.exit_code == 0
    assert not part.exists()


@pytest.mark.slow
def test_a_noisy_machine_is_refused_with_its_evidence_and_nothing_is_kept(
    spin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.profile.sweeping.noise.SPREAD_MAX", -1.0)  # no machine is as quiet as that
    monkeypatch.setattr("router.verbs.profiling.measuring.LOOKS", 2)
    result = profile("spin", "--variant", "quick", "--shares", "1")
    assert result.exit_code == 1
    assert "too noisy to be measured: the same work took" in result.output
    assert "--allow-noise" in result.output
    assert not (spin.parents[1] / "profiles").exists()


def test_several_processes_need_a_mig_instance(spin: Path) -> None:
    result = profile("spin", "--shares", "1", "--processes", "1,2")
    assert result.exit_code == 2
    assert "--processes: got 1,2 with cores:1; several processes share a MIG instance" in result.output
    assert not (spin.parents[1] / "profiles").exists()


@pytest.mark.slow
def test_a_model_that_fails_on_its_sample_is_named(spin: Path) -> None:
    (spin / "model.py").write_text(MODEL.replace("return {'Y'", "raise ValueError('no'); {'Y'").replace(
        'return {"Y"', 'raise ValueError("broken"); {"Y"'))  # fmt: skip
    result = profile("spin", "--variant", "quick", "--shares", "1", "--allow-noise")
    assert result.exit_code == 1
    assert "spin quick could not be loaded: ValueError: broken (model.py:" in result.output


@pytest.mark.slow
@pytest.mark.timeout(300)  # six workers start, one after the other
def test_a_few_batches_predict_the_rest_marked_until_it_is_measured(spin: Path) -> None:
    measured("--variant", "slow")
    measured("--variant", "quick", "--few", "3")
    store = ProfileStore(spin.parents[1] / "profiles")
    guess = store.read(KIND, "spin", "quick", ONE)
    assert guess is not None
    assert guess.predicted
    assert max(point.rows for point in guess.points) == 16
    assert guess.curves()[0].at(16) == pytest.approx(300 + 16 * 40, rel=0.5)
    measured("--variant", "quick")
    again = store.read(KIND, "spin", "quick", ONE)
    assert again is not None
    assert not again.predicted


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two slices of a core each need two cores")
def test_pairs_are_measured_beside_each_other(spin: Path) -> None:
    words = ("--colocate", "spin:quick,spin:slow", "--batches", "1", "--allow-noise")
    result = profile(*words)
    assert result.exit_code == 0, result.output
    runs = ProfileStore(spin.parents[1] / "profiles").co_runs(KIND)
    pairs = {(run.tenant.variant, run.others[0].variant) for run in runs}
    assert pairs == {("quick", "quick"), ("quick", "slow"), ("slow", "quick"), ("slow", "slow")}
    assert all(run.alone_us >= 300 and run.beside_us >= 300 for run in runs)
    assert "sensitivity" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent"], "there is no model 'absent'; expected a folder or one of spin"),
        (["spni"], "did you mean 'spin'?"),
        (["spin", "--variant", "x"], "spin has no variant 'x'; expected quick or slow"),
        (["spin", "--shares", "900"], "cores:900 is no share of cpu"),
        (["spin", "--shares", "1.5"], "cores:1.5 is no share of cpu"),
        (["spin", "--shares", "mps:50"], "mps:50 cannot be measured on cpu; expected cores"),
        (["spin", "--shares", "x:1"], "a share is KIND:AMOUNT"),
        (["spin", "--batches", "0"], "--batches: expected whole numbers from 1 to 65536, got '0'"),
        (["spin", "--processes", "99"], "--processes: expected whole numbers from 1 to 48, got '99'"),
        (["spin", "--device", "cuda:7"], "--device: there is no cuda:7 here"),
        (["spin", "--html", "absent/x.html"], "there is no folder absent"),
        (["spin", "--colocate", "spin"], "--colocate names its models itself"),
        ([], "which model?"),
    ],
)
def test_what_cannot_be_measured_is_said_with_what_would_be_right(
    spin: Path, words: Sequence[str], said: str
) -> None:
    result = profile(*words)
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_a_model_is_a_folder_or_a_name_below_models(spin: Path) -> None:
    assert find_model("spin").folder == find_model(str(spin)).folder == spin
    (spin / "model.yaml").write_text("name: 3")
    with pytest.raises(MeasureRequestError, match=r"model\.yaml:1:"):
        find_model("spin")


def test_a_version_is_named_as_it_is_served(spin: Path) -> None:
    for version in ("1", "2"):
        (spin / version).mkdir()
    assert (find_model("spin").name, find_model("spin").version) == ("spin", 2)
    first = find_model("spin@1")
    assert (first.name, first.folder) == ("spin@1", spin / "1")
    for missing in ("spin@3", "spin@x"):
        with pytest.raises(MeasureRequestError, match=r"has no version '.'; expected a numbered folder"):
            find_model(missing)


def test_lists_of_numbers_are_read_in_order_and_each_once() -> None:
    assert find_numbers("--batches", "8, 1,8", 10) == (1, 8)
    assert find_numbers("--batches", "", 10) == ()
