"""What does not hold of a placement, and what would help."""

from dataclasses import replace

from router.place import remedies
from serving.policy.placement.problem import Demand, Parts, PlacementDevice, PlacementProblem, Pool
from serving.specs import Share
from tests.router.place import samples
from tests.router.place.samples import (
    AFTER,
    CHANGED,
    CPU,
    FIRST,
    FLEET,
    GOOD,
    KEPT,
    NOTHING,
    foretold,
    lacking,
)


def test_a_model_that_is_short_is_told_by_how_much_and_what_would_help() -> None:
    assert list(remedies.failures(lacking())) == [
        "bert-large-uncased: 201 of 221 rows/s are carried (reserve included: 184 are asked), 20.1 are "
        "missing. What would help: about 1 more device like those of node, a rate of at most 167 rows/s or "
        "an slo_ms above 250"
    ]


def test_of_a_model_that_is_short_it_is_also_told_how_much_is_predicted_to_be_late() -> None:
    late = tuple(replace(each, attainment=0.876, p99_ms=260.0) for each in lacking().models)
    (_, said, *_) = remedies.failures(replace(lacking(), models=late))
    assert "20.1 are missing; 87.6 % are predicted to be in time. What would help: about 1 more" in said


def test_a_model_that_is_predicted_to_be_late_is_told_by_how_much_and_what_would_help() -> None:
    assert list(remedies.failures(foretold(0.9985, 0.9931, 0.97129, 1.0))) == [
        "digits: 97.1 % are predicted to be answered within 25 ms, not 99 % (p99 32.5 ms). What would "
        "help: more devices, a larger slo_ms or a smaller rate"
    ]


def test_a_model_in_too_few_domains_is_told() -> None:
    demands = (replace(FLEET.demands[0], domains_min=3), *FLEET.demands[1:])
    problem = PlacementProblem(demands, FLEET.pools)
    shown = replace(CHANGED, problem=problem, models=samples.told(problem, AFTER, GOOD))
    assert list(remedies.failures(shown)) == [
        "minilm: its replicas lie in 2 failure domains, not in 3; devices of another domain would help"
    ]


def test_what_holds_has_no_failures() -> None:
    for shown in (CHANGED, KEPT, FIRST, NOTHING):
        assert list(remedies.failures(shown)) == []


def test_more_devices_are_not_proposed_where_no_device_there_is_can_run_the_model() -> None:
    demand = Demand("m", 10.0, 1000, (samples.option("gpu-other", Share("whole", 1.0), "v", 1.0),))
    problem = PlacementProblem((demand,), FLEET.pools)
    shown = replace(CHANGED, problem=problem, after={}, models=samples.told(problem, {}, (0.0,)))
    (said,) = remedies.failures(shown)
    assert "What would help: a smaller rate of other models or an slo_ms above 1" in said


def test_how_many_more_devices_it_takes_heeds_memory_and_the_count_of_slices() -> None:
    option = samples.option(CPU, samples.cores(1), "v", 100.0)  # 1 GiB, 32 rows in 3.7 ms: 8,649 rows/s
    demand = Demand("m", 100_000.0, 1_000_000, (option,))
    for parts, memory_gib, said in (
        (Parts("cores", 4.0), 0, "about 3 more devices"),
        (Parts("cores", 4.0, 2), 0, "about 6 more devices"),
        (Parts("cores", 4.0), 1, "about 12 more devices"),
    ):
        pool = Pool("node", CPU, parts, (PlacementDevice("node-0"),), memory_bytes=memory_gib << 30)
        problem = PlacementProblem((demand,), (pool,))
        shown = replace(CHANGED, problem=problem, after={}, models=samples.told(problem, {}, (0.0,)))
        assert said in next(remedies.failures(shown))
