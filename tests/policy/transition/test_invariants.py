"""Each promise of a state is seen when it is broken, and only then."""

from dataclasses import replace

import pytest

from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.policy.transition.invariants import floors, violations
from serving.policy.transition.state import State, TransitionReplica, TransitionSlice
from serving.values.slice_specs import Share
from tests.policy.transition.fleets import GIB, MIG

HALF, MOST = Share("mps", 50.0), Share("mps", 60.0)
THIRD, SMALL = Share("mig", 3.0, "3g.40gb"), Share("mig", 1.0, "1g.10gb")


def resident(model: str, share: Share = HALF, **changes: float) -> PlacedReplica:
    """Batches of one row that take 10 ms: 100 rows a second."""
    kind = "A100" if share.kind == "mig" else "B"
    curve = ((1, 10_000.0), (2, 15_000.0))
    capacity, rows = changes.pop("capacity", 100.0), int(changes.pop("rows", 1))
    one = Option(kind, share, "fp16", curve, int(changes.pop("gib", 1) * GIB))
    return PlacedReplica(model, replace(one, **changes), rows, capacity)  # type: ignore[arg-type]


def problem(slices_max: int = 0, domains_min: int = 1, slo_us: float = 100_000) -> PlacementProblem:
    devices = tuple(PlacementDevice(f"mps-{number}", f"host-{number}") for number in range(2))
    demands = tuple(Demand(model, 1.0, slo_us, (), domains_min) for model in "ab")
    parts = Pool("b", "B", Parts("mps", 100.0, slices_max), devices, memory_bytes=8 * GIB)
    return PlacementProblem(demands, (parts, Pool("a", "A100", Instances(MIG), (PlacementDevice("mig-0"),))))


def loaded(
    *residents: PlacedReplica, number: int = 0, start: int = -1, routed: bool = True
) -> TransitionSlice:
    replicas = tuple(TransitionReplica(place, each, routed) for place, each in enumerate(residents))
    return TransitionSlice(number, residents[0].option.share, start, replicas)


def faults(
    slices: tuple[TransitionSlice, ...], device: str = "mps-0", old: Placement | None = None, **asked: int
) -> list[str]:
    """Of a device that is on its way from `old` (nothing) to nothing."""
    return violations(problem(**asked), State({device: slices}), old or {}, {})


A, B = resident("a"), resident("b")


def test_nothing_is_wrong_with_what_keeps_all_promises() -> None:
    assert faults((loaded(A), loaded(B, number=1))) == []
    two = (loaded(resident("a", THIRD), start=0), loaded(resident("b", THIRD), number=1, start=4))
    assert faults(two, "mig-0") == []


def test_shares_slices_and_memory_count_whether_anything_computes_there_or_not() -> None:
    idle = [loaded(resident("a", MOST), number=number, routed=False) for number in range(2)]
    assert faults((*idle,)) == ["mps-0: mps come to 120 of 100"]
    assert faults((TransitionSlice(0, MOST), TransitionSlice(1, MOST))) == ["mps-0: mps come to 120 of 100"]
    two = (loaded(A), loaded(B, number=1, routed=False))
    assert faults(two, slices_max=1) == ["mps-0: 2 slices, 1 at most"]
    heavy = (loaded(resident("a", gib=5)), loaded(resident("b", gib=4), number=1, routed=False))
    assert faults(heavy) == [f"mps-0: memory {9 * GIB} of {8 * GIB} bytes"]


@pytest.mark.parametrize(
    ("slices", "fault"),
    [
        ((loaded(resident("a", THIRD), start=2),), "no MIG instance 3g.40gb begins at memory slice 2"),
        ((loaded(resident("a", HALF), start=0),), "no MIG instance  begins at memory slice 0"),
        ((loaded(resident("a", SMALL, gib=10), start=0),), f"memory {10 * GIB} bytes of 9.5 GiB in 1g.10gb"),
        (
            (loaded(resident("a", THIRD), start=0), loaded(resident("b", SMALL), number=1, start=3)),
            "3g.40gb at 0 overlaps 1g.10gb at 3",
        ),
    ],
)
def test_instances_lie_where_they_may_and_hold_what_they_can(
    slices: tuple[TransitionSlice, ...], fault: str
) -> None:
    assert faults(slices, "mig-0") == [f"mig-0: {fault}"]


def test_there_are_no_more_instances_of_a_size_than_there_may_be() -> None:
    rare = tuple(replace(each, instances_max=1) for each in MIG)
    pool = Pool("a", "A100", Instances(rare), (PlacementDevice("mig-0"),))
    slices = tuple(loaded(resident("a", THIRD), number=at, start=at) for at in (0, 4))
    found = violations(PlacementProblem(problem().demands, (pool,)), State({"mig-0": slices}), {}, {})
    assert found == ["mig-0: more than 1 instances of 3g.40gb"]


def test_what_is_routed_keeps_its_slo_and_carries_what_it_says() -> None:
    slow = (loaded(A),)
    assert faults(slow, slo_us=20_000) == ["mps-0: a: 10000 us and then 10000 us are over 18000 us"]
    more = (loaded(resident("a", capacity=120.0)),)
    assert faults(more) == ["mps-0: a: carries 100 rows/s, not 120"]
    shared = (loaded(resident("a", processes=2, capacity=50.0), B),)
    assert "2 processes on a shared mps:50" in faults(shared)[0]
    assert faults((loaded(A, routed=False),), slo_us=20_000) == []


def test_neighbours_count_as_soon_as_they_are_routed() -> None:
    felt, loud = resident("a", sensitivity=1.0), resident("b", pressure=0.5)
    assert faults((loaded(felt), loaded(loud, number=1, routed=False))) == []
    assert faults((loaded(felt), loaded(loud, number=1))) == ["mps-0: a: carries 66.6667 rows/s, not 100"]


def test_what_was_wrong_with_the_old_placement_is_not_held_against_it() -> None:
    heavy, more = resident("a", gib=9), resident("b", capacity=120.0)
    assert faults((loaded(heavy),), old={"mps-0": (Slot(HALF, (heavy,)),)}) == []
    assert faults((loaded(more),), old={"mps-0": (Slot(HALF, (more,)),)}) == []
    beside = (loaded(more), loaded(resident("a", pressure=0.5), number=1))
    felt = {"mps-0": (Slot(HALF, (more,)),)}
    assert faults(beside, old=felt) == ["mps-0: b: carries 100 rows/s, not 120"]
    heavier = resident("a", gib=10)  # the same replica, measured anew
    assert faults((loaded(heavier),), old={"mps-0": (Slot(HALF, (heavy,)),)}) == []
    more_there = (loaded(heavy), loaded(A, number=1, routed=False))
    assert faults(more_there, old={"mps-0": (Slot(HALF, (heavy,)),)}) == [
        f"mps-0: memory {10 * GIB} of {8 * GIB} bytes"
    ]


def test_a_model_carries_what_both_placements_carry() -> None:
    two: Placement = {"mps-0": (Slot(HALF, (A,)), Slot(HALF, (A,)))}
    one: Placement = {"mps-1": (Slot(HALF, (A,)),)}
    assert violations(problem(), State({}), two, one) == [
        "a: 0 rows/s are carried, not 100",
        "a: in 0 failure domains, not 1",
    ]
    assert violations(problem(), State.of(one), two, one) == []
    assert violations(problem(), State({}), two, {}) == []
    less: Placement = {"mps-1": (Slot(HALF, (resident("a", capacity=99.9),)),)}
    assert violations(problem(), State.of(less), two, one) == ["a: 99.9 rows/s are carried, not 100"]
    idle = State({"mps-0": (loaded(A, routed=False),)})
    assert violations(problem(), idle, two, one)[0] == "a: 0 rows/s are carried, not 100"


def test_a_model_is_in_the_failure_domains_that_both_have_and_it_asks_for() -> None:
    apart: Placement = {f"mps-{number}": (Slot(HALF, (A,)),) for number in range(2)}
    here: Placement = {"mps-0": (Slot(HALF, (A,)), Slot(HALF, (A,)))}
    assert floors(problem(domains_min=2), apart, apart).spread == {"a": 2}
    assert floors(problem(), apart, apart).spread == {"a": 1}
    assert floors(problem(domains_min=2), apart, here).spread == {"a": 1}
    assert violations(problem(domains_min=2), State.of(here), apart, apart) == [
        "a: in 1 failure domains, not 2"
    ]


def test_no_more_devices_change_at_a_time_than_may() -> None:
    state = State({f"mps-{number}": (loaded(A, routed=False),) for number in range(2)})
    assert violations(problem(), state, {}, {}, 2) == []
    assert violations(problem(), state, {}, {}) == []
    assert violations(problem(), state, {}, {}, 1) == ["mps-0, mps-1 are changed at once, 1 at most"]
