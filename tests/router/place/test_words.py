"""The sentences about a placement."""

from dataclasses import replace
from math import inf, nan

import pytest

from router.place import words
from serving.policy.placement.plan import PlacementPlan
from serving.policy.placement.problem import PlacementProblem
from tests.router.place import samples
from tests.router.place.samples import CHANGED, FIRST, FLEET, KEPT, NOTHING, foretold, lacking


def test_the_first_sentence_says_devices_models_reserve_cost_bound_and_what_is_predicted() -> None:
    assert words.sentence(CHANGED) == (
        "3 of 6 devices carry 4 models with 20 % in reserve, for 3.20 an hour (no plan can cost less than "
        "2.91; gap 9.9 %); all models are predicted to keep their SLO."
    )


def test_a_plan_that_is_proved_is_said_to_be_the_cheapest() -> None:
    proved = replace(CHANGED, plan=replace(CHANGED.plan, optimal=True))
    assert "for 3.20 an hour (no plan can cost less);" in words.sentence(proved)
    reached = replace(CHANGED, plan=replace(CHANGED.plan, bound=CHANGED.cost))
    assert "for 3.20 an hour (no plan can cost less);" in words.sentence(reached)


def test_what_is_kept_though_a_cheaper_plan_is_known_is_not_called_the_cheapest() -> None:
    proved = replace(KEPT, plan=replace(KEPT.plan, optimal=True))
    said = words.sentence(proved)
    assert said.startswith("Nothing changes: 4 of 6 devices carry 4 models")
    assert "for 4.65 an hour (no plan can cost less than 3.20; gap 45.3 %)" in said


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (2.2, "(no plan can do with fewer)"),
        (1.0000000001, "(no plan can do with fewer than 1)"),
        (2.9999999999, "(no plan can do with fewer)"),
        (0.0, "in reserve; all"),
        (inf, "in reserve; all"),
    ],
)
def test_where_nobody_named_a_price_devices_are_counted(bound: float, said: str) -> None:
    plan = replace(CHANGED.plan, bound=bound)
    sentence = words.sentence(replace(CHANGED, priced=False, plan=plan))
    assert said in sentence
    assert "hour" not in sentence


def test_models_that_miss_their_slo_are_named_with_the_worst_first() -> None:
    assert words.sentence(foretold(0.5, 0.9712, 0.995, 1.0)).endswith(
        "; minilm is predicted to answer 50.0 % in time, not 99 %, and 1 other model misses its SLO too."
    )
    assert words.sentence(foretold(0.5, 0.9712, 0.4, 1.0)).endswith(
        "; digits is predicted to answer 40.0 % in time, not 99 %, and 2 other models miss theirs too."
    )
    assert words.sentence(foretold(0.995, 0.9712, 0.995, 1.0)).endswith(
        "; bert-large-uncased is predicted to answer 97.1 % in time, not 99 %."
    )


def test_a_model_that_is_not_carried_is_named_and_nothing_is_said_of_a_bound() -> None:
    said = words.sentence(lacking())
    assert "carry 4 models with 20 % in reserve, but for bert-large-uncased, for 3.20 an hour; all" in said
    assert "gap" not in said


def test_where_nothing_is_asked_no_device_is_needed() -> None:
    assert words.sentence(NOTHING) == "Nothing is asked of any model, and no device is needed."
    idle = PlacementProblem((replace(FLEET.demands[0], rate=0.0),), FLEET.pools)
    assert words.sentence(replace(NOTHING, problem=idle, models=samples.told(idle, {}, (nan,)))).startswith(
        "Nothing is asked"
    )


def test_one_device_and_one_model_are_spoken_of_as_one() -> None:
    demand = samples.demand("digits", 10, 25, 240)
    problem = PlacementProblem((demand,), samples.pools(1, 0))
    placement = {"gpu-0": (samples.slot(problem, samples.mig("1g.10gb"), "digits", start=0),)}
    shown = replace(
        FIRST,
        problem=problem,
        after=placement,
        plan=PlacementPlan(placement, 1.45, 0.3, "greedy"),
        reserve=0.0,
        models=samples.told(problem, placement, (1.0,)),
    )
    assert words.sentence(shown) == (
        "1 of 1 device carries 1 model, for 1.45 an hour (no plan can cost less than 0.30; gap 383 %); it is "
        "predicted to keep its SLO."
    )


def test_nothing_is_claimed_of_what_was_not_simulated() -> None:
    assert words.sentence(foretold(nan, nan, nan, nan)).endswith("; nothing is predicted of it.")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a"], "a"),
        (["gpu-1", "gpu-2"], "gpu-1, gpu-2"),
        (["gpu-1", "gpu-2", "gpu-3", "gpu-7"], "gpu-1 to gpu-3, gpu-7"),
        (["gpu-9", "gpu-10", "gpu-11"], "gpu-9 to gpu-11"),
        (["a", "c", "e", "g", "i"], "a, c and 3 more"),
        (["7", "8", "9"], "7 to 9"),
        (["gpu-08", "gpu-9"], "gpu-08, gpu-9"),
    ],
)
def test_numbered_devices_are_told_as_spans(names: list[str], said: str) -> None:
    assert words.spans(names) == said


@pytest.mark.parametrize(
    ("names", "said"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_a_few_names_are_listed_and_many_counted(names: list[str], said: str) -> None:
    assert words.listed(names) == said
    assert words.listed([str(number) for number in range(20)]) == "0, 1, 2 and 17 more"
