"""The lower bound on a placement's cost: the linear relaxation, over all pools together.

Replicas and devices may be fractions, and slices do not slow each other down. Replicas in turns are fractions
too: the parts of a cycle that their batches take come to one slice. The dual values are market prices of
slices. Price-and-round chooses by these prices.
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
from serving.policy.placement.programs import InfeasibleError, Program
from serving.policy.placement.terms.plan import ROUNDING
from serving.policy.placement.terms.problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class Market:
    """The relaxation's cost (`bound`, as `lower_bound` returns it) and its `prices`.

    If the bound is inf, these are the prices at which as much is carried as can be.
    """

    bound: float
    prices: Prices


def lower_bound(problem: PlacementProblem) -> float:
    """Return the least that devices cost for an hour by the relaxation; inf if even that cannot carry all.

    The bound holds for replicas that run measured batches on a slice of their own. On devices divided by
    amounts, it also holds for replicas that take turns with batches of any size. The solvers here make only
    such replicas.
    """
    return market(choices(problem, between=True)).bound


def market(every: Choices) -> Market:
    """Return the relaxation's cost and prices.

    `every` has to include batches `between` measured ones, where devices are divided by amounts.
    """
    if not every.each:
        return Market(inf if every.hopeless else 0.0, ())
    if not every.hopeless:
        try:
            return _relax(every, missing_price=None)
        except InfeasibleError:
            pass
    return Market(inf, _relax(every, missing_price(every)).prices)


def _relax(every: Choices, missing_price: float | None) -> Market:
    """Solve the relaxation and return its cost and prices.

    Its columns are parts of demands, by choice. With a `missing_price`, there are also columns for what is
    missing of demands.
    """
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
