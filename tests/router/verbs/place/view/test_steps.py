"""The steps of a transition, with the names of what they touch."""

from router.verbs.place.view.steps import ShownStep, steps
from serving.policy.transition.steps import Address, Create, LoadStep, RouteStep, Transition, UnloadStep
from tests.router.verbs.place.samples import AFTER, BEFORE, STEPS, TRANSITION, cores, mig


def test_each_step_names_the_slice_and_the_model_that_it_touches() -> None:
    whole = mig("7g.80gb")
    assert steps(BEFORE, TRANSITION) == STEPS == (
        (ShownStep("create", "node-1", cores(8)), ShownStep("create", "node-1", cores(4))),
        (ShownStep("load", "node-1", cores(8), -1, "minilm", "int8"),),
        (
            ShownStep("route", "node-1", cores(8), -1, "minilm", "int8"),
            ShownStep("stop", "gpu-0", whole, 0, "minilm", "fp16"),
            ShownStep("resize", "gpu-2", whole, 0, "digits", "fp16"),
        ),
        (ShownStep("drain", "gpu-0", whole, 0, "minilm", "fp16"),),
        (ShownStep("unload", "gpu-0", whole, 0, "minilm", "fp16"),),
        (ShownStep("destroy", "gpu-0", whole, 0),),
    )  # fmt: skip


def test_a_replica_that_comes_and_goes_is_known_by_where_it_was_loaded() -> None:
    resident = AFTER["node-1"][0].residents[0]
    address = Address("node-0", 0, 0)
    found = steps({}, Transition((
        (Create("node-0", 0, cores(8), -1),), (LoadStep(address, resident),), (RouteStep((address,)),),
        (RouteStep((), (address,)),), (UnloadStep(address, resident),),
    )))  # fmt: skip
    assert [stage[0].model for stage in found] == ["", "minilm", "minilm", "minilm", "minilm"]
    assert [stage[0].action for stage in found] == ["create", "load", "route", "stop", "unload"]


def test_no_steps_are_none() -> None:
    assert steps(BEFORE, Transition()) == ()
