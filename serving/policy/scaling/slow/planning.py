"""The slow plan: how many replicas of which variants on which kinds of slices carry what is forecast.

It runs as a job beside the gateway, and is planned for the 95th percentile of the forecast, as what fails to
come costs little and what is not there in time is lost. What control follows is the band (SageServe, POMACS
2025): within `low` replicas, for the median, and `high` the fast loop moves at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from serving.policy.forecasting.ensemble import forecast
from serving.policy.forecasting.quantiles import Quantiles
from serving.policy.scaling.interface import PlannedBand
from serving.policy.scaling.slow.objective_value import CarriedShares, carry, worth
from serving.policy.scaling.slow.problem import ScalingProblem, make_problem
from serving.policy.scaling.slow.program import Left, columns, every_size, solve_exact
from serving.policy.scaling.slow.reasons import reasons
from serving.policy.scaling.slow.rounding import round_covers
from serving.policy.scaling.slow.tables import NEAR, Ints
from serving.policy.scaling.slow.task import Claimant, Granted, Key, ScalingPlan, ScalingTask

PERIOD_S = 60.0
"""To the next plan, which may change what this one says."""
CLAIMS_MAX = 50
COLUMNS_MAX = 800
NODES_MAX = 50
"""Up to so many models, and integers, the exact program is asked as well, for so many branches."""


def plan_scaling(task: ScalingTask) -> Iterator[ScalingPlan]:
    """Yield plans, at least one, each better than the one before. Bands end at 0: the caller that takes a
    plan sets the end.

    Raises ValueError if a history does not hold rows.
    """
    expected = [_expected(each, task.lead_s) for each in task.claimants]
    yield from plans(task, expected)


def plans(task: ScalingTask, expected: Sequence[Quantiles]) -> Iterator[ScalingPlan]:
    """Yield the same, with what is expected of each claimant given."""
    problem = make_problem(task, [each.high for each in expected])
    best = inf
    for replicas in _drafts(problem):
        carried = carry(problem, replicas)
        value = worth(problem, replicas, carried)
        if value < best * (1 - NEAR):
            best = value
            yield _plan(problem, expected, replicas, carried)


def _expected(claimant: Claimant, lead_s: float) -> Quantiles:
    horizon_s = max(lead_s, claimant.load_s + PERIOD_S)
    return forecast(claimant.history, claimant.bin_s, horizon_s)


def _drafts(problem: ScalingProblem) -> Iterator[Ints]:
    yield round_covers(problem).replicas
    if len(problem.claims.each) > CLAIMS_MAX:
        return
    sizes = {claim: every_size(problem, claim) for claim in range(len(problem.claims.each))}
    if 0 < columns(problem, sizes) <= COLUMNS_MAX:
        exact = solve_exact(problem, sizes, Left(problem.kinds.count, problem.cost_max), NODES_MAX)
        if exact is not None:
            yield exact


def _plan(
    problem: ScalingProblem, expected: Sequence[Quantiles], replicas: Ints, carried: CarriedShares
) -> ScalingPlan:
    lacking = reasons(problem, replicas, carried)
    granted = {}
    for claim, each in enumerate(problem.claims.each):
        found = _granted(problem, claim, expected[claim], replicas, carried)
        granted[each.model] = replace(found, lacking=lacking.get(claim, ""))
    return ScalingPlan(granted, float(problem.kinds.paid[problem.offers.kind] @ replicas))


def _granted(
    problem: ScalingProblem, claim: int, expected: Quantiles, replicas: Ints, carried: CarriedShares
) -> Granted:
    claimant = problem.claims.each[claim]
    places = [int(place) for place in problem.of(claim) if replicas[place]]
    offers = problem.offers
    numbers = {offers.keys[place]: int(replicas[place]) for place in places}
    shares = {offers.keys[place]: float(carried.shares[place]) for place in places}
    whole = sum(shares.values())
    accuracy = sum(claimant.variants[key[0]] * share for key, share in shares.items())
    return Granted(
        model=claimant.model,
        band=_band(claimant, expected, numbers, shares),
        replicas=numbers,
        rate=expected.high,
        shed=expected.high * float(carried.shed[claim]),
        accuracy=accuracy / whole if whole > 0 else 0.0,
        cost=float(sum(problem.kinds.paid[offers.kind[place]] * replicas[place] for place in places)),
    )


def _band(
    claimant: Claimant, expected: Quantiles, numbers: Mapping[Key, int], shares: Mapping[Key, float]
) -> PlannedBand:
    """Return the band of one model. `low`: as many of these replicas, in proportion, as carry the median."""
    high = sum(numbers.values())
    if not numbers:
        return PlannedBand(0, 0, next(iter(claimant.variants), ""), 0, _why(expected, numbers))
    by_variant: dict[str, float] = {}
    for (variant, _), share in shares.items():
        by_variant[variant] = by_variant.get(variant, 0.0) + share
    variant = max(by_variant, key=lambda name: (by_variant[name], claimant.variants[name]))
    low = next(
        count for count in range(high + 1) if count == high or _carries(claimant, numbers, count, expected)
    )
    return PlannedBand(min(max(low, claimant.least), high), high, variant, 0, _why(expected, numbers))


def _carries(claimant: Claimant, numbers: Mapping[Key, int], count: int, expected: Quantiles) -> bool:
    high = sum(numbers.values())
    rate = sum(
        claimant.capacities[key].rate(count, claimant.cv) * number / high for key, number in numbers.items()
    )
    return rate >= expected.median


def _why(expected: Quantiles, numbers: Mapping[Key, int]) -> str:
    had = ", ".join(f"{count} of {variant} on {kind}" for (variant, kind), count in numbers.items())
    return (
        f"{expected.high:.4g} rows a second at the 95th percentile of the forecast, {expected.median:.4g} in "
        f"the median: {had or 'no replica'}"
    )
