"""The kneepoint: the share past which more of the device buys little throughput. Derived, never typed in.

It is a matter of the batch and of the rule, not of the model alone: on ParvaGPU's 11 A100 models at a batch
of 8, three usual rules agree on none. So the rule here is one, efficiency; two others stand beside it for
people.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from serving.profile.derived.carrying import FITTING, most
from serving.profile.derived.surface import Surface

ENOUGH = 0.8
"""A knee keeps that much of the largest throughput, however efficient a smaller share is."""
NEAR = 1e-9  # relative: closer values are equal, so that a change of units changes no choice


@dataclass(frozen=True, slots=True)
class Knee:
    """The share to give a variant under its SLO: `amount`, with the batch that it runs there.

    `throughput` rows per second, `latency_us` of that batch. `by_90` and `by_kneedle`: the amounts that those
    rules name. `efficiency`: by amount, ascending, of every share that meets the SLO; the highest is 1.
    """

    amount: float
    rows: int
    throughput: float
    latency_us: float
    by_90: float
    by_kneedle: float
    efficiency: tuple[tuple[float, float], ...]


def knee(shares: Sequence[float], throughput: Sequence[float], latency_us: Sequence[float]) -> int:
    """Return the index of the most efficient share: the largest throughput / (latency * share), of equals the
    smallest. Only shares with at least 0.8 of the largest throughput count.

    The measure is D-STACK's efficacy (arXiv 2304.13541). At a fixed batch throughput is rows / latency, so it
    is throughput² / share. That rises for as long as 1 % more share brings over 0.5 % more throughput. Raises
    ValueError unless shares ascend and all values are positive.
    """
    _check(shares, throughput, latency_us)
    measure = efficiency(shares, throughput, latency_us)
    least = ENOUGH * max(throughput) * (1 - NEAR)
    open_to = [place for place, each in enumerate(throughput) if each >= least]
    most = max(measure[place] for place in open_to) * (1 - NEAR)
    return next(place for place in open_to if measure[place] >= most)


def efficiency(
    shares: Sequence[float], throughput: Sequence[float], latency_us: Sequence[float]
) -> tuple[float, ...]:
    """Return throughput / (latency * share) of each share."""
    return tuple(
        rate / (took_us * share) for share, rate, took_us in zip(shares, throughput, latency_us, strict=True)
    )


def knee90(shares: Sequence[float], throughput: Sequence[float]) -> int:
    """Return the index of the smallest share with at least 90 % of the largest throughput. Raises ValueError
    as `knee` does."""
    _check(shares, throughput)
    least = 0.9 * max(throughput) * (1 - NEAR)
    return next(place for place, each in enumerate(throughput) if each >= least)


def kneedle(shares: Sequence[float], throughput: Sequence[float]) -> int:
    """Return the index of the share that is furthest above the straight line from the least to the most.

    This is Kneedle, offline, for a concave rising curve. Both axes are scaled to 0..1, then the maximum of y
    - x is taken. (V. Satopää et al., "Finding a 'Kneedle' in a Haystack", ICDCS workshops 2011.) The
    smoothing spline and the sensitivity threshold of the paper are left out: they need more points than a
    device has shares. If nothing is above the line there is no knee: the largest share, or the smallest if
    all give the same. Raises ValueError as `knee` does.
    """
    _check(shares, throughput)
    low, high = min(throughput), max(throughput)
    if high - low <= NEAR * high:
        return 0
    across = shares[-1] - shares[0]
    above = [
        (rate - low) / (high - low) - (share - shares[0]) / across
        for share, rate in zip(shares, throughput, strict=True)
    ]
    most = max(above)
    if most <= NEAR:
        return len(shares) - 1
    return next(place for place, each in enumerate(above) if each >= most - NEAR)


def knee_at_slo(surface: Surface, slo_us: float) -> Knee | None:
    """Return the knee over the measured shares, each at the batch that carries most of those that it knows
    within half the SLO (`serving.profile.derived.carrying`). None where no share runs any batch so fast."""
    chosen = []
    for amount in surface.amounts:
        least, _ = surface.rows_at(amount) or (1, 0)
        fitting = surface.rows_within(amount, slo_us * FITTING)
        best = most(least, fitting, partial(surface.latency_us, amount))
        if best is not None:
            chosen.append((amount, best.rows))
    if not chosen:
        return None
    shares = [amount for amount, _ in chosen]
    rates = [surface.throughput(*place) for place in chosen]
    latency_us = [surface.latency_us(*place) for place in chosen]
    place = knee(shares, rates, latency_us)
    measure = efficiency(shares, rates, latency_us)
    return Knee(
        amount=shares[place],
        rows=chosen[place][1],
        throughput=rates[place],
        latency_us=latency_us[place],
        by_90=shares[knee90(shares, rates)],
        by_kneedle=shares[kneedle(shares, rates)],
        efficiency=tuple(zip(shares, (each / max(measure) for each in measure), strict=True)),
    )


def _check(*series: Sequence[float]) -> None:
    shares = series[0]
    if not shares or len({len(each) for each in series}) > 1:
        raise ValueError(f"a knee needs as many values as shares, at least one, not {[*map(len, series)]}")
    if any(left >= right for left, right in pairwise(shares)):
        raise ValueError(f"shares must ascend: {[*shares]}")
    if any(not value > 0 for each in series for value in each):
        raise ValueError("shares, throughput and latency must be positive")
