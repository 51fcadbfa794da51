"""Linear and integer programs, built column by column.

HiGHS solves them (Huangfu and Hall 2018, in scipy). Only the functions that ask it import scipy: a gateway
solves in processes of its own, and starts in three quarters of the time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]

SMALL = 200
"""Columns. The presolve of HiGHS 1.12 can cut off the optimum and still report a proof; its issues 3043, 3073
and 3094 are such cases. Here it did so once, and not in 4,020 other random programs of up to 101 columns.
These took 7.1 ms without it in the mean, and 3.0 ms with it. Larger ones keep it: they are what it is for."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The `values` by column at the least `cost` that was found; `proved`: no cost is less."""

    values: Floats
    cost: float
    proved: bool


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The `values` by column, with reals for integers.

    `prices`: by row, how much the cost rises when the row's bound rises by one.
    """

    values: Floats
    cost: float
    prices: Floats


class InfeasibleError(Exception):
    """No values meet all rows."""


class Program:
    """A program: find the values of least cost for which the sum of each row lies within its bounds.

    Costs are not negative, so there is a least one. `costs`, `lower` and `upper` are by column. A caller may
    change them between two solutions.
    """

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self._integer: list[bool] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._factors: list[float] = []

    def column(self, cost: float = 0.0, upper: float = inf, integer: bool = False) -> int:
        """Add a value between 0 and `upper`; return its place."""
        self.costs.append(cost)
        self.lower.append(0.0)
        self.upper.append(upper)
        self._integer.append(integer)
        return len(self.costs) - 1

    def row(self, terms: Iterable[tuple[int, float]] = (), lower: float = -inf, upper: float = inf) -> int:
        """Add a sum of factor * value over (column, factor); return its place."""
        place = len(self._row_lower)
        self._row_lower.append(lower)
        self._row_upper.append(upper)
        for column, factor in terms:
            self.put(place, column, factor)
        return place

    def put(self, row: int, column: int, factor: float) -> None:
        """Add a term to a row. Terms of the same column add up."""
        self._rows.append(row)
        self._columns.append(column)
        self._factors.append(factor)

    def solve(self, time_limit_s: float = inf, nodes_max: int | None = None) -> Solution | None:
        """Solve with integers; return None if a limit passed before there was a solution.

        Raise InfeasibleError if there is no solution. `proved` means a relative gap of 0. The default of
        HiGHS, 1e-4, is one device in 10 000. A program of up to SMALL columns is solved without presolve, and
        in the other way where HiGHS fails.
        """
        presolve = len(self.costs) > SMALL
        found = self._solved(presolve, time_limit_s, nodes_max)
        if found.status == _FAILED and found.x is None:
            found = self._solved(not presolve, time_limit_s, nodes_max)
        if found.status == _INFEASIBLE:
            raise InfeasibleError
        if found.x is None:
            return None
        values = np.where(self._integer, np.round(found.x), found.x)
        return Solution(values, float(np.dot(values, self.costs)), found.status == _PROVED)

    def _solved(self, presolve: bool, time_limit_s: float, nodes_max: int | None) -> Any:
        """Return scipy's result."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        options: dict[str, float | int] = {"mip_rel_gap": 0.0, "presolve": presolve}
        if time_limit_s < inf:
            options["time_limit"] = time_limit_s
        if nodes_max is not None:
            options["node_limit"] = nodes_max
        return milp(
            np.array(self.costs),
            integrality=np.array(self._integer, int),
            bounds=Bounds(np.array(self.lower), np.array(self.upper)),
            constraints=LinearConstraint(self._matrix(), self._row_lower, self._row_upper),
            options=options,
        )

    def relax(self) -> Relaxed:
        """Solve with reals for integers. Raise InfeasibleError as `solve` does."""
        from scipy.optimize import linprog
        from scipy.sparse import vstack

        lower, upper = np.array(self._row_lower), np.array(self._row_upper)
        matrix, equal = self._matrix(), lower == upper
        above, below = (lower > -inf) & ~equal, (upper < inf) & ~equal
        found = linprog(
            self.costs,
            A_ub=vstack([-matrix[above], matrix[below]]),
            b_ub=np.concatenate([-lower[above], upper[below]]),
            A_eq=matrix[equal],
            b_eq=lower[equal],
            bounds=np.column_stack([self.lower, self.upper]),
            method="highs",
        )
        if found.x is None:
            raise InfeasibleError
        prices = np.zeros(len(lower))
        prices[equal] = found.eqlin.marginals
        prices[above] -= found.ineqlin.marginals[: above.sum()]
        prices[below] += found.ineqlin.marginals[above.sum() :]
        return Relaxed(found.x, float(found.fun), prices)

    def _matrix(self) -> "csr_array":
        from scipy.sparse import csr_array

        shape = len(self._row_lower), len(self.costs)
        return csr_array((self._factors, (self._rows, self._columns)), shape=shape)


_PROVED, _INFEASIBLE, _FAILED = 0, 2, 4
"""Statuses of scipy's results; the last is also a failure of HiGHS itself ("Solve error")."""
