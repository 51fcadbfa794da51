"""Capacity tables side by side, so that those of thousands of models are looked up at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from serving.policy.scaling.carried.capacity import Capacity

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NEVER = 1 << 40
NEAR = 1e-9
"""Of a rate; what is closer is equal."""
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class CapacityTables:
    """Rows a second that `counts` of replicas have `carried`, one table in each row, of one width.

    In `carried` no count carries more for each replica than a larger one: a table is taken for less where its
    simulation was lucky.
    """

    counts: Floats
    carried: Floats

    def pace(self, places: Ints, pool: Floats | Ints) -> Floats:
        """Return the rows a second of each replica of these offers, if the model has `pool` in all off one
        queue."""
        counts, carried = self.counts[places], self.carried[places]
        upper = (counts < np.maximum(pool, 1)[:, None]).sum(axis=1)
        lower = np.clip(upper - 1, 0, None)
        upper = np.clip(upper, None, counts.shape[1] - 1)
        rows = np.arange(len(places))
        begin, width = counts[rows, lower], counts[rows, upper] - counts[rows, lower]
        rate = carried[rows, lower]
        rise = (carried[rows, upper] - rate) / np.where(width > 0, width, 1.0)
        inside = (rate + rise * (pool - begin)) / np.maximum(pool, 1)
        return np.asarray(np.where(width > 0, inside, rate / begin))

    def needed(self, places: Ints, rate: Floats) -> Ints:
        """Return the fewest replicas alike that carry `rate` rows a second; `NEVER` if none do."""
        counts, carried = self.counts[places], self.carried[places]
        enough = rate[:, None] * (1 - NEAR)
        upper = (carried < enough).sum(axis=1)
        lower = np.clip(upper - 1, 0, None)
        beyond = upper == counts.shape[1]
        upper = np.clip(upper, None, counts.shape[1] - 1)
        rows = np.arange(len(places))
        base, begin = carried[rows, lower], counts[rows, lower]
        height = carried[rows, upper] - base
        slope = np.where(height > 0, (counts[rows, upper] - begin) / np.where(height > 0, height, 1.0), 0.0)
        outside = (lower == upper) | beyond
        slope = np.where(outside, begin / np.maximum(base, _TINY), slope)
        count = np.where(outside, 0.0, begin - slope * base) + slope * enough[:, 0]
        return np.where(rate > 0, np.clip(np.ceil(count - NEAR), 1, NEVER), 0).astype(np.int64)


def make_tables(capacities: Sequence[Capacity], cvs: Sequence[float]) -> CapacityTables:
    """Return tables of these capacities, each for its own variation of gaps in `cvs`. Between two simulated
    variations they are on the line, outside of these at the nearest."""
    width = max((len(each.counts) for each in capacities), default=1)
    counts, carried = np.ones((len(capacities), width)), np.zeros((len(capacities), width))
    by_width: dict[int, list[int]] = {}
    for place, each in enumerate(capacities):
        by_width.setdefault(len(each.counts), []).append(place)
    for narrow, places in by_width.items():
        counts[places, :narrow] = [capacities[place].counts for place in places]
        between = [_between(capacities[place].cvs, cvs[place]) for place in places]
        rows = zip(places, between, strict=True)
        low = np.array([capacities[place].rates[lower] for place, (lower, _, _) in rows], float)
        rows = zip(places, between, strict=True)
        high = np.array([capacities[place].rates[upper] for place, (_, upper, _) in rows], float)
        carried[places, :narrow] = low + (high - low) * np.array([[share] for _, _, share in between])
        for column in range(narrow, width):  # beyond the largest in proportion
            counts[places, column] = 2 * counts[places, column - 1]
            carried[places, column] = 2 * carried[places, column - 1]
    pace = np.minimum.accumulate((carried / counts)[:, ::-1], axis=1)[:, ::-1]
    return CapacityTables(counts, pace * counts)


def _between(cvs: Sequence[float], cv: float) -> tuple[int, int, float]:
    """Return the places of the two that it lies between, and how far from the first, 0 to 1."""
    if cv <= cvs[0]:
        return 0, 0, 0.0
    for upper in range(1, len(cvs)):
        if cv <= cvs[upper]:
            return upper - 1, upper, (cv - cvs[upper - 1]) / (cvs[upper] - cvs[upper - 1])
    return len(cvs) - 1, len(cvs) - 1, 0.0
