"""Whether a machine is quiet enough to be measured, from what the same fixed work takes on it.

Pure. On two cores of a shared virtual machine the yardstick's p95 lay 3 to 10 % above its median when nothing
else ran, and 40 to 100 % above it beside one busy process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from serving.profile.sweeping.precision import quantile

SPREAD_MAX = 0.25  # of the yardstick: p95 over p50, less 1
OTHERS_MAX = 0.15  # cores' worth of time that others had, for each core of the slice
STOLEN_MAX = 0.05  # share of the time that the hypervisor gave to others
SLOWER = 1.12  # a trial is thrown away if its yardstick took so much longer than usual
REFUSED_IN_A_ROW = 3  # then it is taken: the machine has become slower, and stays so


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen while the yardstick ran: its times, and shares of the slice's cores' time."""

    yardsticks_us: tuple[int, ...]
    others: float = 0.0
    stolen: float = 0.0

    @property
    def spread(self) -> float:
        """p95 over p50, less 1."""
        ordered = sorted(self.yardsticks_us)
        return quantile(ordered, 0.95) / quantile(ordered, 0.5) - 1

    @property
    def quiet(self) -> bool:
        """Whether figures of this machine would be worth keeping."""
        return self.spread <= SPREAD_MAX and self.others <= OTHERS_MAX and self.stolen <= STOLEN_MAX

    def __str__(self) -> str:
        ordered = sorted(self.yardsticks_us)
        middle, high, worst = (quantile(ordered, share) / 1000 for share in (0.5, 0.95, 1.0))
        return (
            f"the same work took {middle:.2f} ms (median), {high:.2f} ms (p95, {self.spread:.0%} more) "
            f"and {worst:.2f} ms at worst of {len(ordered)} runs; others had {self.others:.0%} of the "
            f"cores' time, the hypervisor {self.stolen:.0%} "
            f"(allowed: {SPREAD_MAX:.0%}, {OTHERS_MAX:.0%}, {STOLEN_MAX:.0%})"
        )


class Steadiness:
    """Which trials of a sweep were disturbed, by the yardstick that ran with each."""

    def __init__(self) -> None:
        self._medians: list[float] = []
        self._refused = 0
        self.thrown_away = 0

    def accepts(self, yardsticks_us: Sequence[int]) -> bool:
        """Return whether a trial counts; without a yardstick all do."""
        if not yardsticks_us:
            return True
        here = float(median(yardsticks_us))
        usual = sorted(self._medians)[len(self._medians) // 4] if self._medians else here
        if here > SLOWER * usual and self._refused < REFUSED_IN_A_ROW:
            self._refused += 1
            self.thrown_away += 1
            return False
        self._refused = 0
        self._medians.append(here)
        return True

    @property
    def spread(self) -> float:
        """p95 over p50 of the accepted trials' yardsticks, less 1."""
        if not self._medians:
            return 0.0
        ordered = sorted(self._medians)
        return quantile(ordered, 0.95) / quantile(ordered, 0.5) - 1
