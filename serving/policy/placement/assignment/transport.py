"""The transport problem: units go from sources to sinks so that they are worth most in all.

F. L. Hitchcock, "The distribution of a product from several sources to numerous localities" (1941). Its
matrix is totally unimodular, so a vertex of the linear program is whole, and the simplex method ends at a
vertex. If there are many ways between few units each, units are matched one by one. That is faster (R. Jonker
and A. Volgenant, 1987, for sparse matrices).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PROGRAM_MAX = 20_000
"""Up to so many ways are always a linear program. More are matched, up to `MATCHED_MAX`."""
MATCHED_MAX = 4_000_000
"""Up to so many ways between single units are matched. If there are more, it is a linear program all the
same."""

Arcs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""(source, sink, worth of a unit) of each way that there is. Each worth is above 0."""


def transport(arcs: Arcs, supply: Sequence[int], demand: Sequence[int]) -> NDArray[np.int64]:
    """Return how many units go each way.

    No source gives more than it has, and no sink takes more than it asks for. All of the demand is met if
    every source reaches every sink and all together have enough.
    """
    sources, sinks, worth = arcs
    if not len(worth):
        return np.zeros(0, np.int64)
    single = int((np.take(supply, sources) * np.take(demand, sinks)).sum())
    if len(worth) > PROGRAM_MAX and single <= MATCHED_MAX:
        return _matched(arcs, supply, demand)
    from scipy.optimize import linprog  # see `placement.programs`
    from scipy.sparse import csr_array

    count = len(worth)
    rows = np.concatenate([sources, sinks + len(supply)])
    columns = np.concatenate([np.arange(count), np.arange(count)])
    at_most = csr_array((np.ones(2 * count), (rows, columns)), shape=(len(supply) + len(demand), count))
    found = linprog(-worth / worth.max(), A_ub=at_most, b_ub=[*supply, *demand], method="highs-ds")
    if found.x is None:
        raise ArithmeticError(f"no flow, though none at all would be one: {found.message}")
    flows: NDArray[np.int64] = np.rint(found.x).astype(np.int64)
    return flows


def _matched(arcs: Arcs, supply: Sequence[int], demand: Sequence[int]) -> NDArray[np.int64]:
    """Return the same as `transport`, unit by unit.

    Each unit of a source gets a unit of a sink or stays, which is worth nothing.
    """
    from scipy.sparse import csr_array, eye_array, hstack
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    sources, sinks, worth = arcs
    first_out, first_in = np.cumsum([0, *supply]), np.cumsum([0, *demand])
    times = np.take(supply, sources) * np.take(demand, sinks)
    way = np.repeat(np.arange(len(worth)), times)
    place = np.arange(len(way)) - np.repeat(np.cumsum(times) - times, times)
    wide = np.take(demand, sinks[way])
    rows = first_out[sources[way]] + place // wide
    columns = first_in[sinks[way]] + place % wide
    stay = 1 + worth.max()
    costs = csr_array((stay - worth[way], (rows, columns)), shape=(int(first_out[-1]), int(first_in[-1])))
    with_stay = hstack([costs, stay * eye_array(costs.shape[0])]).tocsr()
    units, places = min_weight_full_bipartite_matching(with_stay)
    units, places = units[places < costs.shape[1]], places[places < costs.shape[1]]
    keys = sources * len(demand) + sinks
    order = np.argsort(keys)
    source_of = np.searchsorted(first_out, units, side="right") - 1
    sink_of = np.searchsorted(first_in, places, side="right") - 1
    taken = order[np.searchsorted(keys[order], source_of * len(demand) + sink_of)]
    return np.bincount(taken, minlength=len(worth)).astype(np.int64)
