"""How bursty arrivals are: the coefficient of variation of the gaps between rows."""

from collections import deque
from math import exp, sqrt

BLOCK_S = 16.0
"""Within which the rate counts as one: a change of rate is no burst, the envelope sees it."""
LIVES_S = (60.0, 480.0)
"""Of what was seen, the larger counts: more burstiness shows in a minute, less in some."""
PRIOR_S = 8.0  # of Poisson arrivals, that are believed in before anything is seen
PAUSE = 4.0  # mean gaps (and a second), from which a gap is a pause: again a change of rate
LARGEST = 16.0


class _Mean:
    """The mean of the added values, once over each of LIVES_S. `first` counts for PRIOR_S before any value is
    added."""

    def __init__(self, first: float) -> None:
        self._sums = [first * PRIOR_S] * len(LIVES_S)
        self._weights = [PRIOR_S] * len(LIVES_S)

    @property
    def largest(self) -> float:
        return max(total / weight for total, weight in zip(self._sums, self._weights, strict=True))

    def add(self, value: float, period_s: float) -> None:
        for place, life_s in enumerate(LIVES_S):
            left = exp(-period_s / life_s)
            self._sums[place] = self._sums[place] * left + value * period_s
            self._weights[place] = self._weights[place] * left + period_s


class Burstiness:
    """`cv`: 1 for Poisson arrivals, and at least that: evenly spaced ones are no promise for the next minute.

    Rows of one request come with gaps of 0 between them. So requests of many rows are bursts, and the squares
    of the gaps between requests are those of the gaps between rows.
    """

    def __init__(self) -> None:
        self._block: deque[tuple[int, float, float]] = deque()
        self._rows = 0
        self._gaps_s2 = self._length_s = 0.0
        self._squares = _Mean(1.0)  # of cv
        self._within = _Mean(1.0)  # the same of the gaps between requests, within a look
        self._sizes = _Mean(1.0)  # rows of a request
        self._asked = False  # at the look before

    @property
    def cv(self) -> float:
        """The present one, in 1..LARGEST."""
        return min(sqrt(max(1.0, self._squares.largest)), LARGEST)

    @property
    def within(self) -> float:
        """Of gaps within a look, in 1..cv: what is left of it where what differs from second to second is
        counted by itself."""
        # a sum of as many rows as a request has: of each request's gap, and of its rows' gaps of 0
        square = self._sizes.largest * (1 + max(self._within.largest, 1.0)) - 1
        return min(sqrt(square), self.cv)

    def add(self, rows: int, requests: int, gaps_s2: float, period_s: float) -> None:
        """Note that `rows` of `requests` requests came in the last `period_s`. `gaps_s2`: the sum of the
        squares of the gaps that they ended, square seconds."""
        self._look(rows, requests, gaps_s2, period_s)
        mean_s = self._length_s / self._rows if self._rows else BLOCK_S
        gaps_s2 = min(gaps_s2, max(1.0, PAUSE * mean_s) ** 2 + period_s**2)
        self._block.append((rows, gaps_s2, period_s))
        self._rows += rows
        self._gaps_s2 += gaps_s2
        self._length_s += period_s
        if self._length_s < BLOCK_S:
            return
        if self._rows > 1:
            # E[gap^2] / E[gap]^2 - 1, of the block: the mean gap is its length over its rows
            self._squares.add(self._gaps_s2 * self._rows / self._length_s**2 - 1, period_s)
        while self._length_s > BLOCK_S - period_s and self._block:
            gone, gone_s2, gone_s = self._block.popleft()
            self._rows -= gone
            self._gaps_s2 = max(self._gaps_s2 - gone_s2, 0.0)
            self._length_s -= gone_s

    def _look(self, rows: int, requests: int, gaps_s2: float, period_s: float) -> None:
        if requests:
            self._sizes.add(rows / requests, period_s)
        if requests > 1 and self._asked:  # else the first gap is a pause of unknown length
            self._within.add(gaps_s2 * requests / period_s**2 - 1, period_s)
        self._asked = requests > 0
