"""`selection:`: what it becomes, and the one sentence for each way to get it wrong."""

import json
from pathlib import Path

import pytest

from router.settings import load_settings
from serving.values.objectives import SelectionSpec
from tests.router.settings.samples import DIGITS, gateway_faults, write_accuracy, write_gateway, write_model

MODEL = DIGITS.replace("build: build.py", "validation: {file: build/validation.json}\nbuild: build.py")
MODEL = MODEL.replace("variants:\n", "variants:\n  - {name: mlp}\n")
TEXT = "models: [{path: models/digits, KEYS selection: SELECTION}]\n"
TWO = "{policy: exp3, members: [linear, cnn], output: SCORES, keep_s: 60}"


@pytest.fixture(autouse=True)
def validated(home: Path) -> None:
    """linear and cnn of digits, whose accuracies are 0.964 and 0.9912, have validation data; mlp has none."""
    folder = write_model(home / "models" / "digits", MODEL)
    write_accuracy(folder, {"linear": 0.964, "cnn": 0.9912})
    validation = {"labels": [1, 2], "predictions": {"linear": [1, 1], "cnn": [1, 2]}}
    (folder / "build" / "validation.json").write_text(json.dumps(validation))


def stated(selection: str, keys: str = "") -> str:
    return TEXT.replace("KEYS", keys and f"{keys},").replace("SELECTION", selection)


def read(home: Path, selection: str, keys: str = "") -> SelectionSpec | None:
    return load_settings(write_gateway(home, stated(selection, keys))).models[0].selection


@pytest.mark.parametrize("policy", ["ensemble", "exp3", "exp4"])
def test_it_names_who_is_selected_from_and_by_which_output(home: Path, policy: str) -> None:
    expected = SelectionSpec(policy, ("linear", "cnn"), "SCORES", 60_000_000)
    assert read(home, TWO.replace("exp3", policy)) == expected


def test_what_it_leaves_out_is_the_one_output_of_scores_and_ten_minutes(home: Path) -> None:
    found = read(home, "{policy: exp4, members: [cnn, linear]}")
    assert found == SelectionSpec("exp4", ("cnn", "linear"), "SCORES", 600_000_000)


def test_without_it_one_variant_answers(home: Path) -> None:
    assert read(home, "") is None


def fault(home: Path, selection: str, keys: str = "") -> str:
    (found,) = gateway_faults(home, stated(selection, keys))
    return found.removeprefix("penstock.yaml:1:").partition(": models[0].selection")[2]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[linear, cnn]", "[linear, cmn]", ".members[1]: unknown variant; got 'cmn', "
         "expected mlp, linear or cnn (did you mean cnn?)"),
        ("[linear, cnn]", "[linear]", ".members: nothing to select from; got a list of 1, "
         "expected at least 2 variants"),
        ("[linear, cnn]", "[cnn, cnn]", ".members: 'cnn' is listed twice"),
        ("members: [linear, cnn], ", "", ".members: this key is required"),
        ("exp3", "exp5", ".policy: unknown way to select; got 'exp5', expected ensemble, exp3 or exp4 "
         "(did you mean exp4?)"),
        ("SCORES", "SCORE", ".output: unknown output; got 'SCORE', expected SCORES (did you mean SCORES?)"),
        ("keep_s: 60", "keep_s: 0", ".keep_s: too small; got 0, expected 1 or more"),
        ("keep_s: 60", "keeps: 60", ".keeps: unknown key; got 'keeps', "
         "expected policy, members, output or keep_s (did you mean keep_s?)"),
        (TWO, "ensemble", ": not a mapping; got 'ensemble', expected keys and values (key: value)"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_remedy(home: Path, old: str, new: str, expected: str) -> None:
    assert old in TWO
    assert fault(home, TWO.replace(old, new)) == expected


def test_a_member_has_to_be_served(home: Path) -> None:
    found = fault(home, TWO, "variants: [cnn, mlp]")
    expected = "got 'linear', expected one that `variants` lists: cnn or mlp"
    assert found == f".members[0]: a variant that is not served; {expected}"


@pytest.mark.parametrize(("key", "value"), [("optimize", "cheapest"), ("cost_max", 3)])
def test_what_chooses_one_variant_contradicts_it(home: Path, key: str, value: object) -> None:
    text = "slices: [{name: a, price: 1}]\n" + stated(TWO, f"{key}: {value}")
    (found,) = gateway_faults(home, text)
    what = f"selection says already who answers; got {value!r}, expected no {key} or no selection"
    assert found == f"penstock.yaml:2:32: models[0].{key}: {what}"


def test_an_ensemble_needs_validation_data_of_all_its_members(home: Path) -> None:
    expected = "expected that in the file of `validation` in its model.yaml"
    three = "{policy: ensemble, members: [linear, mlp, cnn]}"
    what = ".policy: nothing says what mlp of digits answered on validation data"
    assert fault(home, three) == f"{what}; {expected}"
    write_model(home / "models" / "digits", DIGITS)
    what = ".policy: nothing says what linear, cnn of digits answered on validation data"
    assert fault(home, TWO.replace("exp3", "ensemble")) == f"{what}; {expected}"
    assert read(home, TWO) is not None, "who learns from feedback needs none"


@pytest.mark.parametrize("policy", ["exp3", "exp4"])
def test_of_those_whose_choice_is_learnt_one_has_to_keep_every_floor(home: Path, policy: str) -> None:
    learnt = TWO.replace("exp3", policy)
    (warning,) = load_settings(write_gateway(home, stated(learnt, "accuracy_min: 0.97"))).warnings
    assert warning.where == "models[0].selection.members[0]"
    assert warning.message == (
        "linear (0.964) is below the floor of digits, 0.97: it answers only in tiers with a lower one"
    )
    (found,) = gateway_faults(home, stated(learnt, "accuracy_min: 0.995"))
    assert found.endswith("models[0].accuracy_min: digits reaches at most 0.9912 (cnn); 0.995 cannot be met")
    beside = "members: [linear, mlp]"
    (found,) = gateway_faults(
        home, stated(learnt.replace("members: [linear, cnn]", beside), "accuracy_min: 0.97")
    )
    assert "digits reaches at most 0.964 (linear)" in found


def test_a_floor_that_only_the_vote_of_an_ensemble_reaches_is_kept(home: Path) -> None:
    labels = [row % 3 for row in range(30)]
    wrong = {name: [9 if label == place else label for label in labels]
             for place, name in enumerate(("linear", "mlp", "cnn"))}  # fmt: skip
    file = home / "models" / "digits" / "build" / "validation.json"
    file.write_text(json.dumps({"labels": labels, "predictions": wrong}))
    three = "{policy: ensemble, members: [linear, mlp, cnn]}"
    assert read(home, three, "accuracy_min: 1") is not None
    tiers = "tiers: [{name: best, tolerance: 0}]\n"
    assert load_settings(write_gateway(home, tiers + stated(three))).models[0].selection is not None


def test_a_floor_beyond_the_vote_of_an_ensemble_is_refused_with_what_that_reaches(home: Path) -> None:
    labels = [0] * 20
    said = {"linear": [0] * 12 + [1] * 8, "cnn": [0] * 16 + [1] * 4}  # right together never more often
    file = home / "models" / "digits" / "build" / "validation.json"
    file.write_text(json.dumps({"labels": labels, "predictions": said}))
    (found,) = gateway_faults(home, stated(TWO.replace("exp3", "ensemble"), "accuracy_min: 0.9"))
    assert found == (
        "penstock.yaml:1:46: models[0].accuracy_min: digits reaches at most 0.8 (the vote of linear, cnn); "
        "0.9 cannot be met"
    )


def test_validation_data_of_other_classes_than_the_outputs_is_refused(home: Path) -> None:
    file = home / "models" / "digits" / "build" / "validation.json"
    file.write_text(json.dumps({"labels": [1, 10], "predictions": {"linear": [1, 1], "cnn": [1, 2]}}))
    found = fault(home, TWO.replace("exp3", "ensemble"))
    assert found == ".members: validation data names class 10; the output tells 10 classes, from 0 on"


@pytest.mark.parametrize(
    "output",
    [
        "FP16, shape: [-1, 10]",
        "INT64, shape: [-1, 10]",
        "FP32, shape: [-1]",
        "FP32, shape: [-1, -1]",
        "FP64, shape: [-1, 1]",
        "FP32, shape: [-1, 2, 2]",
    ],
)
def test_votes_are_counted_by_an_output_with_a_score_for_each_class(home: Path, output: str) -> None:
    write_model(home / "models" / "digits", MODEL.replace("FP32, shape: [-1, 10]", output))
    shape, which = (
        output.replace(", shape:", ""),
        "one of FP32 or FP64 and shape [-1, N], a score for each of",
    )
    assert fault(home, TWO) == f".output: 'SCORES' is {shape}; expected {which} N >= 2 classes"
    found = fault(home, TWO.replace("output: SCORES, ", ""))
    assert found == f".output: this key is required; expected {which} N >= 2 classes; digits has none"


def test_of_several_such_outputs_one_has_to_be_named(home: Path) -> None:
    more = "[-1, 10]}, {name: LOGITS, datatype: FP64, shape: [-1, 10]}"
    write_model(home / "models" / "digits", MODEL.replace("[-1, 10]}", more))
    found = fault(home, TWO.replace("output: SCORES, ", ""))
    assert found == ".output: this key is required; expected SCORES or LOGITS"
    spec = read(home, TWO.replace("SCORES", "LOGITS"))
    assert spec is not None
    assert spec.output == "LOGITS"


def test_a_decoupled_model_has_nothing_to_select_from(home: Path) -> None:
    decoupled = MODEL.replace("validation: {file: build/validation.json}\n", "")
    decoupled = decoupled.replace("deterministic: true", "decoupled: true")
    write_model(home / "models" / "digits", decoupled)
    assert fault(home, TWO) == (
        ": digits is decoupled: its requests have any number of answers, which cannot be compared; "
        "expected no selection"
    )
