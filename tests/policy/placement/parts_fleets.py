"""Problems on devices that are divided by amounts, for tests."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from serving.policy.placement.terms.check import device_faults
from serving.policy.placement.terms.plan import Bundle
from serving.policy.placement.terms.problem import (
    Demand,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share

KIND = "gpu"


def option(
    amount: float, *curve: tuple[int, float], pressure: float = 0.0, sensitivity: float = 0.0, memory: int = 0
) -> Option:
    return Option(
        KIND, Share("mps", amount), "fp32", curve, memory, pressure=pressure, sensitivity=sensitivity
    )


def pool(
    count: int = 9, total: float = 100.0, slices_max: int = 0, memory: int = 0, domains: Sequence[str] = ("",)
) -> Pool:
    devices = tuple(PlacementDevice(f"d{place}", domains[place % len(domains)]) for place in range(count))
    return Pool("gpus", KIND, Parts("mps", total, slices_max), devices, 1.0, memory)


def flat(model: str, rate: float, *options: Option, slo_us: float = 1e6, domains_min: int = 1) -> Demand:
    return Demand(model, rate, slo_us, options, domains_min)


def generated(
    seed: int, models: int, interference: float = 0.0, rates: tuple[float, float] = (0.1, 1.5)
) -> tuple[Demand, ...]:
    """Models with fixed work and work by the row, faster with less than the share; rates in parts of what a
    whole device carries. `interference`: the largest pressure times sensitivity."""
    draw = random.Random(seed)
    found = []
    for place in range(models):
        fixed_us, row_us, bend = draw.uniform(200, 2000), draw.uniform(50, 2000), draw.uniform(0.5, 1)
        pressure, sensitivity = draw.uniform(0, 1), draw.uniform(0, interference)
        memory = draw.randint(1, 4)
        ways = tuple(
            option(
                amount,
                *((rows, fixed_us + row_us * rows / (amount / 10) ** bend) for rows in (1, 2, 4, 8, 16, 32)),
                pressure=pressure if interference else 0.0,
                sensitivity=sensitivity,
                memory=memory,
            )
            for amount in (10.0, 20.0, 30.0, 50.0, 100.0)
        )
        slo_us = draw.uniform(4, 30) * (fixed_us + row_us)
        best = max(each.throughput for each in flat("", 1.0, *ways, slo_us=slo_us).offers)
        found.append(flat(f"m{place}", best * draw.uniform(*rates), *ways, slo_us=slo_us))
    return tuple(found)


@st.composite
def demands(draw: st.DrawFn, models_max: int = 4, interference: bool = True) -> tuple[Demand, ...]:
    """Small numbers; some models are asked for nothing, and some are too slow on every share."""
    sizes = st.lists(st.sampled_from((20.0, 30.0, 50.0, 100.0)), min_size=1, max_size=3, unique=True)
    levels = st.sampled_from((0.0, 0.1, 0.4)) if interference else st.just(0.0)
    found = []
    for place in range(draw(st.integers(0, models_max))):
        fixed_us, row_us = draw(st.integers(1, 4)) * 1000.0, draw(st.integers(1, 4)) * 1000.0
        pressure, sensitivity = draw(levels), draw(levels)
        ways = tuple(
            option(
                amount,
                *((rows, fixed_us + row_us * rows * (100 / amount) ** 0.7) for rows in (1, 2, 4)),
                pressure=pressure,
                sensitivity=sensitivity,
                memory=draw(st.integers(0, 3)),
            )
            for amount in sorted(draw(sizes))
        )
        slo_us = draw(st.sampled_from((10_000.0, 30_000.0, 100_000.0, 300_000.0)))
        rate = float(draw(st.integers(0, 40)) * draw(st.sampled_from((1, 5, 20))))
        found.append(flat(f"m{place}", rate, *ways, slo_us=slo_us))
    return tuple(found)


def pools(count_max: int = 4) -> st.SearchStrategy[Pool]:
    """Of devices with and without limits of memory and slices."""
    return st.builds(
        pool,
        st.integers(0, count_max),
        slices_max=st.sampled_from((0, 1, 2, 3)),
        memory=st.sampled_from((0, 3, 6)),
    )


def faults(problem: PlacementProblem, bundles: Iterable[Bundle]) -> list[str]:
    """What is wrong with them; more devices than there are, too."""
    there = {each.name: each for each in problem.pools}
    used = Counter(each.pool for each in bundles)
    found = [f"{count} of {name}" for name, count in used.items() if count > len(there[name].devices)]
    for each in bundles:
        found += device_faults(problem, there[each.pool], each.slots)
    return found


def carried(bundles: Iterable[Bundle]) -> Counter[str]:
    """Rows a second by model."""
    found: Counter[str] = Counter()
    for each in bundles:
        for slot in each.slots:
            for resident in slot.residents:
                found[resident.model] += resident.capacity  # type: ignore[assignment]  # a rate
    return found


def short(problem: PlacementProblem, bundles: Iterable[Bundle]) -> set[str]:
    """The models whose rates are not carried."""
    there = carried(bundles)
    return {each.model for each in problem.demands if there[each.model] < each.rate * (1 - 1e-6)}
