"""What is decided: plans that the simulator bears out, or a refusal that says who misses what."""

import math
from dataclasses import replace

import pytest

from serving.planning import deciding
from serving.planning.deciding import DecisionTerms, decide, missed, solve_here, tighten
from serving.planning.predicting import Foretold, Prediction, predict
from serving.policy.placement.terms.check import faults
from serving.policy.placement.terms.problem import Parts
from serving.policy.transition.steps import Transition
from tests.planning.worlds import on_one, question, resident, slot

pytestmark = pytest.mark.slow

TERMS = DecisionTerms(seconds=4.0)


def foretold(attainment: float) -> Foretold:
    return Foretold(10.0, attainment, 1.0, 2.0, 10.0, 100, 10.0)


def test_a_plan_that_keeps_every_slo_is_taken_where_nothing_is_in_place() -> None:
    asked = question({"m": 100.0, "n": 50.0})
    found = decide(asked, TERMS, solve_here)
    assert (found.taken, found.refused, found.tightened) == (True, (), ())
    assert isinstance(found.transition, Transition)
    assert not faults(asked.problem, found.plan.placement)
    assert min(each.attainment for each in found.prediction.models.values()) >= 0.99


def test_what_keeps_every_slo_already_stays() -> None:
    asked = question({"m": 100.0})
    first = decide(asked, TERMS, solve_here)
    again = decide(replace(asked, current=first.plan.placement), TERMS, solve_here)
    assert not again.moves.started
    assert not again.verdict.taken


def test_a_placement_that_misses_an_slo_is_left_and_the_reason_says_so() -> None:
    asked = question({"m": 1_500.0}, devices=2)
    on_a_core = on_one([slot(resident("m"))])
    found = decide(replace(asked, current=on_a_core), TERMS, solve_here)
    assert found.taken
    assert "m is predicted to answer" in found.verdict.reason


def test_a_fleet_that_is_too_small_is_refused_with_what_is_missing() -> None:
    found = decide(question({"m": 1e5}), TERMS, solve_here)
    assert not found.taken
    assert "rows/s are not carried" in found.refused[0]


def test_a_model_that_the_simulator_finds_late_is_given_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first prediction is made worse than it is."""
    calls = []

    def once_late(*given: object) -> Prediction:
        calls.append(given)
        found = predict(*given)  # type: ignore[arg-type]
        return replace(found, models={"m": foretold(0.5)}) if len(calls) == 1 else found

    monkeypatch.setattr(deciding, "predict", once_late)
    found = decide(question({"m": 100.0}), TERMS, solve_here)
    assert found.tightened == ("m is predicted to answer 50 % in time: given more room",)
    assert found.taken


def test_a_model_that_stays_late_is_refused_after_five_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Prediction({"m": foretold(0.9)}, {})
    monkeypatch.setattr(deciding, "predict", lambda *_: late)
    found = decide(question({"m": 100.0}), TERMS, solve_here)
    assert found.refused == ("m is predicted to answer 90 % in time",)
    assert len(found.tightened) == deciding.ROUNDS - 1


def test_without_more_room_the_best_plan_is_kept_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Prediction({"m": foretold(0.9)}, {})
    monkeypatch.setattr(deciding, "predict", lambda *_: late)
    asked = question({"m": 900.0})
    (pool,) = asked.problem.pools
    one_core = replace(pool, division=Parts("cores", 1.0))
    found = decide(replace(asked, problem=replace(asked.problem, pools=(one_core,))), TERMS, solve_here)
    assert "no more room" in found.tightened[-1]
    assert found.plan.placement
    assert found.refused


def test_a_model_of_which_nothing_came_is_not_late() -> None:
    prediction = Prediction({"m": foretold(math.nan), "n": foretold(0.98)}, {})
    assert missed(prediction, 0.99) == ["n"]


def test_room_is_given_to_those_who_miss_alone() -> None:
    asked = question({"m": 100.0, "n": 100.0}).problem
    there = tighten(asked, ["n"]).demand_of
    assert there["m"] == asked.demand_of["m"]
    assert there["n"].rate > 100.0
    assert there["n"].slack < asked.demand_of["n"].slack
