"""Replicas follow what their policy wishes: made before others go, on the slices that there are, within the
ceiling, and whatever is lost."""

from dataclasses import replace
from math import inf

import pytest

from serving.control.commands import Cold, Expect, FindCapacity, Look, SolveScaling, StartWorker, StopWorker
from serving.control.reconciling import START_TRIES
from serving.control.rollouts.rollout import RolloutState
from serving.control.state.desired import DesiredState
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import LoadReport, PlannedBand
from serving.policy.scaling.slow.task import Granted, ScalingPlan
from serving.values.objectives import ReplicaSpec, ScalingSpec
from serving.values.slice_specs import SliceSpec
from serving.values.vocabulary import NEVER_US
from tests.builders import model_spec, served
from tests.control.scaling_house import House, scaled


def slices(*names: str, price: float = 1.0, spot: str = "") -> list[SliceSpec]:
    return [SliceSpec(name, (), price=price, spot=name in spot) for name in names]


def house(least: int = 1, most: int | None = None, cost_max: float = inf, spot: str = "") -> House:
    found = House([scaled(least=least, most=most)], slices("a", "b", "c", spot=spot), cost_max)
    found.work()
    return found


def test_it_begins_with_one_and_follows_the_wish_up_and_down() -> None:
    world = house()
    assert len(world.on("m")) == 1
    world.wish(3)
    world.second()
    assert world.on("m") == {"a", "b", "c"}
    world.wish(1)
    world.second()
    assert world.on("m") == {"a"}
    assert {each.slice for each in world.said(StopWorker)} == {"b", "c"}
    assert world.control.scaling.changes == {"m": (1, 1)}


def test_a_slice_that_nobody_needs_has_no_worker_and_costs_nothing() -> None:
    world = house()
    assert set(world.control.slices) == {"a"}
    assert world.control.scaling.cost_per_hour == 1.0


def test_nothing_goes_before_what_takes_its_place_gets_batches() -> None:
    world = house()
    world.do(world.control.device_leaving("cpu", "it will be taken away", world.now))
    assert world.on("m") == {"a"}
    world = house(spot="a")
    world.wish(2)
    world.second()
    there = world.on("m")
    leaving = next(iter(there & {"a"}), None)
    assert leaving == "a"
    world.do(world.control.device_leaving("spot a", "notice", world.now))
    assert world.on("m") == there  # the worker of the other has not even started
    world.work()
    assert world.on("m") == {"b", "c"}


def test_where_all_is_to_be_taken_away_the_last_replica_stays_while_it_can() -> None:
    world = house()
    world.do(world.control.device_leaving("cpu", "notice", world.now))
    world.work()
    assert world.on("m") == {"a"}


def test_a_lost_slice_is_replaced_elsewhere_and_one_that_is_back_may_be_had_again() -> None:
    world = house(spot="abc")
    world.wish(2)
    world.second()
    lost = sorted(world.on("m"))[0]
    world.routed.pop(lost)
    world.do(world.control.device_lost(f"spot {lost}", "it is gone", world.now))
    world.do(world.control.worker_lost(lost, "it is gone", world.now))
    world.work()
    assert world.on("m") == {"a", "b", "c"} - {lost}
    world.wish(3)
    world.second()
    assert world.on("m") == {"a", "b", "c"} - {lost}
    assert world.control.scaling.standings()["m"].held == "no other slice that it may have is free"
    world.do(world.control.device_back(f"spot {lost}", world.now))
    world.work()
    assert world.on("m") == {"a", "b", "c"}


def test_the_least_is_on_slices_that_nobody_takes_away_where_there_are_some() -> None:
    world = House([scaled(slices=("a", "b", "c"))], slices("a", "b", "c", spot="ab"))
    world.work()
    assert world.on("m") == {"c"}


def test_the_ceiling_is_kept_and_named() -> None:
    world = house(cost_max=2.0)
    world.wish(3)
    world.second()
    assert len(world.on("m")) == 2
    assert world.control.scaling.cost_per_hour == 2.0
    assert "ceiling of 2" in world.control.scaling.standings()["m"].held


def test_a_slice_belongs_to_one_scaled_model_at_a_time() -> None:
    world = House([scaled("m"), scaled("n")], slices("a", "b", "c"))
    world.work()
    world.wish(2, 0)
    world.wish(2, 1)
    world.second()
    assert not world.on("m") & world.on("n")
    assert len(world.on("m")) + len(world.on("n")) == 3


def test_models_that_follow_nothing_stay_on_all_their_slices() -> None:
    fixed = served(model_spec("f"), ("a", "b", "c"))
    world = House([fixed, scaled()], slices("a", "b", "c"))
    world.work()
    assert world.on("f") == {"a", "b", "c"}
    assert len(world.on("m")) == 1
    world.wish(0)
    world.second()
    assert world.on("f") == {"a", "b", "c"}


def test_scaled_to_zero_the_scheduler_hears_that_it_is_cold_and_a_miss_brings_it_back() -> None:
    world = house(least=0)
    world.wish(0)
    world.log = []
    world.second()
    assert world.on("m") == set()
    assert not world.control.slices
    cold = [each for each in world.log if isinstance(each, Cold)]
    assert [(each.model, each.variant) for each in cold] == [("m", "a")]
    places = [type(each).__name__ for each in world.log]
    assert places.index("Cold") < places.index("Unroute")
    world.log = []
    world.do(world.control.missed("m", "a", {}, {}, world.now))
    assert [type(each) for each in world.log if isinstance(each, (Expect, StartWorker))] == [
        Expect,
        StartWorker,
    ]
    world.work()
    assert len(world.on("m")) == 1


def test_one_that_stands_by_answers_until_its_own_slice_is_there() -> None:
    fixed = served(model_spec("f"), ("a",))
    world = House([fixed, scaled(slices=("b", "a"), least=0)], slices("a", "b"))
    world.work()
    world.wish(0, standby=1)
    world.second()
    assert world.on("m") == set()
    assert {each.model for each in world.control.slices["a"].replicas.values()} == {"f", "m"}
    assert world.said(Cold)[0].load_us < 10_000
    world.wish(1, standby=1, pressure=2.0)
    world.second(working=False)
    assert world.on("m") == {"a"}


def test_what_cannot_be_loaded_somewhere_is_tried_elsewhere() -> None:
    world = House([scaled(slices=("a", "b"))], slices("a", "b"))
    control = world.control
    for _ in range(40):
        for command in [*world.waiting]:
            world.waiting.remove(command)
            name = getattr(command, "slice", "")
            if isinstance(command, StartWorker):
                world.do(control.worker_ready(name, world.now))
            elif isinstance(command, Look):
                world.do(control.seen([LoadReport("m")], world.now))
            elif hasattr(command, "replica") and name == "a":
                if type(command).__name__ == "LoadReplica":
                    world.do(control.replica_failed("a", command.replica, "no memory", world.now))
                else:
                    world.do(control.replica_unloaded("a", command.replica, world.now))
            elif type(command).__name__ == "LoadReplica":
                world.do(control.replica_loaded(name, command.replica, (1, 1), world.now))  # type: ignore[union-attr]
            elif isinstance(command, StopWorker):
                world.do(control.worker_lost(name, "stopped", world.now))
        world.now += 200_000
        world.do(control.tick(world.now, ()))
    assert world.on("m") == {"b"}
    assert control.progress.state is RolloutState.STEADY


def test_policies_see_what_has_been_since_they_were_last_asked() -> None:
    world = house()
    for offered in (10, 30):
        world.now += 1_000_000
        world.do(world.control.tick(world.now, ()))
        world.work([LoadReport("m", offered=offered)])
    view = world.made[0].views[-1]
    assert (view.before.offered, view.seen.offered) == (10, 30)
    assert view.period_us == 1_000_000
    assert (view.ready, view.coming, view.least, view.most) == (1, 0, 1, 3)
    assert [*view.capacities] == ["a"]
    assert view.variant == "a"


def test_tables_and_plans_are_asked_for_once_and_count_when_they_are_there() -> None:
    world = house()
    for _ in range(5):
        world.second()
    (asked,) = world.said(FindCapacity)
    table = Capacity((1,), (1.0,), ((123.0,),))
    world.do(world.control.capacity_found(asked, table, world.now))
    world.second()
    assert world.made[0].views[-1].capacities["a"] is table
    tasks = world.said(SolveScaling)
    assert len(tasks) <= 1
    band = PlannedBand(1, 3, "a", 0, "a crowd is to be expected")
    plan = ScalingPlan(
        {"m": Granted("m", band, {("a", asked.kind): 3}, 10.0, 0.0, 1.0, 3.0, "too dear")}, 3.0
    )
    world.do(world.control.scaling_planned(plan, world.now))
    world.second()
    assert world.made[0].views[-1].band == replace(band, until_us=world.now - 1_000_000 + 120_000_000)
    assert world.control.scaling.standings()["m"].lacking == "too dear"
    world.do(world.control.scaling_planned(None, world.now))
    for _ in range(60):
        world.second()
    assert 1 <= len(world.said(SolveScaling)) <= 2
    for _ in range(120):
        world.second()
    assert world.made[0].views[-1].band is None


def test_a_table_that_was_asked_for_at_another_slo_says_nothing_of_the_present_one() -> None:
    world = house()
    for _ in range(5):
        world.second()
    (asked,) = world.said(FindCapacity)
    sooner = replace(scaled(), slo_us=scaled().slo_us // 2)
    world.do(world.control.want(DesiredState.of(slices("a", "b", "c"), [sooner]), world.now))
    table = Capacity((1,), (1.0,), ((123.0,),))
    world.do(world.control.capacity_found(asked, table, world.now))
    world.second()
    assert world.made[0].views[-1].capacities["a"] is not table


def test_where_slices_are_too_few_the_higher_priority_has_what_it_wishes() -> None:
    high = replace(scaled("high"), replicas=ReplicaSpec(priority=1))
    world = House([scaled("low"), high], slices("a", "b", "c"))
    world.work()
    world.wish(3, 0)
    world.wish(3, 1)
    world.second()
    assert (len(world.on("low")), len(world.on("high"))) == (1, 2)
    assert world.control.scaling.standings()["low"].held == "no other slice that it may have is free"


def test_another_configuration_takes_over_what_is_there() -> None:
    world = house()
    world.wish(2)
    world.second()
    there = world.on("m")
    kept = tuple(name for name in ("a", "b", "c") if name in there)
    world.do(world.control.want(DesiredState.of(slices("a", "b", "c"), [scaled(slices=kept)]), world.now))
    world.work()
    assert world.on("m") == there
    fixed = replace(scaled(slices=("a", "b", "c")), replicas=None)
    world.do(world.control.want(DesiredState.of(slices("a", "b", "c"), [fixed]), world.now))
    world.work()
    assert world.on("m") == {"a", "b", "c"}
    assert world.control.progress.state is RolloutState.STEADY
    assert not world.control.scaling.changes


@pytest.mark.parametrize("wish", [0, 7])
def test_no_wish_goes_beyond_what_there_is(wish: int) -> None:
    world = house()
    world.wish(wish)
    world.second()
    assert len(world.on("m")) == min(max(wish, 1), 3)


def test_another_ceiling_and_another_policy_count_at_once() -> None:
    world = house(cost_max=1.0)
    world.wish(3)
    world.second()
    assert len(world.on("m")) == 1
    world.do(world.control.scale(ScalingSpec(cost_max=3.0), world.now))
    world.work()
    assert len(world.on("m")) == 3
    assert len(world.made) == 1
    world.do(world.control.scale(ScalingSpec(policy="hpa", cost_max=3.0), world.now))
    assert len(world.made) == 2


def test_beyond_what_the_plan_would_have_of_a_kind_the_cheapest_comes_first() -> None:
    dear, cheap = slices("a", "b", "c", price=4.0), slices("d", "e", price=1.0, spot="de")
    world = House([scaled(slices=("a", "b", "c", "d", "e"))], [*dear, *cheap])
    world.work()
    first = world.on("m")
    assert len(first & {"a", "b", "c"}) == 1
    kind = world.control.scaling._topology.class_of["a"].label
    plan = ScalingPlan(
        {"m": Granted("m", PlannedBand(1, 1, "a", 0), {("a", kind): 1}, 1.0, 0.0, 1.0, 4.0)}, 4.0
    )
    world.do(world.control.scaling_planned(plan, world.now))
    world.wish(3)
    world.second()
    assert world.on("m") == first | {"d", "e"}


def test_replicas_of_a_model_that_runs_already_stay_until_it_is_known_what_it_is_asked() -> None:
    world = House([replace(scaled(), replicas=None)], slices("a", "b", "c"))
    world.work()
    world.do(world.control.want(DesiredState.of(slices("a", "b", "c"), [scaled()]), world.now))
    world.work([LoadReport("m", offered=1_000_000, requests=1_000_000)])
    assert world.on("m") == {"a", "b", "c"}
    world.now += 1_000_000
    world.do(world.control.tick(world.now, ()))
    world.work([LoadReport("m", offered=1_000_100, requests=1_000_100)])
    view = world.made[0].views[0]
    assert view.seen.offered - view.before.offered == 100  # not all since the gateway's start


def test_a_model_on_no_slice_that_stands_by_answers_where_it_does_until_its_own_slice_is_there() -> None:
    world = House([scaled(slices=("a",)), scaled("n", ("a", "b"), least=0)], slices("a", "b"))
    world.work()
    world.wish(0, 1, standby=1)
    world.second()
    assert world.on("n") == set()
    world.wish(1, 1)
    world.do(world.control.missed("n", "a", {}, {}, world.now))
    assert world.on("n") == {"a"}
    world.second()
    assert world.on("n") == {"b"}


def test_of_the_least_spot_slices_are_left_once_another_is_back() -> None:
    world = House([scaled(slices=("a", "b"))], slices("a", "b", spot="b"))
    world.work()
    world.do(world.control.device_lost("cpu", "it is gone", world.now))
    world.routed.pop("a")
    world.do(world.control.worker_lost("a", "it is gone", world.now))
    world.work()
    assert world.on("m") == {"b"}
    world.do(world.control.device_back("cpu", world.now))
    assert world.on("m") == {"b"}
    world.work()
    assert world.on("m") == {"a"}


def test_a_worker_that_failed_often_and_is_there_now_is_not_left() -> None:
    world = house()
    world.control.slices["a"].failures = START_TRIES
    for _ in range(20):
        world.second()
    assert world.on("m") == {"a"}


def test_slices_that_are_held_anyway_are_a_kind_of_their_own_to_the_slow_plan() -> None:
    world = House([scaled(), replace(served(model_spec("f")), slices=("a",))], slices("a", "b", "c"))
    world.work()
    tasks = [each.task for each in world.log if isinstance(each, SolveScaling)]
    world.now += 2_000_000
    world.do(world.control.tick(world.now, ()))
    tasks += [each.task for each in world.log if isinstance(each, SolveScaling)]
    assert sorted((kind.price, kind.count) for kind in tasks[-1].kinds) == [(0.0, 1), (1.0, 2)]


def test_a_model_for_which_no_slice_is_left_answers_from_where_it_stands_by() -> None:
    world = House([scaled("m", ("a",)), scaled("n", ("a",), least=0)], slices("a"))
    world.work()
    world.wish(0, 1, standby=1)
    world.second()
    assert (world.on("m"), world.on("n")) == ({"a"}, set())
    world.log = []
    world.do(world.control.missed("n", "a", {}, {}, world.now))
    world.wish(1, 1, standby=1)
    world.second()
    assert (world.on("m"), world.on("n")) == ({"a"}, {"a"})
    assert world.control.scaling.standings()["n"].held


def test_where_a_model_can_be_nowhere_the_scheduler_is_told_so_and_of_the_first_slice_that_is_free() -> None:
    world = House([scaled("m", ("a",)), scaled("n", ("a",), least=0)], slices("a"))
    world.work()
    world.wish(0, 1)
    world.second()
    world.log = []
    world.do(world.control.missed("n", "a", {}, {}, world.now))
    world.work()
    told = [each for each in world.log if isinstance(each, (Cold, Expect))]
    assert [type(each) for each in told] == [Cold]
    assert told[0].load_us == NEVER_US  # type: ignore[union-attr]
    world.log = []
    only_n = [scaled("n", ("a",), least=0)]
    world.wish(1, 1)
    world.do(world.control.want(DesiredState.of(slices("a"), only_n), world.now))
    world.do(world.control.model_retired("m", world.now))
    world.work()
    assert [type(each) for each in world.log if isinstance(each, (Cold, Expect))] == [Expect]
    world.work()
    assert world.on("n") == {"a"}


def needed(world: House) -> frozenset[str]:
    return world.control.scaling.needed_nodes(world.control.expected)


def far_house(wish: int, cost_max: float = inf) -> House:
    """A model on a slice here and on three nodes, n-1 to n-3, that are not there."""
    here = SliceSpec("here", (), price=1.0)
    far = [SliceSpec(f"far-{n}", (), price=1.0, node=f"n-{n}") for n in (1, 2, 3)]
    found = House([scaled(slices=("here", "far-1", "far-2", "far-3"))], [here, *far], cost_max)
    for each in far:
        found.do(found.control.device_lost(each.domain, "has not joined", found.now))
    found.work()
    found.wish(wish)
    found.second()
    return found


def test_nodes_are_needed_as_far_as_the_load_is_more_than_what_is_there_carries() -> None:
    world = far_house(1)
    assert needed(world) == set()
    world.wish(3)
    world.second()
    assert needed(world) == {"n-1", "n-2"}
    held = world.control.scaling.standings()["m"].held
    assert held == "no other slice that it may have is free; it needs nodes n-1 and n-2"
    world.do(world.control.device_back("n-2/cpu", world.now))  # an engine may bring the other one first
    world.work()
    assert world.on("m") == {"here", "far-2"}
    assert needed(world) == {"n-1", "n-2"}


def test_a_node_is_needed_until_its_last_worker_has_ended() -> None:
    world = far_house(2)
    world.do(world.control.device_back("n-1/cpu", world.now))
    world.work()
    assert world.on("m") == {"here", "far-1"}
    world.wish(1)
    world.second(working=False)
    assert needed(world) == {"n-1"}
    world.work()
    assert needed(world) == set()


def test_no_more_nodes_are_needed_than_may_be_paid_for() -> None:
    world = far_house(4, cost_max=2.0)
    assert needed(world) == {"n-1"}


def test_a_node_of_a_model_without_replicas_is_always_needed() -> None:
    spec = SliceSpec("far", (), node="n")
    world = House([served(model_spec("f"), ("far",))], [spec])
    world.do(world.control.device_lost(spec.domain, "has not joined", world.now))
    assert needed(world) == {"n"}
