"""What the slow plan is made from, and what it says: values that go to a job and come back.

`serving/policy/scaling/slow/planning.py` makes the one of the other, in a child process or, in the simulator,
at once; what comes back may be stale.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import PlannedBand

Key = tuple[str, str]
"""A variant, and a kind of slice."""


@dataclass(frozen=True, slots=True)
class SliceKind:
    """Slices that are alike: `count` of them, at `price` an hour each. `spot`: they may be taken away."""

    name: str
    price: float = 0.0
    count: int = 0
    spot: bool = False


@dataclass(frozen=True, slots=True)
class Claimant:
    """A model that claims replicas.

    `history`: rows that came in each `bin_s` seconds, the latest last; `cv`: of the gaps between requests.
    `variants` that may answer, with their accuracies (0 if unknown), the most accurate first. Variants below
    what none may undercut have been left out. `optimize`: as `serving.values.objectives.OPTIMIZE`;
    `cost_max`: of a million rows. `weight` and `priority`: which models go without first if there is too
    little. These are models of the lowest priority, and within it by weight. `least` to `most` replicas;
    `load_s`: until a replica that is asked for gets batches. `capacities`: by variant and kind; a kind that
    the model may not use is left out. `current`: replicas that it has.
    """

    model: str
    history: tuple[float, ...]
    variants: Mapping[str, float]
    capacities: Mapping[Key, Capacity]
    current: Mapping[Key, int] = field(default_factory=dict)
    bin_s: float = 10.0
    cv: float = 1.0
    optimize: str = "most_accurate"
    cost_max: float = inf
    weight: float = 1.0
    priority: int = 0
    least: int = 1
    most: int = 1 << 20
    load_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ScalingTask:
    """All of them, what there is, and what may be paid for an hour. `lead_s`: the plan is for so long from
    now, at least (a replica's load and the time to the next plan are added)."""

    claimants: tuple[Claimant, ...]
    kinds: tuple[SliceKind, ...]
    cost_max: float = inf
    lead_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Granted:
    """What one model should have. `rate`: rows a second that it is planned for (95th percentile of the
    forecast); `shed` of them cannot be carried. `replicas`: by variant and kind; `accuracy`: the mean over
    what is carried; `cost`: of an hour. `lacking`: a sentence on what could not be had, and what was given up
    for it; "" if nothing was. The stated order is: buy, degrade, shed."""

    model: str
    band: PlannedBand
    replicas: Mapping[Key, int]
    rate: float
    shed: float
    accuracy: float
    cost: float
    lacking: str = ""


@dataclass(frozen=True, slots=True)
class ScalingPlan:
    """By model, and what an hour of all of it costs."""

    granted: Mapping[str, Granted]
    cost: float
