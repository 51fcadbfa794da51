"""A model that is stated to, or whose deaths ask for it, has a worker process of its own on its slices; the
others are served on beside it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.control.commands import (
    Command,
    EndWorker,
    Isolate,
    LoadReplica,
    Measure,
    Route,
    StartWorker,
    UnloadReplica,
    Unroute,
    Withdraw,
)
from serving.control.control import Control
from serving.control.isolating import DEATHS_MAX, KEPT_MAX, WINDOW_US, Isolating
from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.control.state.timeouts import BACKOFF_FIRST_US
from serving.values.objectives import ReplicaSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits, ServedModel
from tests.builders import KIND, model_spec
from tests.control.test_control import only
from tests.control.test_moves import A, B, World, model, wanted

SECOND_US = 1_000_000
DIED = "was killed by SIGSEGV"


def isolated(name: str, *slices: str, isolate: str = "always", revision: str = "") -> ServedModel:
    return replace(model(name, *slices, revision=revision), isolate=isolate)


def die(world: World, slice_name: str, *busy_with: str, after_us: int = SECOND_US) -> list[Command]:
    """The slice's worker dies; what was done for that, until all that is wanted is there again."""
    world.now += after_us
    world.done = []
    world.waiting += world.control.worker_lost(slice_name, DIED, world.now, busy_with)
    world.run()
    return world.done


def died_often(world: World, times: int = DEATHS_MAX) -> list[Command]:
    """What was done for the last death of several of slice a, which computed a batch of m."""
    done: list[Command] = []
    for _ in range(times):
        done = die(world, "a", "m")
    return done


# stated


def test_a_model_that_is_stated_to_has_a_process_of_its_own_on_the_same_cores() -> None:
    world = World([A, B], isolated("m", "a", "b"), model("n", "a"))
    assert world.routed == {"a": ["n"], "a+m": ["m"], "b": ["m"]}
    own = world.control.slices["a+m"].spec
    assert (own.cores, own.share, own.domain) == (A.cores, A.share, A.domain)
    assert world.control.progress.waiting == ()


def test_the_profile_of_the_slice_is_the_process_s_too_and_is_not_measured_again() -> None:
    world = World([A], isolated("m", "a"), model("n", "a"))
    assert only(world.done, Measure) == []
    assert {(each.slice, each.profile.model) for each in only(world.done, Route)} == {
        ("a", "n"),
        ("a+m", "m"),
    }


def test_where_all_are_to_have_one_the_slice_has_no_shared_process() -> None:
    world = World([A], isolated("m", "a"), isolated("n", "a"))
    assert world.routed == {"a+m": ["m"], "a+n": ["n"]}
    assert [each.slice for each in only(world.done, StartWorker)] == ["a+m", "a+n"]


def test_an_edit_makes_the_process_before_the_shared_one_lets_the_model_go_and_back() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    done = world.want(wanted([A], isolated("m", "a"), model("n", "a")))
    told = [
        type(each)
        for each in done
        if isinstance(each, Route | Unroute | UnloadReplica) and told_of(world, each)
    ]
    assert told == [Route, Unroute, UnloadReplica]
    assert world.routed == {"a": ["n"], "a+m": ["m"]}
    world.want(wanted([A], isolated("m", "a", isolate="never"), model("n", "a")))
    assert world.routed == {"a": ["m", "n"]}
    assert world.control.progress.state == "steady"


def told_of(world: World, command: Command) -> bool:
    """Whether it is about model m, of which replicas come and go."""
    return isinstance(command, UnloadReplica) or getattr(command, "model", "m") == "m"


def test_an_edit_is_turned_back_where_the_model_cannot_be_loaded_in_its_own_process() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    world.fails = lambda load: load.slice == "a+m"
    world.want(wanted([A], isolated("m", "a"), model("n", "a")))
    assert world.control.given_up == ("slice a+m: it is broken",)
    assert world.routed == {"a": ["m", "n"]}


def test_a_slice_is_paid_for_once_whatever_processes_have_its_cores() -> None:
    world = World([replace(A, price=0.5)], isolated("m", "a"), isolated("n", "a"))
    assert world.control.scaling.held() == {"a": replace(A, price=0.5)}
    assert world.control.scaling.cost_per_hour == 0.5


def test_the_process_is_lost_with_its_spot_slice_and_is_back_with_it() -> None:
    spot = replace(A, spot=True)
    world = World([spot], isolated("m", "a"), model("n", "a"))
    assert world.control.slices["a+m"].spec.domain == spot.domain
    world.waiting += world.control.device_lost(spot.domain, "it was taken away", world.now)
    world.run()
    assert world.routed == {"a": [], "a+m": []}
    world.waiting += world.control.device_back(spot.domain, world.now)
    world.run()
    assert world.routed == {"a": ["n"], "a+m": ["m"]}


def test_a_slice_that_loads_on_demand_is_not_divided() -> None:
    limited = replace(A, memory_bytes=1 << 30)
    whole = DesiredState.of([limited], [isolated("m", "a"), model("n", "a")])
    assert Isolating().divided(whole, whole) == whole


def test_a_scaled_model_is_ready_in_its_own_process() -> None:
    scaled = replace(isolated("m", "a", "b"), replicas=ReplicaSpec(1, 1))
    world = World([A, B], scaled, model("n", "a", "b"))
    (standing,) = world.control.scaling.standings().values()
    assert (standing.count, standing.ready) == (1, 1)
    (place,) = standing.slices
    assert world.routed[f"{place}+m"] == ["m"]


def test_processes_on_the_same_cores_are_measured_in_turn() -> None:
    """Both at once would each be measured at half of its speed."""
    control = Control([A], [isolated("m", "a"), model("n", "a")], {}, Limits(), lambda _: KIND)
    waiting = [*control.start(0)]
    under_way: list[Measure] = []
    measured = set[str]()
    now = 0
    while waiting or under_way or control.wake_us < SECOND_US:
        if not waiting:
            if under_way:
                done = under_way.pop()
                sample = done.measurement
                took = [100 * sample.rows] * sample.repeats
                waiting += control.measured(done.slice, (sample.rows, sample.size), took, now)
            else:
                now = max(now, control.wake_us)
                waiting += control.tick(now, ())
            continue
        match waiting.pop(0):
            case StartWorker(slice=name):
                waiting += control.worker_ready(name, now)
            case LoadReplica(slice=name, replica=replica):
                waiting += control.replica_loaded(name, replica, (5, 7), now)
            case Measure() as command:
                under_way.append(command)
                measured.add(command.slice)
                assert len(under_way) == 1
    assert measured == {"a", "a+m"}
    assert {each.status for record in control.slices.values() for each in record.replicas.values()} == {
        "ready"
    }


# for its deaths


def test_the_third_death_within_five_minutes_moves_the_model_and_says_so_once() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    for _ in range(DEATHS_MAX - 1):
        assert only(die(world, "a", "m"), Isolate) == []
        assert world.routed == {"a": ["m", "n"]}
    done = die(world, "a", "m")
    assert [each.model for each in only(done, Isolate)] == ["m"]
    assert world.routed == {"a": ["n"], "a+m": ["m"]}
    for _ in range(5):
        done = die(world, "a+m", "m")
        assert only(done, Isolate) == []
        assert {each.slice for each in only(done, Withdraw)} == {"a+m"}
    assert world.control.slices["a"].restarts == DEATHS_MAX
    assert world.control.isolation(model("m", "a"), world.now).died == DEATHS_MAX + 5


def test_the_others_need_not_wait_out_the_back_off_that_it_has_earned() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    for _ in range(DEATHS_MAX):
        world.now += SECOND_US
        commands = world.control.worker_lost("a", DIED, world.now, ["m"])
        lost_us = world.now
        back_us = world.control.slices["a"].retry_us
        world.waiting += commands
        world.run()
    assert back_us - lost_us == BACKOFF_FIRST_US


def test_deaths_that_are_farther_apart_move_nothing() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    for _ in range(10):
        assert only(die(world, "a", "m", after_us=WINDOW_US // 2), Isolate) == []
    assert world.routed == {"a": ["m", "n"]}
    told = world.control.isolation(model("m", "a"), world.now)
    assert (told.deaths, told.died, told.why) == (2, 10, "")


def test_never_is_counted_and_left_in_place() -> None:
    world = World([A], isolated("m", "a", isolate="never"), model("n", "a"))
    assert only(died_often(world, 8), Isolate) == []
    assert world.routed == {"a": ["m", "n"]}
    told = world.control.isolation(isolated("m", "a", isolate="never"), world.now)
    assert (told.stated, told.processes, told.died) == ("never", (), 8)


def test_a_model_alone_on_its_slice_stays_there_until_somebody_shares_with_it() -> None:
    world = World([A], model("m", "a"))
    assert only(died_often(world), Isolate) == []
    world.want(wanted([A], model("m", "a"), model("n", "a")))
    assert world.routed == {"a": ["m", "n"]}
    assert [each.model for each in only(die(world, "a", "m"), Isolate)] == ["m"]
    assert world.routed == {"a": ["n"], "a+m": ["m"]}


def test_a_worker_that_nobody_kept_busy_or_that_was_to_end_is_nobodys_fault() -> None:
    world = World([A, B], model("m", "a", "b"), model("n", "a", "b"))
    for _ in range(8):
        assert only(die(world, "a"), Isolate) == []
    world.want(wanted([B], model("m", "b"), model("n", "b")))
    assert world.control.isolation(model("m", "b"), world.now).died == 0


def test_a_death_in_which_it_was_loaded_counts_and_its_neighbour_comes_up() -> None:
    world = World([A], model("n", "a"))
    world.starts = lambda _slice: True
    real = world.answer

    def answer(command: Command) -> Sequence[Command]:
        if isinstance(command, LoadReplica) and command.model == "m":
            return world.control.worker_lost(command.slice, DIED, world.now, ["m"])
        return real(command) if not stale(command) else ()

    def stale(command: Command) -> bool:
        """Told to a worker that has died before it could."""
        there = world.control.slices.get(getattr(command, "slice", ""))
        return isinstance(command, LoadReplica) and (there is None or command.replica not in there.replicas)

    world.answer = answer  # type: ignore[method-assign]
    world.waiting += world.control.want(wanted([A], model("m", "a"), model("n", "a")), world.now)
    world.run()
    assert world.routed["a"] == ["n"]


def test_files_that_are_others_are_given_the_shared_process_again() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    died_often(world)
    done = world.want(wanted([A], model("m", "a", revision="mended"), model("n", "a")))
    assert world.routed == {"a": ["m", "n"]}
    served = [each for each in done if isinstance(each, Route | Unroute | Withdraw) and told_of(world, each)]
    assert isinstance(served[0], Route)
    told = world.control.isolation(model("m", "a", revision="mended"), world.now)
    assert (told.deaths, told.died, told.why) == (0, DEATHS_MAX, "")


def test_a_model_that_goes_and_comes_again_is_given_the_shared_process_again() -> None:
    world = World([A], model("m", "a"), model("n", "a"))
    died_often(world)
    world.want(wanted([A], model("n", "a")))
    assert world.routed == {"a": ["n"]}
    world.want(wanted([A], model("m", "a"), model("n", "a")))
    assert world.routed == {"a": ["m", "n"]}


def test_on_every_slice_that_it_shares_it_gets_one() -> None:
    world = World([A, B], model("m", "a", "b"), model("n", "a", "b"))
    died_often(world)
    assert world.routed == {"a": ["n"], "a+m": ["m"], "b": ["n"], "b+m": ["m"]}
    told = world.control.isolation(model("m", "a", "b"), world.now)
    assert told.processes == ("a+m", "b+m")


def test_a_move_that_is_under_way_goes_on_and_ends_divided() -> None:
    world = World([A, B], model("m", "a"), model("n", "a"))
    die(world, "a", "m")
    die(world, "a", "m")
    world.done, steps = [], world.control.want(wanted([B], model("m", "b"), model("n", "b")), world.now)
    world.waiting += [*steps, *world.control.worker_lost("a", DIED, world.now, ["m"])]
    world.run()
    assert world.routed == {"b": ["n"], "b+m": ["m"]}
    assert world.control.progress.state == "steady"


def test_a_process_of_its_own_that_does_not_start_is_ended_like_any_other() -> None:
    world = World([A], isolated("m", "a"), model("n", "a"))
    world.starts = lambda name: name != "a+m"
    commands = [*world.control.worker_stuck("a+m", "a m batch was late", world.now)]
    assert commands == [EndWorker("a+m", "a m batch was late")]
    die(world, "a+m", "m")
    assert world.routed == {"a": ["n"], "a+m": []}
    assert world.control.progress.reasons == ("the worker of slice a+m is waiting to restart",)


def test_what_is_remembered_of_deaths_is_bounded() -> None:
    isolating, whole = Isolating(), DesiredState.of([A], [isolated("m", "a", isolate="never")])
    for at_us in range(3 * KEPT_MAX):
        isolating.died(["m"], whole, at_us)
    told = isolating.standing(whole.models[0], whole, 3 * KEPT_MAX)
    assert (told.deaths, told.died) == (KEPT_MAX, 3 * KEPT_MAX)


# whatever is wanted

SPECS = (A, B, SliceSpec("c", (2,), memory_bytes=1 << 30))
stated = st.sampled_from(("auto", "always", "never"))
several = st.lists(
    st.builds(DesiredReplica, st.sampled_from("mno"), st.sampled_from("xy"), st.booleans()),
    unique_by=lambda one: (one.model, one.variant),
)
deaths = st.lists(st.tuples(st.sampled_from("mno"), st.integers(0, WINDOW_US)), max_size=12)


@pytest.mark.slow
@given(st.tuples(stated, stated, stated), st.tuples(several, several, several), deaths)
def test_divided_it_is_the_same_replicas_and_no_other_is_with_one_that_has_its_own(
    stated: tuple[str, ...], several: tuple[list[DesiredReplica], ...], deaths: list[tuple[str, int]]
) -> None:
    models = tuple(
        replace(isolated(name, isolate=isolate), spec=model_spec(name))
        for name, isolate in zip("mno", stated, strict=True)
    )
    slices = (DesiredSlice(spec, tuple(each)) for spec, each in zip(SPECS, several, strict=True))
    whole, isolating, now_us = DesiredState(tuple(slices), models), Isolating(), 0
    moved, times = set[str](), dict[str, list[int]]({"m": [], "n": [], "o": []})
    for name, after_us in deaths:
        now_us += after_us
        times[name].append(now_us)
        for told in isolating.died([name], whole, now_us):
            assert told.model not in moved
            assert len([at_us for at_us in times[told.model] if at_us > now_us - WINDOW_US]) >= DEATHS_MAX
            moved.add(told.model)
    divided = isolating.divided(whole, whole)
    assert divided.models == whole.models
    assert len({each.spec.name for each in divided.slices}) == len(divided.slices)
    found = {spec.name: list[DesiredReplica]() for spec in SPECS}
    for each in divided.slices:
        found[each.spec.place] += each.replicas
        here = {one.model for one in each.replicas}
        own = {one.name for one in models if one.isolate == "always"} | moved
        assert len(here) < 2 or not here & own or each.spec.memory_bytes
        assert each.spec.name == each.spec.place or len(here & own) == 1
    for spec, replicas in zip(SPECS, several, strict=True):
        assert sorted(map(str, found[spec.name])) == sorted(map(str, replicas))
    if not moved and "always" not in stated:
        assert divided is whole


@pytest.mark.parametrize("isolate", ["auto", "never"])
def test_until_three_deaths_nothing_at_all_is_otherwise(isolate: str) -> None:
    whole, isolating = (
        DesiredState.of([A], [isolated("m", "a", isolate=isolate), model("n", "a")]),
        Isolating(),
    )
    for _ in range(DEATHS_MAX - 1):
        isolating.died(["m"], whole, 0)
    assert isolating.divided(whole, whole) is whole
