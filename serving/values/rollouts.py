"""What a guarded rollout is to keep: steps, how long each is held, and the margins."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

ATTAINMENT, ERRORS, LATENCY, AGREEMENT = "attainment", "errors", "latency", "agreement"
ACCURACY = "accuracy"
MARGINS: Final[Mapping[str, float]] = MappingProxyType({ATTAINMENT: 0.01, ERRORS: 0.005, LATENCY: 0.02})
"""By measure, how much worse a candidate may be: the share of requests that are not in time, that fail, and
that are slower than 99 % of the present model's."""
AGREEMENT_MARGIN: Final = 0.02
"""The share of copies on which a candidate may disagree."""
ACCURACY_MARGIN: Final = 0.02
"""How much larger the share of wrong answers may be, of those with a label."""
STICKY: Final = ("tenant", "request", "none")
"""What keeps a caller with the model that answered it: its tenant, the name of the request, or nothing."""


SHADOWED: Final = (AGREEMENT, ERRORS)
"""What is measured of copies."""


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """The rollout of a candidate, which is a served model itself, in place of the model `of`.

    `shadow`: at first the candidate computes copies of this share (0..1) of the requests, for a step of its
    own; 0 for none. Then `margins` has one for AGREEMENT. It has one for ACCURACY where answers get labels.
    `steps`: shares of its requests, ascending; the last is 1. Each is held for `hold_us` at least.
    `margins`: by measure, how much worse it may be. `alarm`: the largest probability to roll back a candidate
    that is within all margins. `doubt`: the largest probability to take a step with one that is beyond one.
    """

    of: str
    steps: tuple[float, ...] = (0.05, 0.25, 0.5, 1.0)
    hold_us: int = 120_000_000
    sticky: str = STICKY[0]
    margins: Mapping[str, float] = field(default_factory=lambda: MARGINS)
    alarm: float = 0.01
    doubt: float = 0.05
    shadow: float = 0.0

    @property
    def tests(self) -> int:
        """How many tests share the alarm: each measure in each step, and accuracy once."""
        shadowed = len(SHADOWED) if self.shadow else 0
        asked = len(self.margins.keys() - {AGREEMENT, ACCURACY})
        return asked * max(len(self.steps) - 1, 1) + shadowed + (ACCURACY in self.margins)
