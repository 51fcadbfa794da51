"""What goes wrong, and when: crashes and stalls of slices, drawn before the run."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Fault(NamedTuple):
    """At `at_us` the worker of `slice` dies, or what it runs is held up by `stall_us`."""

    at_us: int
    slice: str
    stall_us: int = 0

    @property
    def crash(self) -> bool:
        """Whether the worker dies."""
        return self.stall_us == 0


def draw_faults(
    slices: Sequence[str], seconds: float, mtbf_s: float, stall_us: int, seed: int
) -> list[Fault]:
    """Faults of each slice, exponentially `mtbf_s` apart in the mean; `stall_us` 0: crashes."""
    if mtbf_s <= 0:
        raise ValueError(f"a mean time between failures must be above 0 s, got {mtbf_s:g}")
    rng = np.random.default_rng([seed, 2])
    found = []
    for name in slices:
        at_s = float(rng.exponential(mtbf_s))
        while at_s < seconds:
            found.append(Fault(int(at_s * 1e6), name, stall_us))
            at_s += float(rng.exponential(mtbf_s))
    return sorted(found)
