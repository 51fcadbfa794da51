"""Why there are so many replicas: as the gateway says it, and as an operator reads it."""

import json
from dataclasses import replace
from math import inf

import pytest

from router.explain.body import Explanation
from router.explain.replicas import replica_sentences
from router.explain.scaled import HourlyCost, ScaledBody, describe_replicas, scaled_model
from serving.control.control import Control
from serving.control.scaling_status import ScalingStatus
from serving.objectives import ReplicaSpec
from serving.policy.scaling.interface import PlannedBand
from serving.specs import Limits, SliceSpec
from tests.builders import model_spec, served
from tests.router.explain.explanations import counters, explanation, ladder, promise, variants

STANDING = ScalingStatus(
    model="digits",
    desired=4,
    count=3,
    ready=2,
    coming=1,
    standing=1,
    least=1,
    most=6,
    slices=("cpu-1", "cpu-2", "cpu-3"),
    pressure=1.24,
    why="310 rows/s come in bursts, of which 3 replicas carry 250",
    up="above 250 rows/s for 1 s",
    down="below 160 rows/s for 5 minutes",
    budget="1% may be missed",
    held="another slice would pass the ceiling of 0.2 an hour",
    band=PlannedBand(2, 4, "cnn", 60_000_000, "as on the days before"),
    figures={"cv": 2.5, "eta": inf},
)
BILL = HourlyCost(0.18, 0.19, 0.2)


def told(scaled: ScaledBody | None, now_good: int = 0, was_good: int | None = None) -> list[str]:
    """The sentences, where so many answers were in time since the start, and 2 s before."""
    own = promise([ladder(["cnn"]), ladder(["cnn"], where="cpu1")])

    def at(uptime_s: float, good: int) -> Explanation:
        return explanation(own, 10.0, counters=counters({"cnn": good}), uptime_s=uptime_s, replicas=scaled)

    before = None if was_good is None else at(98.0, was_good)
    return [each.strip() for each in replica_sentences(at(100.0, now_good), before)]


def described(bill: HourlyCost = BILL, **changes: object) -> ScaledBody:
    return describe_replicas(replace(STANDING, **changes), "slo", bill)  # type: ignore[arg-type]


def test_all_that_decides_is_said_with_what_it_costs() -> None:
    assert told(described(), 150, 50) == [
        "replicas",
        "3 on cpu-1, cpu-2 and cpu-3 (at least 1, at most 6; policy slo): 2 get batches, "
        "1 being started or loaded, 1 loaded beside other models, to stand by",
        "why: 310 rows/s come in bursts, of which 3 replicas carry 250",
        "held back: 4 wished, 3 can be had: another slice would pass the ceiling of 0.2 an hour",
        "more: above 250 rows/s for 1 s",
        "fewer: below 160 rows/s for 5 minutes",
        "budget: 1% may be missed",
        "pressure 1.24: more comes than what is there answers in time",
        "the plan for the next minutes reckons with 2, at most 4, of cnn: as on the days before",
        "its slices cost 0.18 an hour, 1 a million answers in time; all that are held 0.19, of at most 0.2",
    ]


def test_a_model_that_is_on_no_slice_and_costs_nothing_is_told_in_three_lines() -> None:
    idle = ScalingStatus("digits", 0, 0, 0, 0, 0, 0, 4, (), why="nobody has asked for 5 minutes")
    assert told(describe_replicas(idle, "slo", HourlyCost())) == [
        "replicas",
        "0 (at least 0, at most 4; policy slo): 0 get batches",
        "why: nobody has asked for 5 minutes",
        "pressure 0: at 1 what is there would be just enough",
        "no plan for the next minutes has been made yet",
    ]


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


def test_what_the_plan_cannot_have_is_told_after_it() -> None:
    lacking = "taken are 4 of 4 cpu; so accuracy is 0.8 where it would be 0.9"
    lines = told(described(lacking=lacking))
    assert lines[lines.index(f"the plan cannot have all: {lacking}") - 1].startswith("the plan for the next")
    assert described(lacking=lacking)["expected"] == {
        "low": 2, "high": 4, "variant": "cnn", "why": "as on the days before", "lacking": lacking,
    }  # fmt: skip


def test_a_stated_number_is_no_range_and_one_replica_is_singular() -> None:
    lines = told(described(least=2, most=2, desired=1, count=1, ready=1, coming=0, standing=0, slices=("a",)))
    assert lines[1] == "1 on a (2 stated; policy slo): 1 gets batches"


def test_cost_of_answers_is_told_only_of_answers_between_two_readings_of_one_run() -> None:
    for lines in (told(described(), 150), told(described(), 150, 150)):
        assert lines[-1] == "its slices cost 0.18 an hour; all that are held 0.19, of at most 0.2"
    assert (
        told(described(HourlyCost(0.18, 0.19)), 1)[-1]
        == "its slices cost 0.18 an hour; all that are held 0.19"
    )
    assert "cost" not in " ".join(told(described(HourlyCost())))


def test_of_other_models_it_is_said_what_would_have_them_follow_the_load() -> None:
    assert told(None) == [
        "replicas",
        "one on each of its 2 slices, whatever the load; `replicas:` in penstock.yaml would let their number "
        "follow the load",
    ]


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
