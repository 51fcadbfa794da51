"""Why a model has as many replicas as it has, in figures and words: for metrics, status and explanations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.policy.scaling.interface import PlannedBand


@dataclass(frozen=True, slots=True)
class ScalingStatus:
    """A model's scaling, as figures and sentences.

    - `desired`: replicas that the policy asks for. It can have `count` of them, on `slices`; `held` says why
      not more, or is "".
    - `ready` get batches, `coming` are starting or loading, `standing` are loaded without batches.
    - `why`, `up`, `down`: why so many, and what would change it, in sentences.
    - `budget`: what may miss the SLO, what did, and what that leaves.
    - `pressure`: 1.0 if the ready replicas are just enough.
    - `band`: the slow plan's, None if there is none yet; `lacking`: what that plan could not have, "" if
      nothing.
    """

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
