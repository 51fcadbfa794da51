"""Small random problems: up to three devices and four models, of every kind of division."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

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

ROWS = (1, 2, 4)
MIG, PARTS = "mig", "parts"
DIVISIONS: Mapping[str, Instances | Parts] = {MIG: Instances(A100_80), PARTS: Parts("mps", 100)}
SHARES = {
    MIG: tuple(Share.parse(f"mig:{each.name}") for each in A100_80),
    PARTS: tuple(Share("mps", amount) for amount in (20.0, 30.0, 50.0, 100.0)),
}
WHOLE = {MIG: 7.0, PARTS: 100.0}
GIB = 1 << 30


@st.composite
def pools(
    draw: st.DrawFn, divided: Sequence[str], prices: Sequence[float], domains: Sequence[str]
) -> list[Pool]:
    """A pool for each of those divisions."""
    found = []
    for place, how in enumerate(divided):
        count = draw(st.integers(1, 3 if len(divided) == 1 else 2))
        devices = tuple(
            PlacementDevice(f"{how}{place}.{each}", draw(st.sampled_from(domains))) for each in range(count)
        )
        division = DIVISIONS[how]
        if isinstance(division, Parts) and draw(st.booleans()):
            division = Parts(division.kind, division.total, draw(st.integers(1, 3)))
        memory_bytes = draw(st.sampled_from((0, 8 * GIB))) if how == PARTS else 0
        price = draw(st.sampled_from(prices))
        found.append(Pool(f"{how}{place}", f"{how}{place}", division, devices, price, memory_bytes))
    return found


@st.composite
def options(draw: st.DrawFn, pool: Pool, how: str, interference: bool) -> list[Option]:
    """A model that has fixed work, work by the row, and use for less and less of a device."""
    fixed_us, row_us = draw(st.integers(1, 4)) * 1000, draw(st.integers(1, 4)) * 1000
    bend = draw(st.sampled_from((0.5, 0.8, 1.0)))
    memory_bytes = draw(st.integers(0, 4)) * GIB
    levels = st.sampled_from((0.0, 0.1, 0.3)) if interference else st.just(0.0)
    pressure, sensitivity = draw(levels), draw(levels)
    shares = draw(st.lists(st.sampled_from(SHARES[how]), min_size=1, max_size=3, unique=True))
    found = []
    for share in shares:
        speed = (share.amount / WHOLE[how]) ** bend
        curve = tuple((rows, (fixed_us + row_us * rows) / speed) for rows in ROWS)
        found.append(
            Option(pool.kind, share, "fp32", curve, memory_bytes, pressure=pressure, sensitivity=sensitivity)
        )
    return found


@st.composite
def problems(
    draw: st.DrawFn,
    divided: Sequence[str] = (MIG,),
    models_max: int = 4,
    prices: Sequence[float] = (1.0,),
    domains: Sequence[str] = ("",),
    interference: bool = True,
) -> PlacementProblem:
    """Rates from nothing to more than a device carries; models that no share suits are among them."""
    there = draw(pools(divided, prices, domains))
    demands = []
    for place in range(draw(st.integers(1, models_max))):
        every = [
            each
            for pool, how in zip(there, divided, strict=True)
            for each in draw(options(pool, how, interference))
        ]
        slo_us = draw(st.sampled_from((20, 50, 100, 300))) * 1000.0
        rate = float(draw(st.integers(0, 60)) * draw(st.sampled_from((1, 3, 9))))
        spread = draw(st.integers(1, len(domains)))
        demands.append(Demand(f"m{place}", rate, slo_us, tuple(every), spread))
    return PlacementProblem(tuple(demands), tuple(there))
