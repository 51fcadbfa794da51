"""What no worker of this gateway has loaded yet is loaded where nothing else can be harmed by it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from serving.control.commands import Command, EndWorker, Isolate, LoadReplica, Route, StartWorker, Withdraw
from serving.control.control import Control
from serving.control.isolating import HELD_MAX_US
from serving.control.reconciling import LOAD_TRIES
from serving.control.state.replicas import why_absent
from serving.control.trials import KEPT_MAX, PATIENCE, Trials
from serving.values.slice_specs import Share
from serving.values.specs import Limits
from tests.builders import KIND
from tests.control.test_control import only
from tests.control.test_isolating import DIED, isolated
from tests.control.test_moves import A, B, World, model, wanted

BOTH = (model("m", "a", "b"), model("n", "a", "b"))


def loads(commands: Sequence[Command]) -> list[tuple[str, str]]:
    return [(each.slice, each.model) for each in only(commands, LoadReplica)]


def stopping_at(world: World, stops: Callable[[Command], bool]) -> None:
    """Until a command of that sort, which is not carried out."""
    real = world.answer
    world.answer = lambda command: () if stops(command) else real(command)  # type: ignore[method-assign]


def test_at_the_start_all_is_loaded_at_once_and_nothing_apart() -> None:
    world = World([A, B], *BOTH)
    assert {each.slice for each in only(world.done, StartWorker)} == {"a", "b"}
    assert world.routed == {"a": ["m", "n"], "b": ["m", "n"]}


def test_a_model_that_comes_is_loaded_in_a_process_of_its_own_and_then_where_it_is_to_be() -> None:
    world = World([A, B], model("m", "a", "b"))
    done = world.want(wanted([A, B], *BOTH))
    assert only(done, StartWorker) == [StartWorker("a+n")]
    assert loads(done) == [("a+n", "n"), ("a", "n"), ("b", "n")]
    assert [each.slice for each in only(done, Route)] == ["a", "b"]
    assert world.routed == {"a": ["m", "n"], "b": ["m", "n"]}
    assert world.control.progress.waiting == ()


def test_meanwhile_the_others_say_what_they_wait_for() -> None:
    world = World([A, B], model("m", "a", "b"))
    stopping_at(world, lambda command: isinstance(command, LoadReplica))
    world.want(wanted([A, B], *BOTH))
    waits = "it waits for its first load on a+n"
    assert world.control.progress.waiting == (
        f"n a is absent on a: {waits}", f"n a is absent on b: {waits}", "n a is loading on a+n"
    )  # fmt: skip
    record = world.control.slices["b"]
    told = [why_absent(record, each) for each in record.replicas.values() if each.model == "n"]
    assert told == [waits]


def test_the_process_is_on_the_slice_that_serves_least() -> None:
    world = World([A, B], model("m", "a", "b"), model("n", "a"))
    done = world.want(wanted([A, B], model("m", "a", "b"), model("n", "a"), model("o", "a", "b")))
    assert loads(done)[0] == ("b+o", "o")


def test_a_slice_that_serves_nothing_goes_first_without_another_process() -> None:
    world = World([A, B], model("m", "a"))
    done = world.want(wanted([A, B], model("m", "a"), model("n", "a", "b")))
    assert only(done, StartWorker) == []
    assert loads(done) == [("b", "n"), ("a", "n")]


def test_other_files_of_a_model_are_tried_while_the_old_ones_answer() -> None:
    world = World([A], model("m", "a"))
    done = world.want(wanted([A], model("m", "a", revision="2")))
    assert loads(done) == [("a+m", "m"), ("a", "m")]
    kinds = [type(each).__name__ for each in done]
    assert kinds.index("Route") < len(kinds) - 1 - kinds[::-1].index("UnloadReplica")
    assert world.routed == {"a": ["m"]}


def test_what_was_loaded_before_is_loaded_at_once() -> None:
    world = World([A, B], *BOTH)
    world.want(wanted([A, B], model("m", "a", "b")))
    done = world.want(wanted([A, B], *BOTH))
    assert only(done, StartWorker) == []
    assert sorted(loads(done)) == [("a", "n"), ("b", "n")]


def test_a_load_that_ends_its_process_takes_nobody_along_and_is_given_up() -> None:
    world = World([A, B], model("m", "a", "b"))
    real = world.answer

    def answer(command: Command) -> Sequence[Command]:
        if isinstance(command, LoadReplica) and command.model == "n":
            return world.control.worker_lost(command.slice, DIED, world.now, ["n"])
        return real(command)

    world.answer = answer  # type: ignore[method-assign]
    done = world.want(wanted([A, B], *BOTH))
    assert loads(done) == [("a+n", "n")] * LOAD_TRIES
    assert {each.slice for each in only(done, Withdraw)} == {"a+n"}
    assert world.control.given_up == (f"slice a+n: its worker {DIED}",)
    assert world.routed == {"a": ["m"], "b": ["m"]}
    assert world.control.slices["a"].restarts == world.control.slices["b"].restarts == 0


def test_what_cannot_be_loaded_is_waited_for_by_nobody_once_that_is_known() -> None:
    """There is no way back from the first state."""
    control = Control([A], [model("m", "a"), model("n", "a")], {}, Limits(), lambda _: KIND)
    world = World([A], model("m", "a"), model("n", "a"))
    world.control, world.done = control, []
    world.fails = lambda load: load.model == "n"
    world.waiting = list(control.start(0))
    world.run()
    assert world.routed["a"] == ["m"]
    assert loads(world.done).count(("a", "n")) == 1
    assert ("a+n", "n") in loads(world.done)
    assert world.control.progress.waiting == ()
    assert "n a is absent on a: it is broken" in world.control.progress.reasons


def test_a_model_that_ends_the_worker_as_it_starts_does_so_once() -> None:
    world = World([A], model("m", "a"))
    world.done, deaths = [], 0
    control = Control([A], [model("m", "a"), model("n", "a")], world.known(), Limits(), lambda _: KIND)
    world.control = control
    gone = set[int]()
    real = world.answer

    def answer(command: Command) -> Sequence[Command]:
        nonlocal deaths
        if not isinstance(command, LoadReplica):
            return real(command)
        if command.replica in gone or control.slices[command.slice].status != "ready":
            return ()  # it was told to a worker that is dead
        if command.model == "n":
            deaths += 1
            return control.worker_lost(command.slice, DIED, world.now, ["n"])
        return real(command)

    world.answer = answer  # type: ignore[method-assign]
    world.waiting = list(control.start(0))
    world.run()
    assert deaths > LOAD_TRIES
    assert control.slices["a"].restarts == 1
    assert world.routed["a"] == ["m"]


def test_where_there_may_be_no_second_process_one_slice_goes_first() -> None:
    on_gpus = [replace(spec, device="cuda:0", part=Share("mps", 50.0)) for spec in (A, B)]
    for slices, more in ((on_gpus, model("n", "a", "b")), ([A, B], isolated("n", "a", "b", isolate="never"))):
        world = World(slices, model("m", "a", "b"))
        stopping_at(world, lambda command: isinstance(command, LoadReplica))
        done = world.want(wanted(slices, model("m", "a", "b"), more))
        assert loads(done) == [("a", "n")]
        world = World(slices, model("m", "a", "b"))
        done = world.want(wanted(slices, model("m", "a", "b"), more))
        assert loads(done) == [("a", "n"), ("b", "n")]
        assert only(done, StartWorker) == []


def test_there_the_next_one_tries_once_the_first_has_failed_often() -> None:
    more = isolated("n", "a", "b", isolate="never")
    world = World([A, B], model("m", "a", "b"))
    world.fails = lambda load: load.slice == "a" and load.model == "n"
    world.want(wanted([A, B], model("m", "a", "b"), more))
    assert world.control.given_up == ("slice a: it is broken",)
    control = world.control
    assert world.routed == {"a": ["m"], "b": ["m"]}
    assert control.slices["b"].restarts == 0


def test_slices_that_load_on_demand_try_nothing_apart() -> None:
    limited = replace(A, memory_bytes=1 << 30)
    whole = wanted([limited], model("m", "a"))
    world = World([limited], model("n", "a"))
    trials = Trials(world.control._observed)
    trials.look(whole, lambda _: False)
    assert trials.added(whole) == whole


# a load that holds the interpreter


def holding(world: World, held_us: int) -> None:
    """Loads of n hold the interpreter for so long."""
    real = world.answer

    def answer(command: Command) -> Sequence[Command]:
        if isinstance(command, LoadReplica) and command.model == "n":
            cost = (held_us, 7, held_us)
            return world.control.replica_loaded(command.slice, command.replica, cost, world.now)
        return real(command)

    world.answer = answer  # type: ignore[method-assign]


def test_a_load_that_holds_the_interpreter_keeps_its_process_and_never_enters_the_shared_one() -> None:
    world = World([A, B], model("m", "a", "b"))
    holding(world, HELD_MAX_US)
    done = world.want(wanted([A, B], *BOTH))
    assert [each.model for each in only(done, Isolate)] == ["n"]
    assert loads(done) == [("a+n", "n"), ("b+n", "n")]
    assert world.routed == {"a": ["m"], "b": ["m"], "a+n": ["n"], "b+n": ["n"]}
    told = world.control.isolation(BOTH[1], world.now)
    assert (told.processes, told.why) == (
        ("a+n", "b+n"), "its load holds the interpreter for 1.0 s"
    )  # fmt: skip


def test_one_that_holds_it_for_less_does_not() -> None:
    world = World([A, B], model("m", "a", "b"))
    holding(world, HELD_MAX_US - 1)
    done = world.want(wanted([A, B], *BOTH))
    assert only(done, Isolate) == []
    assert world.routed == {"a": ["m", "n"], "b": ["m", "n"]}


def test_a_batch_that_is_late_while_something_loads_ends_nothing_for_a_while() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    holding(world, 900_000)
    world.want(wanted([A], model("m", "a")))
    world.want(wanted([A], model("m", "a"), model("n", "a")))
    world.want(wanted([A], model("m", "a")))
    stopping_at(world, lambda command: isinstance(command, LoadReplica))
    world.want(wanted([A], model("m", "a"), model("n", "a")))
    control, began_us = world.control, world.control.slices["a"].heard_us
    spared_us = PATIENCE * 900_000 + Limits().stall_us
    assert control.worker_stuck("a", "late", began_us + spared_us - 1) == ()
    assert control.worker_stuck("a", "late", began_us + spared_us) == (EndWorker("a", "late"),)


def test_a_batch_that_is_late_otherwise_ends_its_worker_at_once_and_is_to_blame() -> None:
    world = World([A], model("m", "a"))
    assert world.control.worker_stuck("a", "late", world.now) == (EndWorker("a", "late"),)
    lost = world.control.worker_lost("a", "was ended: late", world.now, ["m"])
    assert Withdraw("a", "was ended: late", blamed=True) in lost


def test_a_crash_is_the_batch_s_fault_and_a_kill_is_not() -> None:
    for crashed in (True, False):
        world = World([A], model("m", "a"))
        assert Withdraw("a", DIED, crashed) in world.control.worker_lost("a", DIED, world.now, ["m"], crashed)


def test_what_is_remembered_of_loads_is_bounded() -> None:
    trials = Trials(World([A], model("m", "a")).control._observed)
    for number in range(KEPT_MAX + 10):
        trials.loaded(("m", "a", str(number)), 1)
    assert len(trials._loaded) == KEPT_MAX
