"""The prediction of a rollout: slices and broken promises follow from what was measured and what is asked."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from router.cli import app
from router.observing.rollout_status import RolloutPrediction
from router.settings import load_settings
from router.verbs.place.candidate import predicting
from router.verbs.place.candidate.predicting import RolloutTask, as_one, predict
from serving.planning.task import AskedRate
from serving.simulation.traffic.traffic import Mix
from tests.router.settings.samples import write_candidate, write_deployment
from tests.router.verbs.simulate.conftest import measured

GATEWAY = """\
slices: [{name: cpu-a, cores: 1}, {name: cpu-b, cores: 1}, {name: cpu-c, cores: 1}]
models:
  - {path: models/digits, slices: [cpu-a], variants: [linear], default_variant: linear}
  - path: models/digits-2
    slices: [cpu-b]
    variants: [linear]
    default_variant: linear
    rollout: {of: digits, steps: [10, 50]}
  - {path: models/minilm, slices: [NEIGHBOUR], slo_ms: 200, variants: [fp32]}
"""


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "REQUESTS", 2_000)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A candidate that takes twice the time of the present model; minilm has a slice of its own."""
    return deployed(tmp_path, "cpu-c")


def deployed(home: Path, neighbour: str) -> Path:
    write_deployment(home, GATEWAY.replace("NEIGHBOUR", neighbour))
    write_candidate(home)
    measured(home, "digits", "linear", 1000)
    measured(home, "digits-2", "linear", 2000)
    return home


def answer(home: Path, rates: Mapping[str, AskedRate], **more: object) -> RolloutPrediction:
    found = said(home, rates, **more)
    assert not isinstance(found, str), found
    return found


def said(home: Path, rates: Mapping[str, AskedRate], **more: object) -> RolloutPrediction | str:
    given = {"sizes": {}, "ratios": {}} | more
    task = RolloutTask(load_settings(home / "penstock.yaml"), "digits", rates, **given)  # type: ignore[arg-type]
    return next(predict(task))


def test_a_slower_candidate_fills_more_slices_than_it_frees_and_breaks_what_does_not_fit(home: Path) -> None:
    found = answer(home, {"digits": AskedRate(600)})
    shares = [each["share"] for each in found["steps"]]
    assert shares == [0.0, 0.1, 0.5, 1.0]
    slices = [each["slices"] or 0.0 for each in found["steps"]]
    assert slices == sorted(slices)
    assert slices[0] == 0
    assert slices[3] == pytest.approx(10 * slices[1], rel=0.2)
    assert slices[3] > 1.2 > found["slices"] == 1
    freed = [each["freed"] or 0.0 for each in found["steps"]]
    assert all(1.5 < new / old < 3 for new, old in zip(slices[1:], freed[1:], strict=True))
    broken = [each["broken"] for each in found["steps"]]
    assert broken[0] < 0.01
    assert broken[3] > 0.1
    assert found["said"][-1] == "at 100 %: digits-2 has 1 slice, which is too few"


def test_rows_count_and_so_does_what_batches_take_over_their_profile(home: Path) -> None:
    one = answer(home, {"digits": AskedRate(50)})
    slow = {("cpu-b", "digits-2", "linear"): 2.0}
    more = answer(home, {"digits": AskedRate(50, Mix((4,), (1.0,)))}, ratios=slow)
    assert (more["steps"][2]["slices"] or 0.0) > 8 * (one["steps"][2]["slices"] or 1.0)


def test_a_neighbour_on_the_candidates_slice_is_played_and_another_is_not(tmp_path: Path) -> None:
    load = {"digits": AskedRate(400), "minilm": AskedRate(60)}
    apart = deployed(tmp_path / "apart", "cpu-c")  # minilm was never measured there, which then matters not
    assert answer(apart, load)["steps"][3]["others"] == {}
    beside = deployed(tmp_path / "beside", "cpu-b")
    assert "never measured: minilm fp32 on slice cpu-b" in str(said(beside, load))
    measured(beside, "minilm", "fp32", 2500, (64, 128))
    found = answer(beside, load)
    others = [each["others"]["minilm"] for each in found["steps"]]
    assert others[3] > others[0] + 0.01
    assert "of minilm's, before" in found["said"][-2]


def test_what_is_missing_is_said(home: Path) -> None:
    assert "digits is asked for nothing now" in str(said(home, {"minilm": AskedRate(5)}))
    next((home / "profiles").rglob("*digits-2*")).unlink()
    assert "never measured: digits-2 linear on slice cpu-b" in str(said(home, {"digits": AskedRate(5)}))


def test_what_the_candidate_answers_already_is_asked_of_the_model() -> None:
    rates = {"m": AskedRate(3), "m-2": AskedRate(2), "n": AskedRate(7)}
    assert as_one(rates, "m", "m-2") == {"m": AskedRate(5), "n": AskedRate(7)}
    assert as_one({"m-2": AskedRate(2)}, "m", "m-2") == {"m": AskedRate(2)}
    assert as_one({}, "m", "m-2") == {}


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["rollout", "predict", *words])


def test_the_command_computes_it_for_a_file_that_no_gateway_has(home: Path) -> None:
    file = str(home / "penstock.yaml")
    ended = run("digits", "--config", file, "--rates", "digits=100", "--json")
    assert ended.exit_code == 0, ended.output
    printed = json.loads(ended.stdout)
    assert [each["share"] for each in printed["steps"]] == [0.0, 0.1, 0.5, 1.0]
    assert printed["said"][0].startswith("100 requests a second for digits, 1 row each: 0 % of the promises")
    for words, told in [
        (("minilm", "--rates", "minilm=1"), "minilm has no candidate"),
        (("digits", "--rates", "digit=1"), "did you mean digits"),
    ]:
        ended = run(*words, "--config", file)
        assert (ended.exit_code, told in ended.stderr) == (1, True), ended.output
