"""Which parts of a placement are simulated by themselves, for how long, and how much of them."""

from collections.abc import Mapping
from dataclasses import replace
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.planning.parts import (
    REPLICAS_MIN,
    REQUESTS_MIN,
    SECONDS_MAX,
    SECONDS_MIN,
    WORK_MAX,
    PlacementPart,
    cut,
    placed,
)
from serving.policy.placement.terms.geometry import known_geometry
from serving.policy.placement.terms.plan import Placement, Slot
from serving.policy.placement.terms.problem import Instances
from serving.values.slice_specs import Share
from tests.planning.worlds import on_each, on_one, option, question, resident, slot
from tests.seeds import drawn

MODELS = "abcdef"
sets = st.lists(st.sets(st.sampled_from(MODELS), min_size=1, max_size=3).map(sorted), max_size=8)
rate_numbers = st.sampled_from([0.0, 0.5, 30.0, 4000.0, 2e5, 1e9])
rate_maps = st.fixed_dictionaries(dict.fromkeys(MODELS, rate_numbers))


def slots_of(models: list[list[str]]) -> list[Slot]:
    return [slot(*(resident(model) for model in each)) for each in models]


def cut_up(
    models: list[list[str]], rates: Mapping[str, float], seconds: float = 20.0
) -> tuple[list[PlacementPart], list[str]]:
    problem = question(rates, len(models)).problem
    return cut(problem, on_each(slots_of(models)), rates, seconds)


def connected(models: list[list[str]]) -> set[frozenset[str]]:
    """Sets that meet become one, until none meet."""
    found = {frozenset(each) for each in models}
    while meeting := [(one, two) for one in found for two in found if one != two and one & two]:
        one, two = meeting[0]
        found = (found - {one, two}) | {one | two}
    return found


@settings(max_examples=drawn(50), deadline=None)
@given(sets, rate_maps)
def test_models_are_together_where_slices_connect_them_and_nowhere_else(
    models: list[list[str]], rates: Mapping[str, float]
) -> None:
    parts, left_out = cut_up(models, rates)
    together = connected(models)
    assert {frozenset(part.kept) for part in parts} <= together
    there = sorted([*left_out, *(model for part in parts for model in part.kept)])
    assert there == sorted({model for each in models for model in each})
    for part in parts:
        for each in part.slices:
            assert set(each.models) <= set(part.kept)


@settings(max_examples=drawn(50), deadline=None)
@given(sets, rate_maps)
def test_the_whole_takes_no_more_than_its_bound(models: list[list[str]], rates: Mapping[str, float]) -> None:
    parts, _ = cut_up(models, rates)
    assert bool(parts) == bool(models)
    assert sum(part.work(rates) for part in parts) <= WORK_MAX * (1 + 1e-6)
    assert sum(part.seconds < SECONDS_MIN for part in parts) <= 1
    for part in parts:
        assert all(0 < share <= 1 for share in part.kept.values())


def test_a_small_placement_is_simulated_as_a_whole_for_as_long_as_asked() -> None:
    parts, left_out = cut_up([["a"], ["a", "b"], ["c"]], {"a": 100.0, "b": 20.0, "c": 50.0})
    assert [(sorted(part.kept.items()), len(part.slices)) for part in parts] == [
        ([("a", 1.0), ("b", 1.0)], 2),
        ([("c", 1.0)], 1),
    ]
    assert [part.seconds for part in parts] == [20.0, 20.0]
    assert not left_out


def test_rare_requests_are_waited_for_but_not_for_ever() -> None:
    rates = {"a": 3.0, "b": 0.001, "c": 0.0}
    parts, _ = cut_up([["a"], ["b"], ["c"]], rates)
    seconds = {model: part.seconds for part in parts for model in part.kept}
    assert seconds == {"a": REQUESTS_MIN / 3.0, "b": SECONDS_MAX, "c": 20.0}


def test_what_would_take_too_long_is_cut_short_and_leaves_the_small_ones_their_time() -> None:
    rates = {"a": 20_000.0, "b": 10.0}
    parts, _ = cut_up([["a"], ["b"]], rates)
    seconds = {model: part.seconds for part in parts for model in part.kept}
    assert SECONDS_MIN < seconds["a"] < 20
    assert seconds["b"] == REQUESTS_MIN / 10.0
    assert sum(part.work(rates) for part in parts) == pytest.approx(WORK_MAX)


@pytest.mark.parametrize("replicas", [40, 100, 3000])
def test_then_rate_and_replicas_are_scaled_alike(replicas: int) -> None:
    rates = {"a": replicas * 900.0}
    ((part,), left_out) = cut_up([["a"]] * replicas, rates)
    assert (part.seconds, left_out) == (SECONDS_MIN, [])
    assert REPLICAS_MIN <= len(part.slices) < replicas
    assert part.kept["a"] == pytest.approx(len(part.slices) / replicas)
    assert part.work(rates) <= WORK_MAX


def test_of_unlike_replicas_each_kind_keeps_its_share() -> None:
    fast, slow = option(500.0), option(1000.0)
    slots = [slot(resident("a", fast))] * 300 + [slot(resident("a", slow))] * 600
    rates = {"a": 900_000.0}
    ((part,), _) = cut(question(rates, len(slots)).problem, on_each(slots), rates, 20.0)
    kinds = [each.slot.residents[0].option for each in part.slices]
    assert kinds.count(slow) == pytest.approx(2 * kinds.count(fast), abs=3)
    carried = sum(each.slot.residents[0].capacity for each in part.slices)
    assert part.kept["a"] == pytest.approx(carried / sum(each.residents[0].capacity for each in slots))


def test_slices_that_models_share_all_stay() -> None:
    models = [["a"]] * 400 + [["a", "b"]] * 3 + [["b"]] * 200
    rates = {"a": 400_000.0, "b": 200_000.0}
    ((part,), _) = cut_up(models, rates)
    shared = [each for each in part.slices if len(each.models) > 1]
    assert len(shared) == 3
    assert len(part.slices) < 100
    assert part.kept["a"] == pytest.approx(part.kept["b"], rel=0.5)


def test_of_too_many_parts_those_are_left_out_that_have_most_to_spare() -> None:
    names = [f"m{number:03}" for number in range(400)]
    rates = {name: 5000.0 + number for number, name in enumerate(names)}
    parts, left_out = cut_up([[name] for name in names for _ in range(REPLICAS_MIN)], rates)
    seen = [model for part in parts for model in part.kept]
    assert seen == names[: -len(seen) - 1 : -1]  # the highest rates, on the same capacity
    assert 10 < len(seen) < 400
    assert left_out == names[: -len(seen)]


def test_what_is_asked_beyond_all_measure_costs_the_others_nothing() -> None:
    rates = {"a": 1e9, "b": 1e8, "c": 500.0, "d": 10.0}
    parts, left_out = cut_up([["a"], ["b"], ["c"], ["d"]], rates)
    seconds = {model: part.seconds for part in parts for model in part.kept}
    assert 0 < seconds["a"] < 0.01
    assert (seconds["c"], seconds["d"], left_out) == (20.0, REQUESTS_MIN / 10.0, ["b"])


def test_names_are_those_of_device_share_and_start_each_once() -> None:
    geometry = known_geometry("gpu-nvidia-h200") or ()
    share = Share.parse("mig:1g.18gb")
    one = replace(slot(resident("a")), share=share)
    placement: Placement = {
        "d-1": (replace(one, start=4), replace(one, start=0)),
        "d-0": (one, one, one),
    }
    found = placed(question({"a": 1.0}, 2, division=Instances(geometry)).problem, placement)
    assert [each.name for each in found] == [
        "d-1/mig:1g.18gb@4", "d-1/mig:1g.18gb@0",
        "d-0/mig:1g.18gb", "d-0/mig:1g.18gb#2", "d-0/mig:1g.18gb#3",
    ]  # fmt: skip


def test_neighbours_slow_each_other_down_but_not_from_one_instance_to_another() -> None:
    noisy, quiet = option(pressure=0.5, sensitivity=0.2), option(pressure=0.1, sensitivity=1.0)
    placement = on_one([slot(resident("a", noisy)), slot(resident("b", quiet)), slot(resident("b", quiet))])
    rates = {"a": 1.0, "b": 1.0}
    shared = placed(question(rates).problem, placement)
    assert [slowdown for each in shared for slowdown in each.slowdowns] == pytest.approx([1.04, 1.6, 1.6])
    apart = placed(question(rates, division=Instances(())).problem, placement)
    assert [each.slowdowns for each in apart] == [(1.0,)] * 3


@pytest.mark.slow
def test_a_fleet_of_ten_thousand_devices_is_cut_in_seconds() -> None:
    names = [f"m{number}" for number in range(1000)]
    rates = dict.fromkeys(names, 3000.0)
    asked = question(rates, 10_000, division=Instances(()))
    slots = {name: slot(resident(name)) for name in names}
    placement = {
        f"d-{number}": tuple(slots[names[(number * 5 + place) % 1000]] for place in range(5))
        for number in range(10_000)
    }
    before_s = process_time()
    parts, left_out = cut(asked.problem, placement, rates, 20.0)
    assert process_time() - before_s < 10
    assert len(parts) + len(left_out) == 1000
    assert sum(part.work(rates) for part in parts) <= WORK_MAX * 1.01
