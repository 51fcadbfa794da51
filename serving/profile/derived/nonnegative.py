"""Least squares whose coefficients are not negative."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDS = 10  # times the columns; each round takes one in, and the error falls, so that it ends by itself
NEAR = 1e-12


def nonnegative_least_squares(columns: Floats, target: Floats) -> Floats:
    """Return the x >= 0 with the least |columns @ x - target|; columns (n, m), target (n,), x (m,).

    The active set method (C. L. Lawson, R. J. Hanson, Solving Least Squares Problems, 1974, chapter 23).
    """
    count = columns.shape[1]
    found = np.zeros(count)
    taken = np.zeros(count, dtype=bool)
    scale = NEAR * max(float(np.abs(columns.T @ target).max(initial=0.0)), NEAR)
    for _ in range(ROUNDS * count):
        slope = np.where(taken, 0.0, columns.T @ (target - columns @ found))
        if slope.max() <= scale:
            break
        taken[slope.argmax()] = True
        found = _within(columns, target, found, taken)
    return found


def _within(columns: Floats, target: Floats, found: Floats, taken: NDArray[np.bool_]) -> Floats:
    """Return the best of the `taken` columns; those that it wants negative are given up (in `taken`) on the
    way."""
    while taken.any():
        wanted = np.zeros(len(found))
        wanted[taken] = np.linalg.lstsq(columns[:, taken], target, rcond=None)[0]
        below = taken & (wanted <= 0)
        if not below.any():
            return wanted
        step = float((found[below] / (found[below] - wanted[below])).min())
        found = found + step * (wanted - found)
        taken &= found > NEAR * found.max()
        found[~taken] = 0.0
    return np.zeros(len(found))
