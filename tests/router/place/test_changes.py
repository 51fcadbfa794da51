"""What a plan changes, in words."""

from dataclasses import replace

from router.place import changes
from serving.policy.placement.moves import moves
from tests.router.place.samples import BEFORE, CHANGED, FIRST, KEPT


def test_a_plan_that_is_taken_is_told_with_the_reason_and_what_moves_is_counted() -> None:
    assert list(changes.changed(CHANGED)) == [
        f"The plan is taken: {CHANGED.reason}.",
        "8 replicas start, 4 end, 1 stays; 4 devices before, 3 after.",
    ]
    assert list(changes.changed(FIRST)) == [
        "The plan is taken: nothing is in place yet.",
        "9 replicas start, 0 end, 0 stay; 0 devices before, 3 after.",
    ]


def test_a_plan_that_is_not_taken_is_told_with_its_cost_and_the_reason() -> None:
    reason = "it saves only 1.15 in 3600 s, starting 6 replicas costs 2.3"
    assert list(changes.changed(KEPT)) == [
        f"A plan on 3 devices for 3.20 an hour was found and is not taken: {reason}."
    ]
    assert list(changes.changed(replace(KEPT, priced=False))) == [
        f"A plan on 3 devices was found and is not taken: {reason}."
    ]


def test_a_plan_that_is_what_is_in_place_moves_nothing() -> None:
    same = replace(KEPT, moves=moves(BEFORE, BEFORE))
    assert list(changes.changed(same)) == ["Nothing moves: 5 replicas stay in place, as the plan has them."]


def test_a_plan_that_breaks_a_promise_changes_nothing() -> None:
    broken = replace(CHANGED, taken=False, refused=("digits: too late",))
    assert list(changes.changed(broken)) == ["Nothing is changed, as the plan breaks a promise."]


def test_steps_are_told_by_what_is_done_at_once_with_the_names_of_models() -> None:
    told, left = changes.stages(CHANGED, 20)
    assert told == [
        "make 8 cores (node-1); make 4 cores (node-1)",
        "load minilm (node-1)",
        "send requests to minilm (node-1); send no more to minilm (gpu-0); "
        "change the batches of digits (gpu-2)",
        "wait for minilm to end (gpu-0)",
        "unload minilm (gpu-0)",
        "remove 7g.80gb (gpu-0)",
    ]
    assert left == ""


def test_many_steps_are_cut_and_what_is_alike_in_one_is_told_once() -> None:
    stage = tuple(replace(CHANGED.steps[1][0], device=f"gpu-{number}") for number in range(300))
    told, left = changes.stages(replace(CHANGED, steps=(stage,) * 50), 20)
    assert told == ["load minilm (gpu-0 to gpu-299)"] * 20
    assert left == "and 30 more"


def test_what_is_done_several_times_on_a_device_is_told_with_how_often() -> None:
    step = CHANGED.steps[1][0]
    stage = (step, step, step, replace(step, device="node-0"))
    assert changes.stages(replace(CHANGED, steps=(stage,)), 20) == (
        ["load minilm 4 times (node-1, node-0)"], "",
    )  # fmt: skip
