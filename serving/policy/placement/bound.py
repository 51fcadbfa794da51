"""What no placement can undercut: the linear relaxation, over all pools together.

Replicas and devices may be fractions, and slices do not slow each other down. Replicas in turns are fractions
too: the parts of a cycle that their batches take come to one slice. The dual values are market prices of
slices, by which price-and-round chooses.
"""

from dataclasses import dataclass
from math import inf

from serving.policy.placement.formulation.choices import (
    Choices,
    Prices,
    add_devices,
    choices,
    missing_price,
)
from serving.policy.placement.plan import ROUNDING
from serving.policy.placement.problem import PlacementProblem
from serving.policy.placement.programs import InfeasibleError, Program


@dataclass(frozen=True, slots=True)
class Market:
    """`bound`: as `lower_bound` says. `prices`: where the bound is inf, those with which as much is carried
    as can be."""

    bound: float
    prices: Prices


def lower_bound(problem: PlacementProblem) -> float:
    """The least that an hour's devices can cost by the relaxation; inf where even that cannot carry all.

    It holds for replicas that run measured batches where they have a slice for themselves, and any where
    devices are divided by amounts and they take turns, as all that are made here do.
    """
    return market(choices(problem, between=True)).bound


def market(every: Choices) -> Market:
    """The relaxation's cost and prices, where batches `between` measured ones are among the choices."""
    if not every.each:
        return Market(inf if every.hopeless else 0.0, ())
    if not every.hopeless:
        try:
            return _relax(every, missing_price=None)
        except InfeasibleError:
            pass
    return Market(inf, _relax(every, missing_price(every)).prices)


def _relax(every: Choices, missing_price: float | None) -> Market:
    """The columns are parts of demands, by choice; and what is missing of them, if there is a price for
    it."""
    program = Program()
    devices = [add_devices(program, each, len(each.pool.devices)) for each in every.divisions]
    rows = [program.row(lower=1 - ROUNDING) for _ in every.demands]
    for each in every.each:
        column = program.column()
        program.put(rows[each.demand], column, 1.0)
        replicas = every.demands[each.demand].rate / each.offer.throughput
        for resource, amount in each.taken.resources:
            program.put(devices[each.division].rows[resource], column, -amount * replicas)
    if missing_price is not None:
        for row in rows:
            program.put(row, program.column(missing_price), 1.0)
    found = program.relax()
    prices = tuple(tuple(max(float(found.prices[row]), 0.0) for row in each.rows) for each in devices)
    return Market(found.cost, prices)
