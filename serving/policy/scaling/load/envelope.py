"""How much came of late, in windows of every length: the arrival envelope, and the rate that it tells.

Windows of one second, two, four and so on, as InferLine's (Crankshaw et al., SoCC 2020, section 5): a short
one sees a jump at once, a long one a small change for certain. Which to believe is a question of noise: the
longest over which nothing has changed for certain, by the intersection of confidence intervals (Goldenshluger
and Nemirovski 1997; Katkovnik 1999). So a step is followed in seconds, and a steady load known ever better.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from math import inf, log, sqrt

WINDOWS_S = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PARTS = 4
"""Of a window that is asked for a trend. A trend is in all of them; a step is between two, or within one."""
ALARM_S = 3600.0  # chance alone fools a window about once in so long


@dataclass(frozen=True, slots=True)
class Estimate:
    """Rows a second: `rate`, as counted over the last `counted_s`, surely at least `low` and at most `high`;
    steady for the last `window_s`, as far as chance allows to say. `ahead`: what a trend of late makes of it
    by the time asked for; `rate` where there is none."""

    rate: float = 0.0
    low: float = 0.0
    high: float = 0.0
    window_s: float = 0.0
    ahead: float = 0.0
    counted_s: float = 0.0

    def cautious(self, dispersion: float, sigmas: float) -> float:
        """Return `ahead` plus `sigmas` standard deviations of the count, but no more than is possible at all.
        Soon after a jump that is much more than was seen, later next to nothing more."""
        spread = sqrt(dispersion * self.rate / self.counted_s) if self.counted_s else 0.0
        return max(min(self.ahead + sigmas * spread, self.high), self.ahead)


class Envelope:
    """Rows by look, for as long as the longest window. A look costs as many steps as there are windows,
    whatever came."""

    def __init__(self) -> None:
        # by look: its instant, and rows until then
        self._marks: deque[tuple[int, int]] = deque(maxlen=WINDOWS_S[-1] + 1)

    def add(self, rows: int, period_us: int, now_us: int) -> None:
        """Note that `rows` came in the `period_us` until now."""
        if not self._marks:
            self._marks.append((now_us - period_us, 0))
        self._marks.append((now_us, self._marks[-1][1] + rows))

    def rows(self, looks: int) -> int:
        """Return the rows that came in the last `looks` looks; of all looks if there are fewer."""
        return self._marks[-1][1] - self._mark(looks)[1] if self._marks else 0

    def estimate(self, dispersion: float, ahead_s: float) -> Estimate:
        """Return the rates now, and `ahead_s` from now. `dispersion`: the variance of a count over its mean.
        It is 1 if arrivals are Poisson, and the square of the gaps' coefficient of variation if they are
        renewals (Cox 1962)."""
        if len(self._marks) < 2:
            return Estimate()
        low, high, rate, steady_s, counted_s = 0.0, inf, 0.0, 0.0, 0.0
        shorter = (0.0, 0.0)  # the rate of the window before, and its seconds
        for looks in WINDOWS_S:
            span_s = (self._marks[-1][0] - self._mark(looks)[0]) / 1e6
            here = self.rows(looks) / span_s
            if not low <= here <= high:
                if here < low:
                    # it has risen, and too few are worse than too many: a window less of what was before
                    rate, counted_s = max((rate, counted_s), shorter)
                    rate = min(rate, high)
                break
            least, most = _bounds(here, dispersion, span_s)
            low, high, steady_s = max(low, least), min(high, most), span_s
            shorter, rate, counted_s = (rate, counted_s), here, span_s
            if looks >= len(self._marks) - 1:
                break
        ahead = rate + self._growth(dispersion, steady_s, ahead_s)
        return Estimate(rate, low, high, steady_s, ahead, counted_s)

    def _growth(self, dispersion: float, steady_s: float, ahead_s: float) -> float:
        """Return by how much the rate of the last `steady_s` will have risen `ahead_s` from now. It is the
        most of all windows that have risen by more than chance. Each window goes on as between its two parts
        with the least rise. A trend is followed for no longer than it has been seen."""
        found = 0.0
        for looks in WINDOWS_S:
            if PARTS * looks >= len(self._marks):
                break
            marks = [self._mark(part * looks) for part in range(PARTS, -1, -1)]
            spans_s = [(end[0] - begin[0]) / 1e6 for begin, end in pairwise(marks)]
            if sum(spans_s) <= steady_s:
                continue  # nothing has changed within it for certain
            rates = [
                (end[1] - begin[1]) / s for (begin, end), s in zip(pairwise(marks), spans_s, strict=True)
            ]
            chance = sqrt(dispersion * max(rates[0] + rates[-1], 1 / spans_s[0]) / min(spans_s))
            if rates[-1] - rates[0] > _sigmas(sum(spans_s)) * chance:
                rise = min(after - before for before, after in pairwise(rates))
                seen_s = sum(spans_s[1:])
                found = max(found, rise / max(spans_s) * (steady_s / 2 + min(ahead_s, seen_s)))
        return found

    def _mark(self, looks: int) -> tuple[int, int]:
        return self._marks[max(len(self._marks) - 1 - looks, 0)]


def _sigmas(span_s: float) -> float:
    """Return the standard deviations that a window of `span_s` seconds exceeds by chance about once in
    ALARM_S. The window is looked at as often as it is new; the tail of a normal is about exp(-z^2 / 2)."""
    return sqrt(max(2 * log(ALARM_S / span_s), 1.0))


def _bounds(rate: float, dispersion: float, span_s: float) -> tuple[float, float]:
    """Return the lowest and the highest rate for which `rate` over `span_s` would be just a surprise
    (Wilson's interval, for counts)."""
    spread = _sigmas(span_s) ** 2 * dispersion / span_s
    half = sqrt(spread * rate + spread * spread / 4)
    return max(rate + spread / 2 - half, 0.0), rate + spread / 2 + half
