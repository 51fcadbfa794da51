"""What came in each bin of time, for forecasts: two hours finely, three days coarsely."""

from collections import deque

FINE_S, FINE_COUNT = 10, 720
COARSE_S, COARSE_COUNT = 120, 2160


class History:
    """Counts of one model, reported as they grow. A bin without a report holds 0."""

    __slots__ = ("_bins", "_coarse", "_fine", "_seen", "_since_us")

    def __init__(self, now_us: int, seen: int = 0) -> None:
        self._fine: deque[float] = deque(maxlen=FINE_COUNT)
        self._coarse: deque[float] = deque(maxlen=COARSE_COUNT)
        self._since_us = now_us
        self._bins = 0  # fine ones that are over
        self._seen = seen

    def tell(self, seen: int, now_us: int) -> None:
        """Note that `seen` have come since the start. What came since the last call belongs to the bin of
        that call."""
        gone = (now_us - self._since_us) // (FINE_S * 1_000_000) - self._bins
        if gone > 0:
            self._end(seen - self._seen)
            zeros = min(
                gone - 1, (COARSE_COUNT + 1) * COARSE_S // FINE_S
            )  # after so many nothing else is left
            for _ in range(zeros):
                self._end(0)
            self._bins += gone - 1 - zeros
            self._seen = seen

    def _end(self, count: float) -> None:
        self._bins += 1
        self._fine.append(count)
        if self._bins % (COARSE_S // FINE_S) == 0:
            self._coarse.append(sum([*self._fine][-COARSE_S // FINE_S :]))

    def bins(self) -> tuple[tuple[float, ...], float]:
        """Return the rows in each bin, the latest last, and the seconds of a bin: fine bins until they cover
        less than the coarse ones."""
        if len(self._coarse) * COARSE_S > FINE_COUNT * FINE_S:
            return tuple(self._coarse), float(COARSE_S)
        return tuple(self._fine), float(FINE_S)
