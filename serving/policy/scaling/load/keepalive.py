"""For how long a model is kept that nobody asks for: the hybrid histogram (Shahrad et al., ATC 2020).

Idle gaps are counted; a model is kept for as long as nearly all of them lasted. Where even short ones are
long (a job every half an hour), it is let go meanwhile, and there again a little before it will be asked for.
"""

from bisect import bisect_left

EDGES_S = tuple(
    2 ** (step / 4) for step in range(57)
)  # to 2^14 s, 4.5 h, by 19 %; the paper's are minutes, to 4 h
HEAD, TAIL = 0.05, 0.99  # of the gaps, before which it is there again, and for which it is kept
MARGIN = 1.1  # the paper's, on both
EVIDENCE = 10  # gaps, below which the histogram tells nothing
UNKNOWN_S = 600.0  # kept so long then, as AWS and Azure did when the paper was written
REGAIN = 2.0  # starts that it must be gone for, to be worth its going


class KeepAlive:
    """Of one model. The histogram holds the gaps since the start; a gap is one that at least one look had."""

    def __init__(self) -> None:
        self._counts = [0] * (len(EDGES_S) + 1)
        self._gaps = 0
        self._idle_s = 0.0

    def look(self, asked: bool, period_s: float) -> None:
        """Note whether the model was asked for in the last `period_s`."""
        if not asked:
            self._idle_s += period_s
        elif self._idle_s:
            self._counts[bisect_left(EDGES_S, self._idle_s)] += 1
            self._gaps += 1
            self._idle_s = 0.0

    def keeps(self, start_s: float) -> bool:
        """Return whether it is to be there now, which takes `start_s`."""
        if self._gaps < EVIDENCE or self._counts[-1] > (1 - TAIL) * self._gaps:
            return self._idle_s <= UNKNOWN_S  # too few gaps, or too many that are longer than the histogram
        tail_s, head_s = self.share_s(TAIL) * MARGIN, self._least_s(HEAD) / MARGIN
        back_s = head_s - start_s
        gone = REGAIN * start_s < self._idle_s < back_s and back_s > 2 * REGAIN * start_s
        return self._idle_s <= tail_s and not gone

    def share_s(self, share: float) -> float:
        """Return the seconds that `share` of the gaps did not exceed: the upper edge of their bin. Return
        UNKNOWN_S if there is no gap."""
        return EDGES_S[min(self._bin(share), len(EDGES_S) - 1)] if self._gaps else UNKNOWN_S

    def _least_s(self, share: float) -> float:
        return EDGES_S[max(self._bin(share) - 1, 0)]

    def _bin(self, share: float) -> int:
        total, wanted = 0, share * self._gaps
        for place, count in enumerate(self._counts):
            total += count
            if total >= wanted and count:
                return place
        return len(self._counts) - 1
