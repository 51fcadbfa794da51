"""After a kill from outside, a loaded spare answers while the slice's worker starts again."""

import pytest

from serving.control.commands import (
    Command,
    EndWorker,
    LoadReplica,
    Route,
    StartWorker,
    StopWorker,
    UnloadReplica,
    Unroute,
    Withdraw,
)
from serving.control.control import Control
from serving.control.rollouts.rollout import RolloutState
from serving.control.sparing import KEPT_US, ROOM
from serving.control.state.desired import DesiredState
from serving.control.state.timeouts import ANSWERED_US, backoff_us
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits
from tests.builders import KIND, model_spec, profile, served
from tests.control.test_control import only

SPARE = "s+spare"
HELD = 1000
START, LOAD = 300_000, 400_000
LIVED_US = 40_000_000


def up(*slices: str, memory_bytes: int = 0) -> Control:
    """A controller with one model, loaded on each slice."""
    names = slices or ("s",)
    known = {(name, "m", "a"): profile("m", "a", count=REFINED_COUNT) for name in names}
    specs = [SliceSpec(name, (), memory_bytes=memory_bytes) for name in names]
    control = Control(specs, [served(model_spec(), names)], known, Limits(), lambda _: KIND)
    control.start(0)
    for name in names:
        bring_up(control, name, START)
    return control


def bring_up(control: Control, name: str, now_us: int) -> None:
    """Start the worker of a slice and load what is asked for there."""
    loads = only(control.worker_ready(name, now_us), LoadReplica)
    for load in loads:
        loads += only(control.replica_loaded(load.slice, load.replica, (LOAD, HELD), now_us), LoadReplica)


def kill(
    control: Control, now_us: int, free_bytes: int = ROOM * HELD, crashed: bool = False
) -> list[Command]:
    """End the worker of "s" from outside."""
    return list(control.worker_lost("s", "was killed", now_us, (), crashed, free_bytes))


def with_spare(control: Control) -> int:
    """Kill the worker of "s" and bring up both its next worker and the spare; return when both are there."""
    kill(control, LIVED_US)
    now_us = LIVED_US + backoff_us(1)
    control.tick(now_us, ())
    now_us += START
    bring_up(control, "s", now_us)
    assert SPARE in control.slices
    now_us += START
    bring_up(control, SPARE, now_us)
    return now_us


def routed(control: Control) -> set[str]:
    """The processes that get batches."""
    return {
        name
        for name, each in control.slices.items()
        for one in each.replicas.values()
        if one.status == "ready"
    }


def test_a_spare_is_started_once_the_worker_is_back() -> None:
    control = up()
    assert not only(kill(control, LIVED_US), StartWorker)
    now_us = LIVED_US + backoff_us(1)
    assert only(control.tick(now_us, ()), StartWorker) == [StartWorker("s")]
    (load,) = only(control.worker_ready("s", now_us + START), LoadReplica)
    said = control.replica_loaded("s", load.replica, (LOAD, HELD), now_us + START + LOAD)
    assert only(said, StartWorker) == [StartWorker(SPARE)]
    (load,) = only(control.worker_ready(SPARE, now_us + 2 * START + LOAD), LoadReplica)
    assert not only(control.replica_loaded(SPARE, load.replica, (LOAD, HELD), LIVED_US * 2), Route)
    assert routed(control) == {"s"}
    assert control.progress.waiting == ()


def test_a_spare_answers_from_the_kill_until_the_worker_is_back() -> None:
    control = up()
    now_us = with_spare(control) + LIVED_US
    said = kill(control, now_us)
    assert [(each.slice, each.model) for each in only(said, Route)] == [(SPARE, "m")]
    assert only(said, Withdraw)
    assert routed(control) == {SPARE}
    now_us += backoff_us(1)
    control.tick(now_us, ())
    (load,) = only(control.worker_ready("s", now_us + START), LoadReplica)
    assert routed(control) == {SPARE}
    said = list(control.replica_loaded("s", load.replica, (LOAD, HELD), now_us + START + LOAD))
    kinds = [type(each) for each in said if isinstance(each, Route | Unroute)]
    assert kinds == [Route, Unroute]  # never without a replica
    assert routed(control) == {"s"}
    assert SPARE in control.slices


def test_a_spare_ends_some_time_after_the_last_kill() -> None:
    control = up()
    with_spare(control)
    assert control.wake_us <= LIVED_US + KEPT_US
    (unload,) = only(control.tick(LIVED_US + KEPT_US, ()), UnloadReplica)
    assert unload.slice == SPARE
    said = control.replica_unloaded(SPARE, unload.replica, LIVED_US + KEPT_US)
    assert only(said, StopWorker) == [StopWorker(SPARE)]
    control.worker_lost(SPARE, "ended", LIVED_US + KEPT_US)
    assert set(control.slices) == {"s"}
    assert routed(control) == {"s"}


@pytest.mark.parametrize(
    ("lived_us", "free_bytes", "crashed"),
    [
        (LIVED_US, ROOM * HELD - 1, False),  # no room
        (LIVED_US, 0, False),  # unknown room
        (LIVED_US, ROOM * HELD, True),  # its own code ended it
        (START + ANSWERED_US - 1, ROOM * HELD, False),  # it hardly lived
    ],
)
def test_no_spare_without_room_or_an_outside_cause(lived_us: int, free_bytes: int, crashed: bool) -> None:
    control = up()
    kill(control, lived_us, free_bytes, crashed)
    control.tick(lived_us + backoff_us(1), ())
    bring_up(control, "s", LIVED_US * 2)
    assert set(control.slices) == {"s"}


def test_no_spare_where_another_slice_answers_or_models_are_loaded_on_demand() -> None:
    for control in (up("s", "t"), up(memory_bytes=1 << 30)):
        kill(control, LIVED_US)
        control.tick(LIVED_US + backoff_us(1), ())
        bring_up(control, "s", LIVED_US * 2)
        assert SPARE not in control.slices


def test_a_spare_that_cannot_load_is_given_up_and_harms_no_rollout() -> None:
    control = up()
    kill(control, LIVED_US)
    control.tick(LIVED_US + backoff_us(1), ())
    bring_up(control, "s", LIVED_US * 2)
    (load,) = only(control.worker_ready(SPARE, LIVED_US * 2), LoadReplica)
    said = control.replica_failed(SPARE, load.replica, "no luck", LIVED_US * 2)
    assert only(said, StopWorker) == [StopWorker(SPARE)]
    assert control.given_up == ()
    assert control.progress.state is RolloutState.STEADY
    assert routed(control) == {"s"}


def test_a_killed_spare_costs_nothing() -> None:
    control = up()
    now_us = with_spare(control)
    said = control.worker_lost(SPARE, "was killed", now_us + LIVED_US, (), False, ROOM * HELD)
    assert not only(said, Unroute)
    assert not only(said, EndWorker)
    assert routed(control) == {"s"}
    assert control.progress.state is RolloutState.STEADY


def test_a_spare_goes_with_the_models_of_its_slice() -> None:
    control = up()
    now_us = with_spare(control)
    said = list(control.want(DesiredState.of([SliceSpec("s", ())], []), now_us))
    said += control.model_retired("m", now_us)
    assert {each.slice for each in only(said, UnloadReplica)} == {"s", SPARE}
    for each in only(said, UnloadReplica):
        said += control.replica_unloaded(each.slice, each.replica, now_us)
    assert only(said, StopWorker) == [StopWorker(SPARE)]
    control.worker_lost(SPARE, "ended", now_us)
    assert control.progress.state is RolloutState.STEADY
