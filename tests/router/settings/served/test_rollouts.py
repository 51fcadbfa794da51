"""`rollout:` of a model: what it becomes, and the one sentence for each way to get it wrong."""

import shutil
from pathlib import Path

import pytest

from router.settings import load_settings
from router.verbs.plan import plan_line
from serving.values.rollouts import ACCURACY, AGREEMENT, ATTAINMENT, ERRORS, LATENCY, MARGINS, RolloutSpec
from tests.router.settings.samples import gateway_faults, write_gateway

PRESENT = "models:\n  - {path: models/digits, default_variant: linear}\n"


@pytest.fixture
def candidate(home: Path) -> Path:
    """`home` with two more models like digits."""
    for name in ("digits-2", "digits-3"):
        shutil.copytree(home / "models" / "digits", home / "models" / name)
        file = home / "models" / name / "model.yaml"
        file.write_text(file.read_text().replace("name: digits\n", f"name: {name}\n", 1))
    return home


def entry(rollout: str, path: str = "models/digits-2") -> str:
    return f"{PRESENT}  - {{path: {path}, default_variant: linear, rollout: {rollout}}}\n"


def rollout(home: Path, text: str) -> RolloutSpec | None:
    return load_settings(write_gateway(home, entry(text))).models[1].rollout


def test_everything_but_the_model_has_a_default(candidate: Path) -> None:
    assert rollout(candidate, "{of: digits}") == RolloutSpec("digits")
    assert load_settings(write_gateway(candidate, PRESENT)).models[0].rollout is None


def test_what_is_stated_counts_and_the_last_step_is_all(candidate: Path) -> None:
    text = "{of: digits, steps: [1, 50], hold_s: 5, sticky: request, margins: {latency: false, errors: 0.1}}"
    found = rollout(candidate, text)
    assert found == RolloutSpec(
        "digits", (0.01, 0.5, 1.0), 5_000_000, "request", {ATTAINMENT: MARGINS[ATTAINMENT], ERRORS: 0.1}
    )
    assert LATENCY not in found.margins


def test_copies_have_a_margin_of_their_own(candidate: Path) -> None:
    found = rollout(candidate, "{of: digits, shadow: 10, margins: {agreement: 0.1}}")
    assert found is not None
    assert (found.shadow, found.margins[AGREEMENT]) == (0.1, 0.1)
    found = rollout(candidate, "{of: digits, shadow: 10}")
    assert found is not None
    assert found.margins == {**MARGINS, AGREEMENT: 0.02}


@pytest.mark.parametrize(
    ("text", "margin"), [("true", 0.02), ("0.05", 0.05), ("false", None), ("null", None)]
)
def test_accuracy_counts_where_it_is_stated(candidate: Path, text: str, margin: float | None) -> None:
    stated = "" if text == "null" else f"margins: {{accuracy: {text}}}"
    found = rollout(candidate, f"{{of: digits, {stated}}}")
    assert found is not None
    assert found.margins.get(ACCURACY) == margin


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{of: digit}", "models[1].rollout.of: no other model"),
        ("{of: digits-2}", "models[1].rollout.of: no other model"),
        ("{of: digits, steps: [50, 5]}", "models[1].rollout.steps: not in ascending order"),
        ("{of: digits, steps: [0]}", "models[1].rollout.steps[0]: "),
        ("{of: digits, sticky: user}", "models[1].rollout.sticky: "),
        ("{of: digits, margins: {speed: 1}}", "models[1].rollout.margins.speed: unknown margin"),
        ("{of: digits, margins: {acuracy: 1}}", "(did you mean accuracy?)"),
        ("{of: digits, margins: {errors: true}}", "models[1].rollout.margins.errors: not a share"),
        ("{of: digits, margins: {accuracy: 2}}", "models[1].rollout.margins.accuracy: not a share"),
        ("{of: digits, margins: {errors: 2}}", "models[1].rollout.margins.errors: not a share"),
        ("{of: digits, margins: {errors: false, latency: false, attainment: false}}", "no margin is left"),
        ("{of: digits, margins: {agreement: 0.1}}", "only copies can agree; expected `shadow: 10`"),
        ("{of: digits, shadow: 0}", "models[1].rollout.shadow: "),
        ("{steps: [5]}", "models[1].rollout: no model to replace; expected of: and a model"),
    ],
)
def test_a_mistake_is_named(candidate: Path, text: str, said: str) -> None:
    faults = gateway_faults(candidate, entry(text))
    assert [each for each in faults if said in each], faults


def test_another_signature_cannot_take_the_place(home: Path) -> None:
    (fault,) = gateway_faults(
        home, f"{PRESENT}  - {{path: models/minilm, slo_ms: 9, rollout: {{of: digits}}}}\n"
    )
    assert "minilm cannot take the place of digits: its inputs are others" in fault


DECOUPLED = """\
inputs: [{name: x, datatype: FP32, shape: [-1, 1]}]
outputs: [{name: y, datatype: FP32, shape: [-1, 1]}]
batch_max: 4
slo_ms: 100
decoupled: true
"""
STREAM = "  - {{path: models/{name}, rollout: {{of: repeat{more}}}}}\n"


@pytest.fixture
def streams(home: Path) -> Path:
    """`home` with two models whose requests have any number of answers."""
    for name in ("repeat", "repeat-2"):
        folder = home / "models" / name
        folder.mkdir()
        (folder / "model.yaml").write_text(f"name: {name}\n{DECOUPLED}")
        (folder / "model.py").touch()
    return home


def test_a_model_with_any_number_of_answers_is_rolled_out_by_what_they_take(streams: Path) -> None:
    text = "models:\n  - {path: models/repeat}\n" + STREAM.format(name="repeat-2", more=", steps: [50]")
    found = load_settings(write_gateway(streams, text)).models[1].rollout
    assert found is not None
    assert found.margins == MARGINS


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ", shadow: 10",
            "models[1].rollout.shadow: repeat-2 is decoupled: its requests have any number of answers",
        ),
        (", margins: {accuracy: 0.02}", "models[1].rollout.margins: repeat-2 is decoupled"),
    ],
)
def test_any_number_of_answers_cannot_be_compared(streams: Path, more: str, said: str) -> None:
    text = "models:\n  - {path: models/repeat}\n" + STREAM.format(name="repeat-2", more=more)
    (fault,) = gateway_faults(streams, text)
    assert said in fault
    assert "expected no shadow, and no margin of accuracy" in fault


def test_one_answer_is_not_rolled_out_as_any_number(streams: Path) -> None:
    file = streams / "models" / "repeat-2" / "model.yaml"
    file.write_text(file.read_text().replace("decoupled: true", "decoupled: false"))
    text = "models:\n  - {path: models/repeat}\n" + STREAM.format(name="repeat-2", more="")
    assert any(
        "repeat-2 cannot take the place of repeat: only one of them is decoupled: repeat" in each
        for each in gateway_faults(streams, text)
    )


def test_a_model_has_one_candidate_and_candidates_have_none(candidate: Path) -> None:
    more = "  - {path: models/digits-3, default_variant: linear, rollout: {of: %s}}\n"
    (fault,) = gateway_faults(candidate, entry("{of: digits}") + more % "digits")
    assert "digits has a candidate already: digits-2" in fault
    (fault,) = gateway_faults(candidate, entry("{of: digits}") + more % "digits-2")
    assert "digits-3 cannot take the place of digits-2: digits-2 is a candidate itself" in fault


def test_check_says_what_a_candidate_is_for(candidate: Path) -> None:
    text = "{of: digits, steps: [5, 50], hold_s: 60, shadow: 10}"
    present, other = load_settings(write_gateway(candidate, entry(text))).models
    assert "candidate" not in plan_line(present)
    assert plan_line(other).endswith(
        "; candidate for digits: copies of 10 % first, then 5, 50, 100 % of its requests, "
        "each for 60 s at least"
    )
