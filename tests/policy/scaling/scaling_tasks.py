"""Small scaling tasks, and the best plan of one by trying all."""

from collections.abc import Mapping
from itertools import product

from hypothesis import strategies as st

from serving.policy.forecasting.quantiles import Quantiles
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.slow.planning import plans
from serving.policy.scaling.slow.problem import ScalingProblem, make_problem
from serving.policy.scaling.slow.task import Claimant, Key, ScalingPlan, ScalingTask, SliceKind
from serving.values.objectives import OPTIMIZE

COUNTS = (1, 2, 4, 8)
POOLED = (0.22, 0.54, 0.75, 0.87)
"""Of what an M/D/n queue of n servers could, what it carries where the SLO is three services."""

Replicas = Mapping[str, Mapping[Key, int]]


def capacity(rate: float, pooled: tuple[float, ...] = POOLED) -> Capacity:
    """Of replicas that answer `rate` rows a second each if they never wait."""
    return Capacity(COUNTS, (1.0,), (tuple(rate * n * part for n, part in zip(COUNTS, pooled, strict=True)),))


def even(rate: float) -> Capacity:
    """Of replicas that carry `rate` each, however many there are."""
    return capacity(rate, (1.0,) * 4)


def task(*claimants: Claimant, kinds: tuple[SliceKind, ...], cost_max: float = float("inf")) -> ScalingTask:
    return ScalingTask(claimants, kinds, cost_max)


def planned(asked: ScalingTask, *rates: float) -> ScalingPlan:
    """The last plan for these rates."""
    return list(plans(asked, [Quantiles(rate / 2, rate) for rate in rates]))[-1]


def replicas(plan: ScalingPlan) -> Replicas:
    return {model: granted.replicas for model, granted in plan.granted.items()}


def worth_of(asked: ScalingTask, problem: ScalingProblem, claim: int, numbers: Mapping[Key, int]) -> float:
    """What these replicas of one claimant cost in the plan's currency, reckoned anew."""
    claimant = asked.claimants[claim]
    kinds = {kind.name: place for place, kind in enumerate(asked.kinds)}
    pool, rate = sum(numbers.values()), float(problem.claims.rate[claim])
    best, open_share, loss, cost = max(claimant.variants.values()), 1.0 if rate else 0.0, 0.0, 0.0
    for key in sorted(numbers, key=lambda key: -claimant.variants[key[0]]):
        if pool:
            carried = numbers[key] * claimant.capacities[key].rate(pool, claimant.cv) / pool
            share = min(open_share, carried / rate) if rate else 0.0
            open_share -= share
            loss += share * (best - claimant.variants[key[0]])
        cost += numbers[key] * float(problem.kinds.price[kinds[key[1]]])
    for name, place in kinds.items():
        had = sum(count for key, count in claimant.current.items() if key[1] == name)
        more = sum(count for key, count in numbers.items() if key[1] == name) - had
        cost += max(more, 0) * float(problem.kinds.price[place]) * claimant.load_s / 600.0
    there = {kind.name for kind in asked.kinds if kind.count and not kind.spot}
    kept = [key for key in claimant.capacities if key[1] in there] or claimant.capacities
    lacking = max(claimant.least - sum(numbers.get(key, 0) for key in kept), 0)
    missing = (open_share if open_share > 1e-6 else 0.0) + 2 * lacking
    return (
        cost
        + float(problem.claims.loss_price[claim]) * loss
        + float(problem.claims.shed_price[claim]) * missing
    )


def best_worth(asked: ScalingTask, rates: tuple[float, ...]) -> float:
    """The least that any replicas cost which keep to the counts and the ceiling."""
    problem = make_problem(asked, rates)
    counts = [kind.count for kind in asked.kinds]
    table = {tuple(0 for _ in counts): 0.0}
    for claim, claimant in enumerate(asked.claimants):
        here: dict[tuple[int, ...], float] = {}
        keys = list(claimant.capacities)
        limits = [asked.kinds[[kind.name for kind in asked.kinds].index(key[1])].count for key in keys]
        for numbers in product(*(range(limit + 1) for limit in limits)):
            used = tuple(
                sum(number for key, number in zip(keys, numbers, strict=True) if key[1] == kind.name)
                for kind in asked.kinds
            )
            fits = all(use <= count for use, count in zip(used, counts, strict=True))
            if fits and sum(numbers) <= max(claimant.most, claimant.least):
                value = worth_of(asked, problem, claim, dict(zip(keys, numbers, strict=True)))
                here[used] = min(here.get(used, float("inf")), value)
        grown: dict[tuple[int, ...], float] = {}
        for (before, value), (more, extra) in product(table.items(), here.items()):
            used = tuple(a + b for a, b in zip(before, more, strict=True))
            price = sum(kind.price * use for kind, use in zip(asked.kinds, used, strict=True))
            if (
                all(use <= count for use, count in zip(used, counts, strict=True))
                and price <= asked.cost_max + 1e-9
            ):
                grown[used] = min(grown.get(used, float("inf")), value + extra)
        table = grown
    return min(table.values())


@st.composite
def tasks(draw: st.DrawFn) -> tuple[ScalingTask, tuple[float, ...]]:
    """Up to three claimants of up to three variants on up to two kinds, of which there are up to three."""
    kinds = tuple(
        SliceKind(name, float(draw(st.integers(1, 4))), draw(st.integers(0, 3 if name == "a" else 2)), spot)
        for name, spot in (("a", False), ("b", draw(st.booleans())))[: draw(st.integers(1, 2))]
    )
    claimants, rates = [], []
    for place in range(draw(st.integers(1, 3))):
        variants = {f"v{each}": 0.9 - 0.05 * each for each in range(draw(st.integers(1, 2 if place else 3)))}
        capacities = {
            (variant, kind.name): capacity(float(draw(st.integers(1, 12)) * 10))
            for variant in variants
            for kind in kinds
        }
        claimants.append(
            Claimant(
                f"m{place}",
                (),
                variants,
                capacities,
                current={("v0", "a"): draw(st.integers(0, 2))},
                optimize=draw(st.sampled_from(OPTIMIZE)),
                weight=draw(st.sampled_from((1.0, 2.0))),
                priority=draw(st.integers(0, 1)),
                least=draw(st.integers(0, 2)),
                most=draw(st.integers(1, 4)),
            )
        )
        rates.append(float(draw(st.sampled_from((0, 1, 7, 23, 61, 130)))))
    ceiling = draw(st.sampled_from((float("inf"), float("inf"), 2.0, 5.0)))
    return ScalingTask(tuple(claimants), kinds, ceiling), tuple(rates)
