"""What control promises of changes: make before break, back to where it was if it cannot be, nothing lost."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from serving.control.commands import (
    Command,
    EndWorker,
    ForgetModel,
    LoadReplica,
    Measure,
    Replan,
    RetireModel,
    ServeModel,
    StartWorker,
    StopWorker,
    UnloadReplica,
    Unroute,
    Withdraw,
)
from serving.control.control import Control
from serving.control.reconciling import LOAD_TRIES, START_TRIES
from serving.control.rollouts.rollout import RolloutState
from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.profile.curve import Profile
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import NEVER_US
from tests.builders import KIND, model_spec, profile, served
from tests.control.test_control import only


def model(name: str, *slices: str, revision: str = "", slo_ms: int = 50) -> ServedModel:
    return replace(served(model_spec(name, slo_ms=slo_ms), slices), revision=revision)


def wanted(slices: Sequence[SliceSpec], *models: ServedModel) -> DesiredState:
    return DesiredState.of(slices, models)


A, B, C = (SliceSpec(name, (number,)) for number, name in enumerate("abc"))


class World:
    """Control with workers that do what they are told, one thing at a time; what they did is in `done`."""

    def __init__(self, slices: Sequence[SliceSpec], *models: ServedModel) -> None:
        self.control = Control(slices, models, self.known(), Limits(), lambda _: KIND)
        self.now = 0
        self.done: list[Command] = []
        self.fails: Callable[[LoadReplica], bool] = lambda _load: False
        self.starts: Callable[[str], bool] = lambda _slice: True
        self.open = set[str]()  # models with requests that are not answered yet
        self.waiting: list[Command] = list(self.control.start(0))
        self.run()

    def known(self) -> dict[tuple[str, str, str], Profile]:
        return {(name, each, "a"): profile(each, count=REFINED_COUNT) for name in "abc" for each in "mn"}

    def run(self, steps: int = 1000) -> None:
        """Do what was told, and what becomes due within 20 s."""
        control, end_us = self.control, self.now + 20_000_000
        for _ in range(steps):
            if not self.waiting:
                due_us = control.wake_us
                if due_us > end_us:
                    return
                self.now = max(self.now, due_us)
                self.waiting += control.tick(self.now, ())
                continue
            command = self.waiting.pop(0)
            self.done.append(command)
            self.waiting += self.answer(command)

    def answer(self, command: Command) -> Sequence[Command]:
        control, now = self.control, self.now
        match command:
            case StartWorker(slice=name) if self.starts(name):
                return control.worker_ready(name, now)
            case StartWorker(slice=name):
                return control.worker_lost(name, "exited with 1", now)
            case StopWorker(slice=name):
                return control.worker_lost(name, "exited with 0", now)
            case LoadReplica(slice=name, replica=replica):
                if self.fails(command):
                    return control.replica_failed(name, replica, "it is broken", now)
                return control.replica_loaded(name, replica, (5, 7), now)
            case Measure(slice=name, measurement=sample):
                took = [100 * sample.rows] * sample.repeats
                return control.measured(name, (sample.rows, sample.size), took, now)
            case UnloadReplica(slice=name, replica=replica):
                return control.replica_unloaded(name, replica, now)
            case RetireModel(model=name) if name not in self.open:
                return control.model_retired(name, now)
        return ()

    def want(self, goal: DesiredState, by: Sequence[DesiredState] = ()) -> list[Command]:
        """Want it, do it, and return what was done for it."""
        self.done = []
        self.waiting += self.control.want(goal, self.now, by)
        self.run()
        return self.done

    @property
    def routed(self) -> dict[str, list[str]]:
        """By slice, the models that get batches there."""
        return {
            name: sorted(each.model for each in record.replicas.values() if each.status == "ready")
            for name, record in self.control.slices.items()
        }


def kinds(commands: Sequence[Command]) -> list[str]:
    return [type(command).__name__ for command in commands]


def where_it_serves(commands: Sequence[Command]) -> list[Command]:
    """All but what is about a process that only loads something first."""
    return [each for each in commands if "+" not in getattr(each, "slice", "")]


def test_a_model_moves_to_another_slice_and_is_routed_there_before_it_goes_here() -> None:
    world = World([A, B], model("m", "a"))
    done = world.want(wanted([A, B], model("m", "b")))
    assert kinds(done) == ["ServeModel", "LoadReplica", "Route", "Unroute", "UnloadReplica"]
    assert world.routed == {"a": [], "b": ["m"]}
    assert world.control.progress.state is RolloutState.STEADY
    assert world.control.progress.waiting == ()


def test_a_slice_that_is_not_wanted_any_more_ends_once_it_is_empty() -> None:
    world = World([A, B], model("m", "a"))
    done = world.want(wanted([B], model("m", "b")))
    assert kinds(done)[-3:] == ["UnloadReplica", "StopWorker", "Withdraw"]
    assert list(world.control.slices) == ["b"]


def test_a_share_of_a_gpu_starts_once_another_that_leaves_is_gone() -> None:
    large, small = (
        SliceSpec(name, (), device="cuda:0", part=Share.parse(share))
        for name, share in (("g4", "mig:4g.40gb"), ("g3", "mig:3g.40gb"))
    )
    world = World([A, large], model("m", "a"), model("n", "a"))
    control = world.control
    assert only(control.want(wanted([A], model("m", "a"), model("n", "a")), 1), StopWorker)
    assert not only(control.want(wanted([A, small], model("m", "a"), model("n", "a")), 2), StartWorker)
    assert only(control.worker_lost("g4", "exited with 0", 3), StartWorker) == [StartWorker("g3")]


def test_a_slice_of_another_share_is_another_slice_that_is_made_before_the_old_one_goes() -> None:
    world = World([A], model("m", "a"))
    done = world.want(wanted([replace(A, threads=2)], model("m", "a")))
    assert only(done, StartWorker) == [StartWorker("a~2")]
    assert kinds(done).index("Route") < kinds(done).index("Unroute") < kinds(done).index("StopWorker")
    assert world.routed == {"a~2": ["m"]}
    again = world.want(wanted([replace(A, threads=2)], model("m", "a")))
    assert not only(again, StartWorker), "it is there already"
    world.want(wanted([A], model("m", "a")))
    assert world.routed == {"a": ["m"]}


def test_a_model_whose_files_changed_takes_its_own_place_without_a_gap() -> None:
    world = World([A], model("m", "a"))
    old = next(iter(world.control.slices["a"].replicas))
    done = world.want(wanted([A], model("m", "a", revision="2")))
    done = where_it_serves(done)
    assert kinds(done) == ["LoadReplica", "ServeModel", "Route", "UnloadReplica"]
    assert only(done, UnloadReplica) == [UnloadReplica("a", old)]
    assert only(done, LoadReplica)[0].revision == "2"


def test_another_slo_is_served_at_once_and_nothing_is_loaded() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    done = world.want(wanted([A], model("m", "a", slo_ms=20), model("n", "a")))
    assert kinds(done) == ["ServeModel", "Route"]
    assert only(done, ServeModel)[0].model.slo_us == 20_000


def test_a_new_model_is_served_and_a_model_that_is_gone_is_drained_before_it_is_unloaded() -> None:
    world = World([A], model("m", "a"))
    world.open = {"m"}
    done = world.want(wanted([A], model("n", "a")))
    assert kinds(where_it_serves(done)) == ["ServeModel", "LoadReplica", "Route", "RetireModel"]
    assert world.routed == {"a": ["m", "n"]}, "a request for m is still open"
    assert world.control.progress.waiting == ("m a is still on a", "requests for m are still open")
    world.done = []
    world.waiting += world.control.model_retired("m", world.now)
    world.run()
    assert kinds(world.done) == ["Unroute", "UnloadReplica", "ForgetModel"]
    assert world.control.progress.state is RolloutState.STEADY


def test_a_model_that_comes_back_while_it_is_being_let_go_is_served_again() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    world.open = {"m"}
    world.want(wanted([A], model("n", "a")))
    done = world.want(wanted([A], model("m", "a"), model("n", "a")))
    assert kinds(done) == ["ServeModel"]
    assert world.routed == {"a": ["m", "n"]}
    assert world.control.progress.state is RolloutState.STEADY


def test_a_move_of_which_a_replica_cannot_be_loaded_is_given_up_and_nothing_has_gone() -> None:
    world = World([A, B], model("m", "a"), model("n", "a"))
    world.fails = lambda load: load.slice == "b" and load.model == "n"
    done = world.want(wanted([A, B], model("m", "b"), model("n", "b")))
    assert len([load for load in only(done, LoadReplica) if load.model == "n"]) == LOAD_TRIES
    assert only(done, Unroute) == [Unroute("b", "m", "a", "it is not wanted there any more")]
    assert [replan.reason for replan in only(done, Replan)] == ["slice b: it is broken"]
    assert world.routed == {"a": ["m", "n"], "b": []}
    progress = world.control.progress
    assert (progress.state, progress.reasons) == (RolloutState.STEADY, ("slice b: it is broken",))


def test_a_move_to_a_slice_whose_worker_never_starts_is_given_up() -> None:
    world = World([A], model("m", "a"))
    world.starts = lambda name: name != "b"
    done = world.want(wanted([B], model("m", "b")))
    assert len(only(done, StartWorker)) == START_TRIES
    assert world.routed == {"a": ["m"]}
    assert world.control.progress.state is RolloutState.STEADY
    assert "the worker of slice b exited with 1, 5 times" in world.control.given_up


def test_a_worker_that_dies_of_a_load_each_time_fails_the_load() -> None:
    world = World([A, B], model("m", "a"))
    control = world.control
    deaths = 0
    world.waiting += control.want(wanted([A, B], model("m", "b")), 0)
    end_us = world.now + 20_000_000
    while world.waiting or control.wake_us < end_us:
        if not world.waiting:
            world.now = max(world.now, control.wake_us)
            world.waiting += control.tick(world.now, ())
            continue
        command = world.waiting.pop(0)
        if isinstance(command, LoadReplica) and command.slice == "b":
            deaths += 1
            assert deaths < 10
            world.waiting += control.worker_lost("b", "was killed by SIGKILL", world.now)
        else:
            world.waiting += world.answer(command)
    assert deaths == LOAD_TRIES
    assert world.routed["a"] == ["m"]
    assert control.given_up == ("slice b: its worker was killed by SIGKILL",)


def test_what_failed_before_a_move_does_not_hold_it_up() -> None:
    world = World([A, B], model("m", "a"), model("n", "b"))
    world.fails = lambda load: load.model == "n"
    world.waiting += world.control.worker_lost("b", "died", world.now)
    world.run(200)
    assert world.routed == {"a": ["m"], "b": []}
    world.control.want(wanted([A, B, C], model("m", "c"), model("n", "b")), world.now)
    world.waiting += world.control.tick(world.now, ())
    world.waiting += [StartWorker("c")]
    world.run(400)
    assert world.routed == {"a": [], "b": [], "c": ["m"]}
    assert world.control.progress.state is RolloutState.STEADY
    assert any("n a is" in reason for reason in world.control.progress.reasons)


def test_turning_back_in_mid_move_restores_what_was_there() -> None:
    world = World([A, B], model("m", "a"))
    start = world.control.want(wanted([A, B], model("m", "b")), 0)
    load = only(start, LoadReplica)[0]
    world.waiting += world.control.roll_back(1)
    assert world.control.progress.state == "rolling back"
    world.run()
    assert UnloadReplica("b", load.replica) in world.done
    assert world.routed == {"a": ["m"], "b": []}
    assert world.control.progress.state is RolloutState.STEADY
    assert not world.control.roll_back(2), "there is nothing to roll back from"
    assert world.control.progress.state is RolloutState.STEADY


def test_a_move_goes_through_its_states_in_order() -> None:
    world = World([A, B], model("m", "a"))
    m = model("m", "a")
    standing = DesiredState(
        (DesiredSlice(A, (DesiredReplica("m", "a"),)), DesiredSlice(B, (DesiredReplica("m", "a", False),))),
        (m,),
    )
    turned = DesiredState(
        (DesiredSlice(A, (DesiredReplica("m", "a", False),)), DesiredSlice(B, (DesiredReplica("m", "a"),))),
        (m,),
    )
    done = world.want(DesiredState((DesiredSlice(B, (DesiredReplica("m", "a"),)),), (m,)), (standing, turned))
    assert kinds(done) == ["LoadReplica", "Route", "Unroute", "UnloadReplica", "StopWorker", "Withdraw"]


def test_while_a_slice_is_lost_its_replicas_wait_for_it_and_another_plan_is_asked_for() -> None:
    gpu = SliceSpec("b", (), device="cuda:0")
    world = World([A, gpu], model("m", "a", "b"))
    lost = world.control.device_lost("cuda:0", "it fell off the bus", 5)
    assert lost == [Withdraw("b", "it fell off the bus"), Replan("cuda:0 is lost: it fell off the bus")]
    assert world.control.worker_lost("b", "was killed", 6) == []
    assert world.routed == {"a": ["m"], "b": []}
    assert any("it fell off the bus" in reason for reason in world.control.progress.reasons)
    world.waiting += world.control.device_back("cuda:0", 7)
    world.run()
    assert world.routed == {"a": ["m"], "b": ["m"]}


def test_a_move_onto_a_device_that_is_lost_turns_back() -> None:
    gpu = SliceSpec("b", (), device="cuda:0")
    world = World([A], model("m", "a"))
    world.control.want(wanted([gpu], model("m", "b")), 0)
    world.waiting += world.control.device_lost("cuda:0", "it fell off the bus", 5)
    world.run()
    assert world.routed == {"a": ["m"]}
    assert world.control.progress.state is RolloutState.STEADY


@pytest.mark.parametrize("at", range(12))
def test_a_worker_that_dies_anywhere_in_a_move_delays_it_only(at: int) -> None:
    for victim in "ab":
        world = World([A, B], model("m", "a"), model("n", "a"))
        world.done = []
        world.waiting += world.control.want(wanted([B], model("m", "b"), model("n", "b")), world.now)
        world.run(at)
        if victim in world.control.slices:
            gone = ("LoadReplica", "UnloadReplica", "StartWorker", "StopWorker")
            world.waiting = [
                each
                for each in world.waiting
                if type(each).__name__ not in gone or each.slice != victim  # type: ignore[union-attr]
            ]
            world.waiting += world.control.worker_lost(victim, "died", world.now)
        world.run()
        assert world.routed == {"b": ["m", "n"]}, (victim, at)
        assert world.control.progress.state is RolloutState.STEADY


def test_stopped_it_does_nothing_more() -> None:
    world = World([A], model("m", "a"))
    world.control.stop()
    assert world.control.want(wanted([B], model("m", "b")), 1) == ()
    assert world.control.wake_us == NEVER_US
    assert not only(world.done, ForgetModel)


def test_a_worker_that_has_long_been_quiet_has_its_time_to_unload() -> None:
    world = World([A, B], model("m", "a"), model("n", "a"))
    world.now += 10 * int(Limits().startup_s * 1e6)
    commands = list(world.control.want(wanted([A, B], model("m", "a"), model("n", "b")), world.now))
    load = only(commands, LoadReplica)[0]
    world.now += 1000
    assert only(world.control.replica_loaded("b", load.replica, (5, 7), world.now), UnloadReplica)
    assert world.control.wake_us > world.now
    assert not only(world.control.tick(world.now + 1000, ()), EndWorker)


def test_a_slice_to_go_back_to_keeps_its_name_to_itself() -> None:
    world = World([A, B], model("m", "a"), model("n", "b"))
    world.starts = lambda name: name == "b"
    world.control.want(wanted([B], model("m", "b"), model("n", "b")), world.now)
    wide = replace(A, threads=2)
    done = world.want(wanted([wide, B], model("m", "a"), model("n", "b")))
    assert StartWorker("a~2") in done
    assert world.routed == {"a": ["m"], "b": ["n"]}, "the wide one never started"


def test_a_worker_that_is_there_only_after_it_was_to_end_is_stopped() -> None:
    world = World([A], model("m", "a"))
    started = world.control.want(wanted([A, B], model("m", "a")), world.now)
    assert StartWorker("b") in started
    world.control.roll_back(world.now)
    assert world.control.worker_ready("b", world.now) == [StopWorker("b")]


def test_a_worker_that_does_not_end_when_it_is_to_is_ended() -> None:
    world = World([A, B], model("m", "a"))
    assert StopWorker("b") in world.control.want(wanted([A], model("m", "a")), world.now)
    patience_us = int(Limits().startup_s * 1e6)
    assert not only(world.control.tick(world.now + patience_us - 1, ()), EndWorker)
    assert only(world.control.tick(world.now + patience_us, ()), EndWorker)[0].slice == "b"


def test_a_worker_that_ends_late_on_a_lost_device_brings_no_other_up_there() -> None:
    """On the way back the slice is let go, lost, and wanted again before the process of then has ended."""
    lost = replace(A, device="d")
    world = World([lost, B], model("m", "b"))
    without, with_it = wanted([B], model("m", "b")), wanted([lost, B], model("m", "b"))
    world.waiting += world.control.want(wanted([lost, B, C], model("m", "b")), world.now, [without, with_it])
    while world.control.progress.step < 3:
        world.waiting += world.answer(world.waiting.pop(0))
    world.control.roll_back(world.now)
    world.control.worker_lost("c", "exited with 0", world.now)
    assert world.control.slices["a"].status == "stopping"
    world.control.device_lost("d", "it fell off", world.now)
    assert world.control.slices["a"].status == "stopped"
    world.control.worker_lost("a", "exited with 0", world.now)
    world.done, world.waiting = [], []
    world.run()
    assert not any(isinstance(each, StartWorker) for each in world.done)
