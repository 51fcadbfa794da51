"""A name goes from one version of a model to another on all slices at once, but no model waits for it that
nothing answers."""

from collections.abc import Sequence
from dataclasses import replace

from serving.control.commands import Command, LoadReplica, Route, ServeModel
from serving.control.rollouts.rollout import RolloutState
from serving.values.specs import ServedModel
from tests.control.test_control import only
from tests.control.test_moves import A, B, C, World, model, wanted

SLICES = (A, B, C)


def version(number: int) -> ServedModel:
    base = model("m", "a", "b", "c", revision=str(number))
    return replace(base, spec=replace(base.spec, version=number))


class SlowWorld(World):
    """A world in which a load on slice `slow` takes long."""

    slow = ""

    def answer(self, command: Command) -> Sequence[Command]:
        if isinstance(command, LoadReplica) and command.slice == self.slow:
            return ()
        return super().answer(command)


def held(world: SlowWorld) -> SlowWorld:
    """Version 3 is loaded on a and c, and still to be loaded on b."""
    world.slow = "b"
    world.want(wanted(SLICES, version(3)))
    return world


def versions(world: World) -> set[tuple[str, int]]:
    """Which version answers on which slice."""
    return {
        (name, each.served.spec.version)
        for name, record in world.control.slices.items()
        for each in record.replicas.values()
        if each.status == "ready"
    }


def test_no_slice_answers_by_the_new_version_before_all_have_it() -> None:
    world = held(SlowWorld(SLICES, version(2)))
    assert versions(world) == {("a", 2), ("b", 2), ("c", 2)}
    assert not only(world.done, ServeModel)
    (waiting,) = [each for each in world.control.slices["b"].replicas.values() if each.status == "loading"]
    world.done, world.waiting = [], list(world.control.replica_loaded("b", waiting.id, (5, 7), world.now))
    world.run()
    served = [each for each in world.done if isinstance(each, ServeModel | Route)]
    assert [type(each) for each in served] == [ServeModel, Route, Route, Route]
    assert versions(world) == {("a", 3), ("b", 3), ("c", 3)}
    assert world.control.progress.state is RolloutState.STEADY


def test_where_the_old_version_has_gone_the_new_one_waits_for_no_other_slice() -> None:
    world = held(SlowWorld(SLICES, version(2)))
    for name in "abc":
        world.waiting += world.control.worker_lost(name, "died", world.now)
    world.run()
    assert versions(world) == {("a", 3), ("c", 3)}


def test_a_name_that_comes_back_with_another_version_is_answered_by_the_old_one_until_all_have_it() -> None:
    world = SlowWorld(SLICES, version(2))
    world.open = {"m"}
    world.want(wanted(SLICES))
    held(world)
    assert versions(world) == {("a", 2), ("b", 2), ("c", 2)}
    assert [each.model.spec.version for each in only(world.done, ServeModel)] == [2], "it is served again"
