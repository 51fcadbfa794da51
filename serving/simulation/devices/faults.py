"""What goes wrong, and when: crashes and stalls of slices, drawn before the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

FAULTS_MAX = 1_000_000
_CRASHES, _STALLS = 1, 2


class Fault(NamedTuple):
    """At `at_us` the worker of `slice` dies, or computes nothing for `stall_us`."""

    at_us: int
    slice: str
    stall_us: int = 0

    @property
    def crash(self) -> bool:
        """Whether the worker dies."""
        return self.stall_us == 0


@dataclass(frozen=True, slots=True)
class Hazards:
    """How often each slice's worker dies, and how often it computes nothing for `stall_us`: mean times
    between failures in seconds, 0 for never."""

    crash_mtbf_s: float = 0.0
    stall_mtbf_s: float = 0.0
    stall_us: int = 0

    def draw(self, slices: Sequence[str], seconds: float, seed: int) -> list[Fault]:
        """Return the crashes and stalls of a run. Raises ValueError if there would be too many."""
        found = []
        if self.crash_mtbf_s:
            found += draw_faults(slices, seconds, self.crash_mtbf_s, 0, seed)
        if self.stall_mtbf_s:
            found += draw_faults(slices, seconds, self.stall_mtbf_s, self.stall_us, seed)
        return sorted(found)


def draw_faults(
    slices: Sequence[str], seconds: float, mtbf_s: float, stall_us: int, seed: int
) -> list[Fault]:
    """Return the faults of each slice, exponentially `mtbf_s` apart in the mean; `stall_us` 0: crashes.
    Raises ValueError if there is no such time, or there would be too many faults."""
    if mtbf_s <= 0:
        raise ValueError(f"a mean time between failures must be above 0 s, got {mtbf_s:g}")
    if len(slices) * seconds > FAULTS_MAX * mtbf_s:
        expected = len(slices) * seconds / mtbf_s
        raise ValueError(f"{expected:.2g} faults are too many for a run; at most {FAULTS_MAX:,}")
    rng = np.random.default_rng([seed, 1, _STALLS if stall_us else _CRASHES])
    found = []
    for name in slices:
        at_s = float(rng.exponential(mtbf_s))
        while at_s < seconds:
            found.append(Fault(int(at_s * 1e6), name, stall_us))
            at_s += float(rng.exponential(mtbf_s))
    return sorted(found)
