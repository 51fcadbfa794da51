"""Why a model has as many replicas as it has, in figures and words: for metrics, status and explanations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.policy.scaling.interface import PlannedBand


@dataclass(frozen=True, slots=True)
class ScalingStatus:
    """`desired`: replicas that the policy wishes; `count` of them can be had, on `slices`, and `held`, if not
    "", says why not more. `ready` get batches, `coming` are being started or loaded, `standing` are loaded
    without batches. `why`, `up`, `down`: why so many, and what would change it, in sentences; `budget`: what
    may be missed, what was, and what that leaves. `pressure`: 1.0 where what is ready is just enough.
    `band`: the slow plan's, None where there is none yet; `lacking`: what that plan could not have, ""
    where it has everything."""

    model: str
    desired: int
    count: int
    ready: int
    coming: int
    standing: int
    least: int
    most: int
    slices: tuple[str, ...]
    pressure: float = 0.0
    why: str = ""
    up: str = ""
    down: str = ""
    budget: str = ""
    held: str = ""
    lacking: str = ""
    band: PlannedBand | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
