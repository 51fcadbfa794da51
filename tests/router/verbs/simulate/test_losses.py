"""`--lose` and `--spot`: what becomes of models whose slices fail or are taken away."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.router.verbs.simulate.conftest import Simulate
from tests.router.verbs.simulate.test_governed import weigh

pytestmark = pytest.mark.in_turn(2)

SPOT = """\
slices:
  - {name: firm, cores: 1}
  - {name: lent, cores: 1, count: 3, spot: true}
cache: false
models:
"""
DIGITS = "  - {{path: models/digits, slo_ms: 25, variants: [linear]{more}}}\n"
SCALED, FIXED = "scaled.yaml", "fixed.yaml"
ASKED = ("--rate", "digits=1000", "--seconds", "12")

Found = dict[str, Any]


@pytest.fixture(autouse=True)
def settings(home: Path) -> None:
    """Two or more replicas on four slices, or one on each; a load takes 0.3 s."""
    (home / SCALED).write_text(SPOT + DIGITS.format(more=", replicas: {min: 2, max: 4}"))
    (home / FIXED).write_text(SPOT + DIGITS.format(more=""))
    weigh(home, "digits", "linear", 20)


def played(simulate: Simulate, config: str, *arguments: str) -> Found:
    ended = simulate(*ASKED, *arguments, "--json", config=config)
    assert ended.exit_code == 0, ended.output
    result: Found = json.loads(ended.stdout)["results"][0]
    return result


@pytest.mark.slow
def test_a_failed_device_is_found_by_starts_that_fail_and_replaced_elsewhere(simulate: Simulate) -> None:
    sound = played(simulate, SCALED)
    broken = played(simulate, SCALED, "--lose", "lent-1@4")
    (loss,) = broken["losses"]
    assert (loss["slices"], loss["models"]) == (["lent-1"], ["digits"])
    assert 4.5 < loss["found_s"] < loss["replaced_s"] < 8
    assert loss["seconds"] == pytest.approx(loss["replaced_s"] - 4)
    assert 0.3 < loss["in_time"] / loss["offered"] < 0.97 < sound["total"]["attainment"]
    assert broken["models"]["digits"]["replicas"]["least"] == 1
    assert sound["losses"] == []
    assert broken == played(simulate, SCALED, "--lose", "lent-1@4")


def test_a_device_that_is_back_gets_its_models_back(simulate: Simulate) -> None:
    (loss,) = played(simulate, FIXED, "--lose", "lent-2@3+3")["losses"]
    assert 3.5 < loss["found_s"] < 6 < loss["replaced_s"] < 11
    (loss,) = played(simulate, FIXED, "--lose", "lent-2@3")["losses"]
    assert loss["found_s"] < 6
    assert loss["replaced_s"] is None
    assert loss["seconds"] == pytest.approx(9, abs=0.01)


@pytest.mark.slow
def test_a_slice_that_is_taken_away_with_notice_is_replaced_before_and_nobody_feels_it(
    simulate: Simulate,
) -> None:
    noticed, sudden = (
        played(simulate, SCALED, "--spot", f"lent-1@4:{notice}")["losses"][0] for notice in ("3", "0")
    )
    assert (noticed["found_s"], sudden["found_s"]) == (4, 4)
    assert 4 < noticed["replaced_s"] < 6
    assert noticed["seconds"] == 3
    assert noticed["in_time"] / noticed["offered"] > 0.99
    assert sudden["in_time"] / sudden["offered"] < 0.95


def test_a_device_takes_all_its_slices_with_it(simulate: Simulate, home: Path) -> None:
    (home / "one.yaml").write_text(
        "slices: [{name: cpu, cores: 1, count: 2}]\nmodels:\n" + DIGITS.format(more="")
    )
    found = played(simulate, "one.yaml", "--lose", "cpu-1@4+2")
    (loss,) = found["losses"]
    assert loss["slices"] == ["cpu-1", "cpu-2"]
    assert loss["replaced_s"] > 6
    assert loss["in_time"] < 0.6 * loss["offered"]
    assert found["models"]["digits"]["replicas"]["least"] == 0


def test_a_node_is_lost_with_all_its_slices_and_the_gateway_knows_at_once(
    simulate: Simulate, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_NODE_TOKEN", "0123456789abcdef")
    (home / "far.yaml").write_text(
        "nodes: {}\nslices: [{name: near, cores: 1}, {name: far, node: box, cores: 1, count: 2}]\n"
        "models:\n" + DIGITS.format(more="")
    )
    ended = simulate(*ASKED, "--lose", "node:box@4+2", "--json", config="far.yaml")
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)["results"][0]
    (loss,) = found["losses"]
    assert (loss["slices"], loss["found_s"]) == (["far-1", "far-2"], 4)
    assert 6 < loss["replaced_s"] < 8
    assert found["models"]["digits"]["replicas"]["least"] == 1
    words = simulate(*ASKED, "--lose", "node:box@4", config="far.yaml").stdout
    assert "node box is lost at 4 s" in " ".join(words.split())
    assert "node box gone at 4 s with far-1, far-2" in " ".join(words.split())
    wrong = simulate(*ASKED, "--lose", "node:bix@4", config="far.yaml")
    assert "--lose: no node of that name; got 'bix', expected box" in wrong.stderr
    twice = simulate(*ASKED, "--lose", "node:box@4,far-1@5", config="far.yaml")
    assert "far-1 at 5 s is gone already, with box" in twice.stderr


@pytest.mark.slow
def test_the_output_tells_what_became_of_each(simulate: Simulate, home: Path) -> None:
    page = home / "page.html"
    asked = ("--lose", "lent-1@4", "--spot", "lent-2@3:2,lent-3@5:1", "--seeds", "2", "--html", str(page))
    ended = simulate(*ASKED, *asked, config=SCALED)
    assert ended.exit_code == 0, ended.output
    words = " ".join(ended.stdout.split())
    assert "the device of lent-1 fails at 4 s" in words
    assert "lent-2 is taken away at 5 s, 2 s after a notice" in words
    assert "Lost slices:" in words
    assert "lent-1 gone at 4 s" in words
    assert "lent-2 notice at 3 s, gone at 5 s" in words
    assert "spot of" not in words
    assert "What became of lost slices" in page.read_text(encoding="utf-8")
    assert "spot of lent-1, lent-2, lent-3: none is taken away" in simulate(*ASKED, config=FIXED).stdout


WRONG = [
    ("--lose lent-1", "--lose: got 'lent-1'; expected SLICE@S or SLICE@S+S"),
    ("--lose lent-1@4+0", "--lose: got 'lent-1@4+0'"),
    ("--spot lent-1@4", "--spot: got 'lent-1@4'; expected SLICE@S:NOTICE_S"),
    ("--lose lend-1@4", "--lose: no slice of that name; got 'lend-1'"),
    ("--lose node:box@4", "--lose: no node of that name; got 'box', expected a slice; no slice"),
    ("--lose lend-1@4", "did you mean lent-1?"),
    ("--spot firm@4:1", "--spot: slice firm is no spot slice"),
    ("--lose lent-1@12", "--lose: lent-1 goes after the end of the run; got 12 s, expected less than 12 s"),
    ("--spot lent-1@4:8", "--spot: lent-1 goes after the end of the run"),
    ("--lose lent-1@4+3,lent-1@6", "lent-1 at 6 s is gone already"),
    ("--lose lent-1@4 --spot lent-1@6:1", "lent-1 at 6 s is gone already"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_cannot_be_lost_is_refused_in_a_sentence(simulate: Simulate, options: str, message: str) -> None:
    ended = simulate(*ASKED, *options.split(), config=SCALED)
    assert ended.exit_code == 2
    assert message in ended.stderr
