"""Why there are so many replicas; `tests/goldens/explain.txt` has the sentences."""

import json
from dataclasses import replace

import pytest

from router.verbs.explain.replicas import replica_sentences
from router.verbs.explain.scaled import HourlyCost, ScaledBody, describe_replicas, scaled_model
from serving.control.control import Control
from serving.values.objectives import ReplicaSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits
from tests.builders import model_spec, served
from tests.router.verbs.explain.explanations import STANDING, explanation, ladder, promise, variants

BILL = HourlyCost(0.18, 0.19, 0.2)


def told(scaled: ScaledBody) -> list[str]:
    """The sentences."""
    own = promise([ladder(["cnn"]), ladder(["cnn"], where="cpu1")])
    return [each.strip() for each in replica_sentences(explanation(own, 10.0, replicas=scaled), None)]


def described(bill: HourlyCost = BILL, **changes: object) -> ScaledBody:
    return describe_replicas(replace(STANDING, **changes), "slo", bill)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pressure", "line"),
    [
        (0.4321, "pressure 0.43: at 1 what is there would be just enough"),
        (0.994, "pressure 0.99: at 1 what is there would be just enough"),
        (0.998, "pressure 1: what is there is just enough"),
        (1.004, "pressure 1: what is there is just enough"),
        (1.01, "pressure 1.01: more comes than what is there answers in time"),
    ],
)
def test_pressure_is_never_rounded_to_the_other_side_of_one(pressure: float, line: str) -> None:
    assert line in told(described(pressure=pressure))


def test_what_the_plan_cannot_have_stands_beside_what_it_reckons_with() -> None:
    assert described(lacking="a slice")["expected"] == {
        "low": 2, "high": 4, "variant": "cnn", "why": "as on the days before", "lacking": "a slice",
    }  # fmt: skip


def test_slices_on_which_all_replicas_failed_are_counted_too() -> None:
    now = explanation(promise([]), 0.0, variants=variants({"a": "failed", "b": "failed"}))
    assert now["slices"] == 0
    assert "each of its 2 slices" in replica_sentences(now)[1]


def test_what_has_no_limit_is_json_too() -> None:
    found = described(HourlyCost(0.1, 0.2))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["cost_max_per_hour"], found["figures"]) == (None, {"cv": 2.5})
    assert described()["cost_max_per_hour"] == 0.2


def test_control_says_of_its_scaled_models_what_their_slices_cost_and_of_others_nothing() -> None:
    slices = [SliceSpec("a", (0,), price=0.5), SliceSpec("b", (1,), price=0.25)]
    scaled = replace(served(model_spec("digits")), slices=("a", "b"), replicas=ReplicaSpec(1, 2))
    plain = replace(served(model_spec("simple")), slices=("a",))
    control = Control(slices, [scaled, plain], {}, Limits(), lambda _spec: "cpu-here")
    control.tick(1_000_000, [])
    found = scaled_model(control, "digits", "slo")
    assert found is not None
    assert (found["least"], found["most"], found["count"], found["slices"]) == (1, 2, 1, ["a"])
    assert (found["cost_per_hour"], found["held_per_hour"]) == (0.5, 0.5)
    assert scaled_model(control, "simple", "slo") is None
