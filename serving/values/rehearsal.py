"""How rehearsed workers depart from their profiles, in the words of `penstock simulate`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RehearsalSpec:
    """What a rehearsed device does beside what its profiles say; as the entry of `devices:` states it.

    - `noise`: the coefficient of variation of a batch's latency (lognormal, median 1).
    - `outliers`: the share of batches that take ten times as long.
    - `interference`: each other slice of the device that computes makes a batch longer by this share.
    - `crash_every_s`, `stall_every_s`: the mean time between losses of a worker, and between its stalls of
      `stall_s` seconds; 0 for never.
    - `disturb`: what other programs do to its slices (`serving.values.disturbance`), from the start of a
    worker on.
    - `seed`: of all that is drawn.
    - `beside_real`: a model may have rehearsed and real replicas at the same time.
    """

    noise: float = 0.0
    outliers: float = 0.0
    interference: float = 0.0
    crash_every_s: float = 0.0
    stall_every_s: float = 0.0
    stall_s: float = 0.5
    disturb: str = ""
    seed: int = 1
    beside_real: bool = False


EXACT = RehearsalSpec()
"""Nothing departs from the profiles."""
