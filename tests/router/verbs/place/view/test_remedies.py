"""What would help where a placement does not hold; `tests/goldens/place.txt` has the sentences."""

from dataclasses import replace

from router.verbs.place.view import remedies
from serving.policy.placement.terms.problem import Demand, Parts, PlacementDevice, PlacementProblem, Pool
from serving.values.slice_specs import Share
from tests.router.verbs.place import samples
from tests.router.verbs.place.samples import (
    CHANGED,
    CPU,
    FIRST,
    FLEET,
    KEPT,
    NOTHING,
)


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
