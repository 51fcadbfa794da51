"""The oracle itself on cases that are worked out by hand, and our plans and the baselines held against it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines import first_fit, gpulet, mig_serving, nexus, parvagpu
from serving.policy.placement.packing.patterns import patterns
from serving.policy.placement.solvers.exact import solve_exact
from serving.policy.placement.terms.geometry import A100_80
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share
from tests.policy.placement.brute import cheapest
from tests.policy.placement.drafts import faults, missing_and_cost
from tests.policy.placement.small_fleets import MIG, PARTS, problems
from tests.seeds import rotating

SLO_US = 1e6


def option(share: str, *curve: tuple[int, float], kind: str = "gpu", **more: float) -> Option:
    return Option(kind, Share.parse(share), "fp32", curve, **more)  # type: ignore[arg-type]  # floats only


def pool(
    division: Instances | Parts, count: int = 2, kind: str = "gpu", price: float = 1.0, memory_bytes: int = 0
) -> Pool:
    devices = tuple(PlacementDevice(f"{kind}.{place}", "ab"[place % 2]) for place in range(count))
    return Pool(kind, kind, division, devices, price, memory_bytes)


# by hand


def test_three_instances_of_three_slices_need_two_gpus() -> None:
    """Two lie on a GPU; beside them there is no room for one of 1 slice."""
    three = option("mig:3g.40gb", (1, 100_000.0))
    small = option("mig:1g.10gb", (1, 100_000.0))
    fleet = (pool(Instances(A100_80)),)
    assert cheapest(PlacementProblem((Demand("a", 20.0, SLO_US, (three,)),), fleet)) == (0.0, 1.0)
    both = (Demand("a", 20.0, SLO_US, (three,)), Demand("b", 10.0, SLO_US, (small,)))
    assert cheapest(PlacementProblem(both, fleet)) == (0.0, 2.0)
    assert cheapest(PlacementProblem((Demand("a", 30.0, SLO_US, (three,)),), fleet)) == (0.0, 2.0)


def test_what_no_device_is_left_for_is_short() -> None:
    seven = option("mig:7g.80gb", (1, 100_000.0))
    problem = PlacementProblem((Demand("a", 40.0, SLO_US, (seven,)),), (pool(Instances(A100_80)),))
    assert cheapest(problem) == (0.5, 2.0)
    late = PlacementProblem((Demand("a", 40.0, 0.2 * SLO_US, (seven,)),), (pool(Instances(A100_80)),))
    assert cheapest(late) == (1.0, 0.0)


def test_models_take_turns_where_the_cycle_carries_both() -> None:
    """Batches of 2 take 20 ms: a cycle of 40 ms carries 50 rows/s of each, and nothing else would."""
    way = option("mps:100", (1, 15_000.0), (2, 20_000.0))
    fleet = (pool(Parts("mps", 100), 1),)
    pair = tuple(Demand(name, 50.0, SLO_US, (way,)) for name in "ab")
    assert cheapest(PlacementProblem(pair, fleet)) == (0.0, 1.0)
    more = tuple(Demand(name, 51.0, SLO_US, (way,)) for name in "ab")
    assert cheapest(PlacementProblem(more, fleet)) == (1.0, 1.0)
    assert cheapest(PlacementProblem(more, fleet), pieces=False) == pytest.approx((2 / 51, 1.0), abs=1e-6)
    tight = tuple(Demand(name, 50.0, 60_000.0, (way,)) for name in "ab")  # 40 + 20 of 54 ms
    assert cheapest(PlacementProblem(tight, fleet)) == (1.0, 1.0)


def test_neighbours_that_slow_each_other_down_too_much_need_a_device_each() -> None:
    """Alone a batch takes 40 of 45 ms, beside the other 48."""
    calm, loud = (option("mps:50", (4, 40_000.0), pressure=level, sensitivity=0.4) for level in (0.5, 0.5))
    problem = PlacementProblem(
        (Demand("a", 80.0, 100_000.0, (calm,)), Demand("b", 80.0, 100_000.0, (loud,))),
        (pool(Parts("mps", 100)),),
    )
    assert cheapest(problem) == (0.0, 2.0)
    loose = PlacementProblem(
        tuple(Demand(each.model, each.rate, 110_000.0, each.options) for each in problem.demands),
        problem.pools,
    )
    assert cheapest(loose) == (0.0, 1.0)  # 48 of 49.5 ms, and 83 rows/s


def test_memory_and_the_number_of_slices_are_limits() -> None:
    way = option("mps:20", (1, 10_000.0), memory_bytes=3)
    pair = tuple(Demand(name, 100.0, SLO_US, (way,)) for name in "ab")
    assert cheapest(PlacementProblem(pair, (pool(Parts("mps", 100), memory_bytes=6),))) == (0.0, 1.0)
    assert cheapest(PlacementProblem(pair, (pool(Parts("mps", 100), memory_bytes=5),))) == (0.0, 2.0)
    assert cheapest(PlacementProblem(pair, (pool(Parts("mps", 100, 1)),))) == (0.0, 2.0)


def test_the_dear_device_is_taken_only_where_it_pays() -> None:
    slow, fast = (option("mps:100", (1, us), kind=kind) for kind, us in (("old", 10_000.0), ("new", 2_500.0)))
    fleet = (pool(Parts("mps", 100), 4, "old", 1.0), pool(Parts("mps", 100), 4, "new", 3.0))
    for rate, price in ((100.0, 1.0), (300.0, 3.0), (301.0, 3.0), (500.0, 4.0)):
        assert cheapest(PlacementProblem((Demand("a", rate, SLO_US, (slow, fast)),), fleet)) == (0.0, price)


def test_a_model_that_must_be_spread_needs_a_device_in_each_domain() -> None:
    way = option("mps:20", (1, 10_000.0))
    once, twice, thrice = (Demand("a", 100.0, SLO_US, (way,), domains_min=count) for count in (1, 2, 3))
    fleet = (pool(Parts("mps", 100)),)
    assert cheapest(PlacementProblem((once,), fleet)) == (0.0, 1.0)
    assert cheapest(PlacementProblem((twice,), fleet)) == (0.0, 2.0)
    assert cheapest(PlacementProblem((thrice,), fleet)) == (1.0, 2.0)


def test_nothing_asked_costs_nothing() -> None:
    fleet = (pool(Parts("mps", 100)),)
    assert cheapest(PlacementProblem((), fleet)) == (0.0, 0.0)
    assert cheapest(PlacementProblem((Demand("a", 0.0, SLO_US, ()),), ())) == (0.0, 0.0)
    assert cheapest(PlacementProblem((Demand("a", 1.0, SLO_US, ()),), fleet)) == (1.0, 0.0)


# our plans, and the baselines

ONE, TWO = ((MIG,), (PARTS,)), ((MIG, PARTS), (PARTS, PARTS), (MIG, MIG))
FLEETS = [
    problems(divided, models_max=4 if divided in ONE else 3, prices=(0.0, 1.0, 3.0), domains=domains)
    for divided in (*ONE, *TWO)
    for domains in (("",), ("a", "b", "c"))
]
SMALLER = [problems(divided, models_max=3, prices=(1.0, 3.0)) for divided in ((MIG,), (PARTS,), (MIG, PARTS))]
BASELINES = (first_fit, gpulet, mig_serving, nexus, parvagpu)


def is_the_best(problem: PlacementProblem) -> None:
    ways = {
        each.name: patterns(problem, each, 4_000)
        for each in problem.pools
        if isinstance(each.division, Parts)
    }
    draft = solve_exact(problem, {name: found for name, found in ways.items() if found is not None}, 60.0)
    assert draft is not None
    assert draft.optimal
    assert faults(problem, draft) == []
    assert missing_and_cost(problem, draft) == pytest.approx(cheapest(problem), abs=3e-6)


def test_a_program_at_which_the_solver_fails_is_solved_in_another_way() -> None:
    """HiGHS 1.12 ends with "Solve error" without presolve; a random world found it."""
    steep, flat = 7247.796636776956, 4472.13595499958
    slow, quick = (tuple((rows, each * (rows + 1) / 2) for rows in (1, 2, 4)) for each in (steep, flat))
    whole = tuple((rows, 1000.0 * (rows + 1)) for rows in (1, 2, 4))
    first = (_option("parts0", 20.0, slow), _option("parts1", 20.0, quick))
    second = (_option("parts0", 100.0, whole), _option("parts1", 20.0, quick))
    demands = (
        Demand("m0", 207.0, 20_000.0, first, slack=0.45),
        Demand("m1", 1.0, 20_000.0, second, domains_min=3, slack=0.45),
    )
    pools = (_pool("parts0", "a", 0), _pool("parts1", "b", 1))
    is_the_best(PlacementProblem(demands, pools))


def _option(kind: str, amount: float, curve: tuple[tuple[int, float], ...]) -> Option:
    return Option(kind, Share("mps", amount), "fp32", curve)


def _pool(kind: str, domain: str, slices_max: int) -> Pool:
    device = PlacementDevice(f"{kind}.0", domain)
    return Pool(kind, kind, Parts("mps", 100, slices_max), (device,), 0.0, 0)


@pytest.mark.slow
@given(st.one_of(FLEETS))
@rotating(300)
def test_what_is_proved_optimal_is_the_cheapest_there_is(problem: PlacementProblem) -> None:
    is_the_best(problem)


@given(problems((MIG, PARTS), models_max=2))
@settings(max_examples=5)
def test_a_few_are_the_cheapest_there_are(problem: PlacementProblem) -> None:
    is_the_best(problem)


@pytest.mark.slow
@given(st.one_of(SMALLER))
@rotating(120)
def test_no_baseline_is_better_than_the_best(problem: PlacementProblem) -> None:
    missing, cost = cheapest(problem, pieces=False)
    for baseline in BASELINES:
        short, price = missing_and_cost(problem, baseline.solve(problem))
        assert short > missing - 3e-6
        assert short > missing + 3e-6 or price >= cost - 1e-6
