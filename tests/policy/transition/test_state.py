"""What a fleet in the middle of a transition promises: steps do what they say, and no step that cannot be."""

import pytest

from serving.policy.placement.terms.plan import PlacedReplica, Slot
from serving.policy.placement.terms.problem import Option
from serving.policy.transition.state import State
from serving.policy.transition.steps import (
    Address,
    Create,
    Destroy,
    Drain,
    LoadStep,
    RouteStep,
    Sizing,
    Step,
    UnloadStep,
)
from serving.values.slice_specs import Share

HALF = Share("mps", 50.0)


def resident(model: str, rows: int = 4) -> PlacedReplica:
    return PlacedReplica(model, Option("B", HALF, "fp16", ((1, 10.0),)), rows, 10.0)


A, B = resident("a"), resident("b")
OLD = {"gpu-0": (Slot(HALF, (A,)),)}
THERE, NEXT = Address("gpu-0", 0, 0), Address("gpu-0", 1, 0)
CREATE, DESTROY = Create("gpu-0", 1, HALF, -1), Destroy("gpu-0", 1, HALF, -1)
MAKE: tuple[Step, ...] = (CREATE, LoadStep(NEXT, B), RouteStep((NEXT,), (THERE,)))


def after(*steps: Step) -> State:
    state = State.of(OLD)
    for step in steps:
        state = state.apply(step)
    return state


def test_a_placement_at_rest_is_routed_as_it_is() -> None:
    state = State.of({**OLD, "gpu-1": ()})
    assert state.routed == OLD
    assert state.changing == ()


def test_what_is_created_and_loaded_computes_only_once_it_is_routed() -> None:
    assert after(CREATE).routed == OLD
    assert after(*MAKE[:2]).routed == OLD
    assert after(*MAKE).routed == {"gpu-0": (Slot(HALF, (B,)),)}


def test_a_device_is_changing_while_something_that_does_not_compute_is_loaded_there() -> None:
    assert after(CREATE).changing == ()
    assert after(*MAKE[:2]).changing == ("gpu-0",)
    assert after(*MAKE, Drain(THERE)).changing == ("gpu-0",)
    assert after(*MAKE, Drain(THERE), UnloadStep(THERE, A)).changing == ()


def test_a_step_leaves_the_state_before_it_as_it_was() -> None:
    before = after(CREATE)
    before.apply(LoadStep(NEXT, B))
    assert before == after(CREATE)


def test_a_device_on_which_nothing_is_left_is_gone() -> None:
    gone = after(RouteStep(down=(THERE,)), UnloadStep(THERE, A), Destroy("gpu-0", 0, HALF, -1))
    assert gone == State({})


def test_sizing_changes_the_batches_and_nothing_else() -> None:
    larger = resident("a", rows=8)
    assert after(RouteStep(sized=(Sizing(THERE, A, larger),))).routed == {"gpu-0": (Slot(HALF, (larger,)),)}


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (Create("gpu-0", 0, HALF, -1), "create gpu-0/0 (mps:50): it is there"),
        (DESTROY, "destroy gpu-0/1 (mps:50): there is no such slice"),
        (Destroy("gpu-0", 0, HALF, -1), "1 replicas are loaded there"),
        (LoadStep(THERE, B), "load b (fp16, 4 rows) on gpu-0/0/0: it is loaded"),
        (LoadStep(NEXT, B), "there is no such slice"),
        (UnloadStep(THERE, A), "unload a (fp16, 4 rows) on gpu-0/0/0: it is routed"),
        (Drain(THERE), "drain gpu-0/0/0: it is routed"),
        (Drain(Address("gpu-9", 0, 0)), "there is no such slice"),
        (RouteStep(up=(THERE,)), "gpu-0/0/0 is routed as it is"),
        (RouteStep(down=(NEXT,)), "there is no such slice"),
        (RouteStep(down=(Address("gpu-0", 0, 5),)), "gpu-0/0/5 is not loaded"),
        (RouteStep(sized=(Sizing(THERE, B, A),)), "gpu-0/0/0 is not what it says"),
    ],
    ids=str,
)
def test_a_step_that_cannot_be_is_an_error(step: Step, reason: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # the reasons differ
        after(step)
    assert reason in str(raised.value)


def test_what_is_not_routed_is_neither_taken_off_nor_sized_nor_unloaded_as_another() -> None:
    loaded = after(*MAKE[:2])
    with pytest.raises(ValueError, match="gpu-0/1/0 is not routed as it is"):
        loaded.apply(RouteStep(down=(NEXT,)))
    with pytest.raises(ValueError, match="is not what it says"):
        loaded.apply(RouteStep(sized=(Sizing(NEXT, B, resident("b", 8)),)))
    with pytest.raises(ValueError, match="b is loaded there"):
        loaded.apply(UnloadStep(NEXT, A))


def test_steps_say_what_they_do_and_which_devices_they_change() -> None:
    route = RouteStep((NEXT,), (Address("gpu-2", 0, 1),), (Sizing(THERE, A, resident("a", 8)),))
    assert str(route) == "route to gpu-0/1/0, no longer to gpu-2/0/1, with a on gpu-0/0/0 to 8 rows"
    assert route.devices == ("gpu-0", "gpu-2")
    assert str(Create("gpu-0", 1, Share("mig", 3.0, "3g.40gb"), 4)) == "create gpu-0/1 (mig:3g.40gb at 4)"
    for step in (CREATE, DESTROY, LoadStep(NEXT, B), UnloadStep(NEXT, B), Drain(NEXT)):
        assert step.devices == ("gpu-0",)
